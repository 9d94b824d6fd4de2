// Every message over a link to the scheduler's server, as it is when nobody has filled it in and as it is by chance: before its sender has
// joined, twice from each kind of peer, and from one that is gone at once. Whatever becomes of that link, nobody else notices. All
// alternatives of msg::Message are gone through, so a new one is in. (What messages with a meaning do is the core's: scheduler/core/messages_test.cc.)
#include "server.h"

#include <tilewise/config/version.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "message_tags.h"
#include "random_message.h"

namespace tilewise::scheduler {
namespace {

constexpr TimeNs kPatience = 20 * kSecond;
using testing::empty_message;
using testing::kTags;

msg::Join join_as(msg::Role role) {
  msg::Join join;
  join.role = role;
  join.name = join.host_id = "somebody";
  join.software_version = config::software_version();
  if (role == msg::Role::kTool) return join;
  join.addresses = {"tcp://127.0.0.1:1"};
  join.devices.push_back({"host:0", 0, "cpu", "x", std::int64_t{1} << 30, 1});
  return join;
}

struct Party {
  std::unique_ptr<net::ConnectAttempt> attempt;
  std::unique_ptr<net::Link> link;
  std::vector<msg::Message> heard;
  bool closed = false;

  void say(const msg::Message& message) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(message, buffer).has_value());
    if (!closed) REQUIRE(link->send(codec::frame_type(message), buffer.bytes()).has_value());
  }
  template <class M> std::ptrdiff_t count() const {
    return std::count_if(heard.begin(), heard.end(),
                         [](const msg::Message& m) { return std::holds_alternative<M>(m); });
  }
  bool answered(std::uint64_t nonce) const {
    return std::find(heard.begin(), heard.end(), msg::Message(msg::Pong{nonce})) != heard.end();
  }
};

struct Site {
  Site() {
    ServerOptions options{.listen = *net::Address::parse("tcp://127.0.0.1:0"), .token = token, .core = {}};
    auto opened = Server::open(*loop, std::move(options), [this] { ended = true; });
    REQUIRE(opened.has_value());
    server = std::move(*opened);
    connect(bystander);
    joins(bystander, msg::Role::kTool);
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); }
  void connect(Party& party) {
    party.attempt = net::connect(*loop, server->address(), {.token = token},
                                 [&party](Result<std::unique_ptr<net::Link>> link) {
                                   REQUIRE(link.has_value());
                                   party.link = std::move(*link);
                                 });
    until([&] { return party.link != nullptr; });
    party.link->start({[&party](net::Frame& frame) { party.heard.push_back(*codec::decode(frame.payload)); },
                       [&party](const Error&) { party.closed = true; },
                       {}});
  }
  void joins(Party& party, msg::Role role) {
    party.say(join_as(role));
    until([&] { return party.count<msg::Welcome>() == 1; });
    REQUIRE(std::get<msg::Welcome>(party.heard[0]).refused.ok());
  }
  // All that it said has been read; or its link has been closed.
  void settle(Party& party) {
    party.say(msg::Ping{++nonce});
    until([&] { return party.closed || party.answered(nonce); });
  }
  std::size_t peers() const {
    return std::get<Overview>(server->view(OverviewRequest{})).status.peers.size();
  }

  const net::Token token = *net::Token::generate();
  std::unique_ptr<net::EventLoop> loop = *net::EventLoop::create();
  std::unique_ptr<Server> server;
  Party bystander;
  std::uint64_t nonce = 1'000;
  bool ended = false;
};

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
