// Every message over a link between peers: from a stranger, from one that is gone, from or for another incarnation, in its place, twice, and as
// the last word of a link that breaks. What is not for peers costs its sender its link, and nobody else anything. (What messages with a meaning do is the worker
// core's: worker/core/messages_test.cc.)
#include "by_hand.h"

#include "message_tags.h"

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;
using tilewise::testing::empty_message;
using tilewise::testing::kTags;
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
  for (std::size_t tag = 0; tag < kTags; ++tag) {
    CAPTURE(msg::name_of(empty_message(tag)));
    Site s;
    s.sender->send(use_of(static_cast<Tag>(tag)) == Use::kGreeting
                       ? msg::Message(msg::PeerHello{s.sender->id, s.node->id, s.node->host_id})
                       : empty_message(tag));
    if (use_of(static_cast<Tag>(tag)) == Use::kGreeting) {
      s.check_bystander();
      CHECK_FALSE(s.sender->closed);
    } else {
      s.until([&] { return s.sender->closed; });
      s.check_bystander();
    }
    CHECK(s.node->unreachable.empty());
  }
}

TEST_CASE("in its place, and again") {
  for (std::size_t tag = 0; tag < kTags; ++tag) {
    CAPTURE(msg::name_of(empty_message(tag)));
    Site s;
    s.sender->settle();
    s.sender->send(msg::ArenaMap{});
    s.until([&] { return s.node->ready.contains(s.sender->id); });
    s.sender->send(empty_message(tag));
    switch (use_of(static_cast<Tag>(tag))) {
      case Use::kGreeting:
      case Use::kNot: s.loses_its_link(); break;
      case Use::kMap:
      case Use::kBatch:
        s.sender->send(empty_message(tag));
        s.sender->send(grant_of(1));
        s.until(
            [&] { return s.from(s.sender->id) == (use_of(static_cast<Tag>(tag)) == Use::kBatch ? 3 : 1); });
        CHECK_FALSE(s.sender->closed);
    }
    s.check_bystander();
  }
}

TEST_CASE("as the last word of a link that breaks, and after its peer was declared lost") {
  for (const bool declared : {false, true}) {
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      CAPTURE(declared);
      CAPTURE(msg::name_of(empty_message(tag)));
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
    }
  }
}

// Whose greeting comes before it.
enum class Greets {
  kLost,     // one that lived at the sender's address before it, and was declared lost
  kAnother,  // one that is awaited, but it looks for who lived where we do before us
  kSecond    // the sender, whose link is up
};

constexpr WorkerId kStale{17};

TEST_CASE("from another incarnation, or for one: it loses that link, and whoever lives keeps its own") {
  for (const Greets greets : {Greets::kLost, Greets::kAnother, Greets::kSecond}) {
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      CAPTURE(static_cast<int>(greets));
      CAPTURE(msg::name_of(empty_message(tag)));
      Site s;
      s.sender->settle();
      s.sender->send(msg::ArenaMap{});
      s.until([&] { return s.node->ready.contains(s.sender->id); });
      ByHand stale(*s.loop, *s.node);
      if (greets != Greets::kSecond) {
        stale.id = kStale;
        msg::PeerInfo info = stale.info();
        info.addresses.clear();  // it is to connect
        s.node->exchange->peer_joined(info);
      }
      if (greets == Greets::kLost)
        s.node->exchange->peer_lost(kStale), s.node->exchange->readers_done(kStale);
      const WorkerId to = greets == Greets::kAnother ? WorkerId{99} : s.node->id;
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
      CHECK(s.from(kStale) == 0);
      CHECK_FALSE(s.sender->closed);
      CHECK_FALSE(s.node->ready.contains(kStale));
      CHECK(s.node->unreachable.empty());
      CHECK(s.node->exchange->counters().strangers_closed == 1);
      CHECK(s.node->exchange->counters().protocol_errors == 0);
      if (greets != Greets::kAnother) continue;
      ByHand meant(*s.loop, *s.node);
      meant.id = kStale;
      meant.hello();
      s.until([&] { return meant.frames == 2; });
    }
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
