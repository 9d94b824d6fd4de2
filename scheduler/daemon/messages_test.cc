// Every message over a link to the scheduler's server, as it is when nobody has filled it in and as it is by chance: before its sender has
// joined, twice from each kind of peer, after each other one, over a link that another has taken the place of, from a peer of another
// scheduler's state, and from one that is gone at once. Whatever becomes of that link, nobody else notices. A new message does not compile
// until it has a rule (-Werror=switch). (What messages with a meaning do is the core's: scheduler/core/messages_test.cc.)
#include <doctest/doctest.h>

#include "random_message.h"
#include "test_site.h"

namespace tilewise::scheduler {
namespace {

using namespace testing;
using tilewise::testing::empty_message;
using tilewise::testing::kTags;
using tilewise::testing::Tag;

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

// What becomes of a message, once its sender has joined, that nobody has filled in.
enum class Then { kTaken, kAnswered, kRefused, kCloses, kEndsAll };
struct Rule {
  Then worker, client, tool;
  std::size_t answer = kTags;  // its tag

  Then of(msg::Role role) const {
    switch (role) {
      case msg::Role::kWorker: return worker;
      case msg::Role::kClient: return client;
      case msg::Role::kTool: return tool;
    }
    return worker;
  }
};
constexpr Rule kForEverybody{Then::kTaken, Then::kTaken, Then::kTaken};
constexpr Rule kForNobody{Then::kRefused, Then::kRefused, Then::kRefused};
constexpr Rule kOfWorkers{Then::kTaken, Then::kRefused, Then::kRefused};
constexpr Rule kOfClients{Then::kRefused, Then::kTaken, Then::kRefused};
template <class Answer> Rule answered(Then worker, Then client, Then tool) {
  return {worker, client, tool, msg::Message(Answer{}).index()};
}
Rule rule(Tag tag) {
  constexpr Then kAnswered = Then::kAnswered, kRefused = Then::kRefused;
  switch (tag) {
    case Tag::kPing: return answered<msg::Pong>(kAnswered, kAnswered, kAnswered);
    case Tag::kStatusRequest: return answered<msg::StatusReply>(kAnswered, kAnswered, kAnswered);
    case Tag::kTraceRequest: return answered<msg::TraceReply>(kRefused, kAnswered, kAnswered);
    case Tag::kBlocksRequest: return answered<msg::BlocksReply>(kRefused, kAnswered, kAnswered);
    case Tag::kDrainRequest: return answered<msg::DrainReply>(kRefused, kAnswered, kAnswered);
    case Tag::kSubmit:
    case Tag::kAnnounce: return answered<msg::SubmitReply>(kRefused, kAnswered, kRefused);
    case Tag::kExplain:  // a tool's is of a graph that is there
      return answered<msg::Explanation>(kRefused, kAnswered, kRefused);
    case Tag::kProgress:
    case Tag::kTaskFailed:
    case Tag::kStuck:
    case Tag::kTraceReply:
    case Tag::kBlocksReply:
    case Tag::kDrained:
    case Tag::kLinkProbed: return kOfWorkers;
    case Tag::kHeld: return {Then::kTaken, Then::kTaken, kRefused};
    case Tag::kReleaseArrays:
    case Tag::kCancelRequest: return kOfClients;
    case Tag::kLastWords: return {kRefused, kRefused, Then::kTaken};  // a supervisor's
    case Tag::kPong:
    case Tag::kRefusal:
    case Tag::kAck: return kForEverybody;
    case Tag::kResume:
    case Tag::kLeave: return {Then::kCloses, Then::kCloses, Then::kCloses};
    case Tag::kShutdown: return {kRefused, Then::kEndsAll, Then::kEndsAll};
    case Tag::kJoin:
    case Tag::kWelcome:
    case Tag::kLog:
    case Tag::kSubmitReply:
    case Tag::kGraphProgress:
    case Tag::kGraphDone:
    case Tag::kStatusReply:
    case Tag::kPeerHello:
    case Tag::kArenaMap:
    case Tag::kPeerBatch:
    case Tag::kExplanation:
    case Tag::kResumed:
    case Tag::kDrainReply:
    case Tag::kLinkProbe: return kForNobody;
  }
  return kForNobody;
}

// Why one is refused: with what, and in which words.
std::pair<Errc, std::string> refusal_of(Tag tag, msg::Role role) {
  if (tag == Tag::kJoin) return {Errc::kAlreadyExists, "has joined already"};
  if (tag == Tag::kShutdown) return {Errc::kPermissionDenied, "only a client or a tool"};
  if (tag == Tag::kResume) return {Errc::kInvalidArgument, "a Resume is the first message on its link"};
  const char* const of = role == msg::Role::kWorker   ? "worker"
                         : role == msg::Role::kClient ? "client"
                                                      : "tool";
  const msg::Message message = empty_message(static_cast<std::size_t>(tag));
  return {Errc::kInvalidArgument, std::string(msg::name_of(message)) + " is not for a " + of};
}

TEST_CASE(
    "server: every message once its sender has joined: taken, answered, refused, or the end of that link") {
  for (const msg::Role role : {msg::Role::kWorker, msg::Role::kClient, msg::Role::kTool}) {
    std::optional<Site> site;
    CAPTURE(static_cast<int>(role));
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      const msg::Message message = empty_message(tag);
      const Rule expected = rule(static_cast<Tag>(tag));
      INFO(std::string(msg::name_of(message)));
      if (!site || site->ended) site.emplace();
      Party peer;
      site->connect(peer);
      site->joins(peer, role);
      const std::ptrdiff_t before = std::ssize(peer.heard);
      peer.say(message);
      site->settle(peer);
      std::vector<std::size_t> heard;
      for (auto m = peer.heard.begin() + before; m != peer.heard.end(); ++m) {
        heard.push_back(m->index());
        const auto* refusal = std::get_if<msg::Refusal>(&*m);
        if (refusal == nullptr) continue;
        const auto [code, words] = refusal_of(static_cast<Tag>(tag), role);
        CHECK(refusal->why.code == code);
        CHECK_MESSAGE(refusal->why.message.find(words) != std::string::npos, refusal->why.message);
      }
      const std::size_t refusal = msg::Message(msg::Refusal{}).index();
      std::vector<std::size_t> said;
      switch (expected.of(role)) {
        case Then::kTaken: break;
        case Then::kAnswered: said = {expected.answer}; break;
        case Then::kRefused: said = {refusal}; break;
        case Then::kCloses:
          if (static_cast<Tag>(tag) == Tag::kResume) said = {refusal};  // the other one is meant
          break;
        case Then::kEndsAll:
          CHECK(peer.closed == (role == msg::Role::kClient));  // a tool's link ends with the process
          CHECK(site->ended);
          continue;
      }
      CHECK(!site->ended);
      const bool closes = expected.of(role) == Then::kCloses;
      CHECK(peer.closed == closes);
      if (!closes) said.push_back(msg::Message(msg::Pong{}).index());  // the test's own
      CHECK(heard == said);
      CHECK(site->peers() == (closes ? 1 : 2));
      peer.link.reset();
      site->until([&] { return site->peers() == 1; });
    }
  }
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

// Two who may come back: what each kind of message would do, it must not do when its sender has a younger link.
constexpr msg::Role kLasting[] = {msg::Role::kWorker, msg::Role::kClient};

TEST_CASE(
    "server: every message over a link in whose place its sender has another: it is not heard, and not "
    "counted "
    "as received") {
  for (const msg::Role role : kLasting) {
    Site site;
    CAPTURE(static_cast<int>(role));
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      const msg::Message message = empty_message(tag);
      INFO(std::string(msg::name_of(message)));
      Party older, younger, third;
      msg::Resume back = site.lasting(older, role);
      site.settle(older);
      back.received = older.heard.size();
      site.connect(younger);
      younger.say(back);  // both are read in one turn, this first
      older.say(message);
      older.say(msg::Ping{1});
      site.until([&] { return older.closed && younger.count<msg::Resumed>() == 1; });
      site.settle(younger);
      CHECK(std::ssize(older.heard) == static_cast<std::ptrdiff_t>(back.received));
      CHECK(younger.heard ==
            std::vector<msg::Message>{msg::Resumed{site.server->term(), 2, {}}, msg::Pong{site.nonce}});
      CHECK(!younger.closed);
      back.received += 1;
      site.connect(third);
      third.say(back);
      site.until([&] { return third.count<msg::Resumed>() == 1; });
      CHECK(third.heard[0] == msg::Message(msg::Resumed{site.server->term(), 3, {}}));
      CHECK(!site.ended);
      CHECK(site.peers() == 2);
      third.say(msg::Leave{});
      site.until([&] { return site.peers() == 1; });
    }
    site.settle(site.bystander);
    CHECK(!site.bystander.closed);
  }
}

TEST_CASE(
    "server: every message of who resumes what another scheduler's state was: it is told so, and who has its "
    "number here goes on") {
  for (const msg::Role role : kLasting) {
    Site site;
    CAPTURE(static_cast<int>(role));
    Party resident;
    const msg::Resume here = site.lasting(resident, role);
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      INFO(std::string(msg::name_of(empty_message(tag))));
      Party dead;
      site.connect(dead);
      dead.say(msg::Resume{here.state + 2, here.me, here.received});
      dead.say(empty_message(tag));
      dead.say(msg::Ping{1});
      site.until([&] { return dead.closed; });
      REQUIRE(dead.heard.size() == 1);
      const auto* answer = std::get_if<msg::Resumed>(&dead.heard[0]);
      REQUIRE(answer != nullptr);
      CHECK(answer->refused.code == Errc::kUnavailable);
      const std::size_t before = resident.heard.size();
      site.settle(resident);
      REQUIRE(!resident.closed);
      CHECK(resident.heard.size() == before + 1);
      CHECK(!site.ended);
      CHECK(site.peers() == 2);
    }
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
