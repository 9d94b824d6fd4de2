// Every message over a link to the scheduler's server, as it is when nobody has filled it in and as it is by chance: before its sender has
// joined, twice from each kind of peer, after each other one, and from one that is gone at once. Whatever becomes of that link, nobody else notices. All
// alternatives of msg::Message are gone through, so a new one is in. (What messages with a meaning do is the core's: scheduler/core/messages_test.cc.)
#include <doctest/doctest.h>

#include "random_message.h"
#include "test_site.h"

namespace tilewise::scheduler {
namespace {

using namespace testing;
using tilewise::testing::empty_message;
using tilewise::testing::kTags;

// One of each kind that nobody has filled in, and some by chance: well-formed, and mostly about nothing that is there.
template <class Fn> void for_each_sample(Fn&& fn) {
  constexpr int kByChance = 4;
  Prng prng(20'261'125);
  for (std::size_t tag = 0; tag < kTags; ++tag) {
    for (int i = 0; i <= kByChance; ++i) {
      const msg::Message message = i == 0 ? empty_message(tag) : codec::random_message(tag, prng);
      REQUIRE(message.index() == tag);
      INFO(std::string(msg::name_of(message)) << ", sample " << i);
      fn(message);
    }
  }
}

// Clients and tools may.
bool ends_all(const msg::Message& message, msg::Role role) {
  return role != msg::Role::kWorker && std::holds_alternative<msg::Shutdown>(message);
}

TEST_CASE("server: every message before its sender has joined: that link is closed, and told why") {
  Site site;
  for_each_sample([&](const msg::Message& message) {
    Party stranger;
    site.connect(stranger);
    stranger.say(message);
    stranger.say(msg::Ping{1});  // of somebody who has not joined, too
    site.until([&] { return stranger.closed; });
    CHECK(!stranger.answered(1));
    CHECK(stranger.count<msg::Refusal>() + stranger.count<msg::Welcome>() + stranger.count<msg::Resumed>() ==
          1);
    site.settle(site.bystander);
    CHECK(!site.bystander.closed);
    site.until([&] { return site.peers() == 1; });  // a Join by chance may have been one
  });
  CHECK(!site.ended);
}

TEST_CASE("server: every message twice, from each kind of peer: at worst that peer's link is closed") {
  for (const msg::Role role : {msg::Role::kWorker, msg::Role::kClient, msg::Role::kTool}) {
    Site site;
    CAPTURE(static_cast<int>(role));
    for_each_sample([&](const msg::Message& message) {
      if (ends_all(message, role)) return;
      Party peer;
      site.connect(peer);
      site.joins(peer, role);
      peer.say(message);
      peer.say(message);
      site.settle(peer);
      site.settle(site.bystander);
      CHECK(!site.bystander.closed);
      if (!peer.closed) CHECK(site.peers() == 2);
      peer.link.reset();
      site.until([&] { return site.peers() == 1; });
    });
    CHECK(!site.ended);
  }
}

// Whoever says it is joined from then on: a Join that is in order, a Resume of somebody who is waited for.
bool is_in(const msg::Message& message, const msg::Resume& resident) {
  const auto* join = std::get_if<msg::Join>(&message);
  const auto* resume = std::get_if<msg::Resume>(&message);
  return (join != nullptr && !join->software_version.empty()) ||
         (resume != nullptr && resume->state == resident.state);
}

TEST_CASE("server: every two messages at once on a new link: it is told why it is closed, or it has joined") {
  Site site;
  Party resident;
  msg::Resume back = site.lasting(resident);
  std::size_t waited_for = 1;  // with the resident, whose links come and go
  std::vector<msg::Message> samples;
  for (std::size_t tag = 0; tag < kTags; ++tag) samples.push_back(empty_message(tag));
  samples.push_back(join_as(msg::Role::kWorker));
  samples.push_back(join_as(msg::Role::kClient));
  samples.push_back(join_as(msg::Role::kTool));
  samples.push_back(back);
  for (msg::Message& first : samples) {
    for (const msg::Message& second : samples) {
      // An Ack is no first word: it says nothing.
      const bool in =
          is_in(first, back) || (std::holds_alternative<msg::Ack>(first) &&
                                 std::holds_alternative<msg::Join>(second) && is_in(second, back));
      if (in && std::holds_alternative<msg::Resume>(first)) {  // the one before may have left
        Party other;
        back = site.lasting(other), first = back;
        ++waited_for;
      }
      if (&first == &second || (in && std::holds_alternative<msg::Shutdown>(second))) continue;
      INFO(std::string(msg::name_of(first)) << ", then " << std::string(msg::name_of(second)));
      Party stranger;
      site.connect(stranger);
      stranger.say(first);
      stranger.say(second);
      if (in) {
        site.settle(stranger);
      } else {
        site.until([&] { return stranger.closed; });
        CHECK(stranger.count<msg::Refusal>() + stranger.count<msg::Welcome>() +
                  stranger.count<msg::Resumed>() ==
              1);
      }
      site.settle(site.bystander);
      CHECK(!site.bystander.closed);
      stranger.link.reset();
      site.until([&] { return site.peers() <= 1 + waited_for; });
    }
  }
  CHECK(!site.ended);
}

TEST_CASE("server: every two messages at once from each kind of peer: at worst that peer's link is closed") {
  for (const msg::Role role : {msg::Role::kWorker, msg::Role::kClient, msg::Role::kTool}) {
    Site site;
    CAPTURE(static_cast<int>(role));
    std::optional<Party> peer;
    for (std::size_t first = 0; first < kTags; ++first) {
      for (std::size_t second = 0; second < kTags; ++second) {
        const msg::Message one = empty_message(first), two = empty_message(second);
        if (first == second || ends_all(one, role) || ends_all(two, role)) continue;
        INFO(std::string(msg::name_of(one)) << ", then " << std::string(msg::name_of(two)));
        if (!peer || peer->closed) {
          peer.emplace();
          site.connect(*peer);
          site.joins(*peer, role);
        }
        peer->say(one);
        peer->say(two);
        site.settle(*peer);
        if (second % 8 == 0) site.settle(site.bystander);
        CHECK(!site.bystander.closed);
      }
    }
    CHECK(!site.ended);
  }
}

TEST_CASE("server: who comes back while everything is being ended is told so") {
  Site site;
  Party resident, again;
  const msg::Resume back = site.lasting(resident);
  site.connect(again);
  site.bystander.say(msg::Shutdown{});  // both are read in one turn, this first
  again.say(back);
  site.until([&] { return again.closed || again.count<msg::Resumed>() == 1; });
  REQUIRE(again.count<msg::Resumed>() == 1);
  CHECK(std::get<msg::Resumed>(again.heard[0]).refused.code == Errc::kUnavailable);
  CHECK(site.ended);
}

TEST_CASE("server: every message from one who is gone at once: nothing of it is left") {
  for (const msg::Role role : {msg::Role::kWorker, msg::Role::kClient, msg::Role::kTool}) {
    Site site;
    CAPTURE(static_cast<int>(role));
    for_each_sample([&](const msg::Message& message) {
      if (ends_all(message, role)) return;
      Party peer;
      site.connect(peer);
      site.joins(peer, role);
      peer.say(message);
      peer.link.reset();
      site.until([&] { return site.peers() == 1; });
      site.settle(site.bystander);
      CHECK(!site.bystander.closed);
    });
    CHECK(!site.ended);
  }
}

}  // namespace
}  // namespace tilewise::scheduler
