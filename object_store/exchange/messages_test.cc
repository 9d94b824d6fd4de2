// Every message over a link between peers: from a stranger, from one that is gone, in its place, twice, as the last word of a link that
// breaks, and from a dead incarnation: over a new link, over one that another has taken the place of, over one that is older. What is not for peers costs its sender its link, and nobody else anything. (What messages with a meaning do is the worker
// core's: worker/core/messages_test.cc.)
#include "by_hand.h"

#include "message_tags.h"
#include "script.h"

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;
using tilewise::testing::each_tag;
using tilewise::testing::empty_message;
using tilewise::testing::Tag;

namespace {

enum class Use {
  kGreeting,  // before anything else, once
  kMap,       // then: any number, the first makes the link ready
  kBatch,     // then: any number
  kNot        // of a link inside a host, or of any between peers
};
Use use_of(Tag tag) {
  switch (tag) {
    case Tag::kPeerHello: return Use::kGreeting;
    case Tag::kArenaMap: return Use::kMap;
    case Tag::kPeerBatch: return Use::kBatch;
    case Tag::kResume:  // of links over TCP between hosts: breaks_test.cc
    case Tag::kAck:
    case Tag::kJoin:
    case Tag::kWelcome:
    case Tag::kLog:
    case Tag::kProgress:
    case Tag::kTaskFailed:
    case Tag::kStuck:
    case Tag::kSubmit:
    case Tag::kSubmitReply:
    case Tag::kGraphProgress:
    case Tag::kGraphDone:
    case Tag::kReleaseArrays:
    case Tag::kCancelRequest:
    case Tag::kStatusRequest:
    case Tag::kStatusReply:
    case Tag::kShutdown:
    case Tag::kPing:
    case Tag::kPong:
    case Tag::kRefusal:
    case Tag::kExplain:
    case Tag::kExplanation:
    case Tag::kTraceRequest:
    case Tag::kTraceReply:
    case Tag::kHeld:
    case Tag::kResumed:
    case Tag::kBlocksRequest:
    case Tag::kBlocksReply:
    case Tag::kDrained:
    case Tag::kDrainRequest:
    case Tag::kDrainReply:
    case Tag::kLastWords:
    case Tag::kLeave:
    case Tag::kAnnounce:
    case Tag::kLinkProbe:
    case Tag::kLinkProbed: return Use::kNot;
  }
  return Use::kNot;
}

struct Site {
  std::unique_ptr<net::EventLoop> loop = make_loop();
  std::optional<Node> node, bystander;
  std::optional<ByHand> sender;

  Site() {
    Options plain = options_of();
    plain.ucx.transports = "tcp";  // quick to start
    Options other = plain;
    other.listen.clear();
    node.emplace(*loop, 2, std::move(plain));
    bystander.emplace(*loop, 3, std::move(other));
    REQUIRE(meet(*loop, *node, *bystander));
    sender.emplace(*loop, *node);
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); }
  std::size_t from(WorkerId peer) const {
    return static_cast<std::size_t>(std::count_if(node->batches.begin(), node->batches.end(),
                                                  [&](const auto& batch) { return batch.first == peer; }));
  }
  // The bystander's link works, and has been all the time.
  void check_bystander() {
    const std::size_t before = from(bystander->id);
    REQUIRE(bystander->exchange->send(node->id, grant_of(9)));
    until([&] { return from(bystander->id) > before; });
    CHECK(bystander->unreachable.empty());
    CHECK_FALSE(node->unreachable.contains(bystander->id));
  }
  void loses_its_link() {
    until([&] { return sender->closed && node->unreachable.contains(sender->id); });
    CHECK(node->why(sender->id) == Errc::kCorruptData);
    CHECK(node->exchange->counters().protocol_errors == 1);
  }
};

}  // namespace

TEST_CASE("from a stranger: it is kept until it is known who that is, or loses its link") {
  each_tag([](Tag tag) {
    Site s;
    s.sender->send(use_of(tag) == Use::kGreeting
                       ? msg::Message(msg::PeerHello{s.sender->id, s.node->id, s.node->host_id})
                       : empty_message(tag));
    if (use_of(tag) == Use::kGreeting) {
      s.check_bystander();
      CHECK_FALSE(s.sender->closed);
    } else {
      s.until([&] { return s.sender->closed; });
      s.check_bystander();
    }
    CHECK(s.node->unreachable.empty());
  });
}

TEST_CASE("in its place, and again") {
  each_tag([](Tag tag) {
    Site s;
    s.sender->settle();
    s.sender->send(msg::ArenaMap{});
    s.until([&] { return s.node->ready.contains(s.sender->id); });
    s.sender->send(empty_message(tag));
    switch (use_of(tag)) {
      case Use::kGreeting:
      case Use::kNot: s.loses_its_link(); break;
      case Use::kMap:
      case Use::kBatch:
        s.sender->send(empty_message(tag));
        s.sender->send(grant_of(1));
        s.until([&] { return s.from(s.sender->id) == (use_of(tag) == Use::kBatch ? 3 : 1); });
        CHECK_FALSE(s.sender->closed);
    }
    s.check_bystander();
  });
}

TEST_CASE("as the last word of a link that breaks, and after its peer was declared lost") {
  for (const bool declared : {false, true}) {
    CAPTURE(declared);
    each_tag([&](Tag tag) {
      Site s;
      s.sender->settle();
      s.sender->send(msg::ArenaMap{});
      s.until([&] { return s.node->ready.contains(s.sender->id); });
      if (declared) {
        s.node->exchange->peer_lost(s.sender->id);
        s.node->exchange->readers_done(s.sender->id);
      }
      const std::size_t before = s.from(s.sender->id);
      if (!s.sender->closed) s.sender->send(empty_message(tag));
      s.sender->link.reset();
      if (!declared) s.until([&] { return s.node->unreachable.contains(s.sender->id); });
      s.check_bystander();
      if (declared) CHECK(s.from(s.sender->id) == before);  // nothing of the dead is heard
    });
  }
}

TEST_CASE("from another life: over a new link of who was declared lost, whatever it says") {
  Site s;
  s.sender->settle();
  s.sender->send(msg::ArenaMap{});
  s.until([&] { return s.node->ready.contains(s.sender->id); });
  s.node->exchange->peer_lost(s.sender->id);
  s.node->exchange->readers_done(s.sender->id);
  s.node->exchange->peer_joined(s.sender->info());  // the scheduler's word, late
  const std::uint64_t closed_before = s.node->exchange->counters().strangers_closed;
  std::uint64_t links = 0;
  each_tag([&](Tag tag) {
    ByHand again(*s.loop, *s.node);
    again.hello();
    again.send(empty_message(tag));
    s.until([&] { return again.closed; });
    CHECK(again.frames == 0);
    CHECK(s.node->exchange->counters().strangers_closed == closed_before + ++links);
    CHECK(s.from(again.id) == 0);
    CHECK(s.node->exchange->counters().protocol_errors == 0);
    s.check_bystander();
  });
  CHECK(s.node->unreachable.empty());
}

TEST_CASE(
    "from another life: over a link that another has taken the place of, or that is older than the one there "
    "is") {
  each_tag([&](Tag tag) {
    Met m;
    const std::unique_ptr<net::Link> older = std::move(m.script.link);
    m.script.dial();
    m.script.greet(3, 2);
    m.script.until_heard(2);
    m.script.until([&] { return m.script.closed; });  // the older one
    CHECK(!m.script.send_over(*older, empty_message(tag)));
    std::unique_ptr<net::Link> latest = std::move(m.script.link);
    m.script.dial();
    m.script.greet(2, 2);  // it was on its way for too long
    m.script.send(empty_message(tag));
    m.script.until([&] { return m.script.closed; });
    CHECK(m.script.heard.empty());
    REQUIRE(m.script.send_over(*latest, grant_of(2)));
    m.script.until([&] { return m.node.batches.size() == 2; });
    CHECK(m.node.batches.back().second == grant_of(2));
    const Counters counters = m.node.exchange->counters();
    CHECK(counters.links == 1);
    CHECK(counters.breaks == 1);
    CHECK(counters.strangers_closed == 1);
    CHECK(counters.protocol_errors == 0);
    CHECK(m.node.unreachable.empty());
  });
}

// Whose greeting comes before it. (Of who was declared lost: above.)
enum class Greets {
  kForAnother,  // one that is awaited, but it looks for who lived where we do before us
  kSecond       // the sender, whose link is up: inside a host none takes its place
};

TEST_CASE(
    "for another life, or over a second link inside a host: it loses that link, and whoever lives keeps its "
    "own") {
  constexpr WorkerId kAwaited{17};
  for (const Greets greets : {Greets::kForAnother, Greets::kSecond}) {
    CAPTURE(static_cast<int>(greets));
    each_tag([&](Tag tag) {
      Site s;
      s.sender->settle();
      s.sender->send(msg::ArenaMap{});
      s.until([&] { return s.node->ready.contains(s.sender->id); });
      ByHand stale(*s.loop, *s.node);
      if (greets == Greets::kForAnother) {
        stale.id = kAwaited;
        msg::PeerInfo info = stale.info();
        info.addresses.clear();  // it is to connect
        s.node->exchange->peer_joined(info);
      }
      const WorkerId to = greets == Greets::kForAnother ? WorkerId{99} : s.node->id;
      stale.send(msg::PeerHello{stale.id, to, s.node->host_id});
      stale.send(empty_message(tag));
      stale.send(grant_of(1));
      s.until([&] { return stale.closed; });
      CHECK(stale.frames == 0);
      CHECK(s.from(s.sender->id) == 0);
      s.sender->send(grant_of(2));
      s.until([&] { return s.from(s.sender->id) > 0; });
      s.check_bystander();
      CHECK(s.from(s.sender->id) == 1);
      CHECK(s.from(kAwaited) == 0);
      CHECK_FALSE(s.sender->closed);
      CHECK_FALSE(s.node->ready.contains(kAwaited));
      CHECK(s.node->unreachable.empty());
      CHECK(s.node->exchange->counters().strangers_closed == 1);
      CHECK(s.node->exchange->counters().protocol_errors == 0);
      if (greets == Greets::kSecond) return;
      ByHand meant(*s.loop, *s.node);
      meant.id = kAwaited;
      meant.hello();
      s.until([&] { return meant.frames == 2; });
    });
  }
}

TEST_CASE("from another life: a greeting of somebody else costs its sender the link") {
  Site s;
  s.node->exchange->peer_joined(s.sender->info());
  s.sender->send(msg::PeerHello{WorkerId{17}, s.node->id, s.node->host_id});
  s.check_bystander();
  s.sender->send(msg::ArenaMap{});
  s.until([&] { return s.sender->closed; });
  CHECK_FALSE(s.node->ready.contains(s.sender->id));
  s.check_bystander();
}
