// Every entry of the log and every word of peers: twice, late, from an older life, and lost. One case a kind; a new kind does not
// compile until it has one (-Werror=switch).
#include <doctest/doctest.h>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

enum class Kind : std::size_t {
  kPlan,
  kRelease,
  kCancelGraph,
  kRetire,
  kPeerJoined,
  kPeerLost,
  kRecover,
  kReplay,
  kForgetPlans,
  kDrain
};
constexpr std::size_t kKinds = std::variant_size_v<msg::LogEntry::variant>;
static_assert(static_cast<std::size_t>(Kind::kDrain) + 1 == kKinds,
              "name the new entry here, and give it a case");

// A plan that is kept, one under way that reads a block of the peer's, and one that is over.
struct Busy : Lists {
  Busy() {
    msg::Plan kept = plan_of({on(kHere, 1, source(10, 2))}, {ArrayId{10}}, 1);
    kept.keep_as = 7;
    log({kept, plan_of({on(kPeer, 2, source(20, 2))}, {ArrayId{20}}, 2)});
    completed(2);
    log({plan_of({on(kHere, 3, map_of(20, 30, source(20, 2).space))}, {ArrayId{30}}, 3)});
  }
  msg::LogEntry sample(Kind kind) const {
    switch (kind) {
      case Kind::kPlan: return plan_of({on(kHere, 9, source(40, 2))}, {ArrayId{40}}, 4);
      case Kind::kRelease: return msg::Release{{ArrayId{10}}};
      case Kind::kCancelGraph: return msg::CancelGraph{GraphId{3}, {Errc::kCancelled, "x"}};
      case Kind::kRetire: return msg::Retire{{OpId{1}}};
      case Kind::kPeerJoined:
        return msg::PeerJoined{{WorkerId{9}, msg::Role::kWorker, "new", "host", {}, {DeviceId{9}}, {}}};
      case Kind::kPeerLost: return msg::PeerLost{kOther, 1, {OpId{2}, OpId{3}}};
      case Kind::kRecover: return msg::Recover{1, {}};
      case Kind::kReplay: return msg::Replay{7, GraphId{5}, 0, OpId{15}, ArrayId{50}, {}, {}, 100};
      case Kind::kForgetPlans: return msg::ForgetPlans{{7}};
      case Kind::kDrain: return msg::Drain{kSelf, msg::DrainOrder::kStop, 4, {}};
    }
    return msg::Retire{};
  }
  // What there is, and what would be seen of it; counts of stale messages left out.
  std::string state() const {
    const Counters c = core->counters();
    return core->describe() + std::to_string(c.launches) + " " + std::to_string(c.tasks_done) + " " +
           std::to_string(c.tasks_failed) + " " + std::to_string(c.copies_live);
  }
};

bool silent(const Actions& a) {
  return a.launches.empty() && a.transmits.empty() && a.receives.empty() && a.stores.empty() &&
         a.probe_receives.empty() && a.probe_sends.empty() && a.joined.empty() && a.lost.empty() &&
         !a.leave && std::all_of(a.to_scheduler.begin(), a.to_scheduler.end(), [](const msg::Message& m) {
           return std::holds_alternative<msg::Progress>(m);
         });
}

template <class Fn> void for_each_kind(Fn&& fn) {
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    Busy w;
    const msg::LogEntry entry = w.sample(static_cast<Kind>(kind));
    REQUIRE(entry.index() == kind);
    CAPTURE(kind);
    fn(w, entry);
  }
}

}  // namespace

TEST_CASE("every log entry twice, and late: only the first counts") {
  for_each_kind([](Busy& w, const msg::LogEntry& entry) {
    const msg::Log log{1, w.next, {entry}};
    w.log({entry});
    const std::string once = w.state();
    CHECK(silent(w.step({log})));
    CHECK(w.state() == once);
    for (std::uint64_t i = 0; i < 40; ++i) w.log({msg::Retire{{OpId{100 + i}}}});
    const std::string later = w.state();
    CHECK(silent(w.step({log})));
    CHECK(w.state() == later);
  });
}

TEST_CASE("every log entry of an older scheduler: nobody obeys") {
  for_each_kind([](Busy& w, const msg::LogEntry& entry) {
    const std::string before = w.state();
    CHECK(silent(w.step({msg::Log{0, w.next, {entry}}})));
    CHECK(w.state() == before);
  });
}

TEST_CASE("every log entry lost on its first way: what follows waits for it") {
  for_each_kind([](Busy& w, const msg::LogEntry& entry) {
    Busy in_order;
    const msg::LogEntry next = plan_of({on(kHere, 50, source(60, 1))}, {ArrayId{60}}, 9);
    in_order.log({entry, next});
    const std::string before = w.state();
    CHECK(silent(w.step({msg::Log{1, w.next + 1, {next}}})));
    CHECK(w.state() == before);
    w.step({msg::Log{1, w.next, {entry}}});
    CHECK(w.state() == in_order.state());
  });
}

// ---- between peers -------------------------------------------------------------------------------------------------

namespace {

enum class Word {
  kSubscribe,
  kElsewhere,
  kOffer,
  kGrant,
  kHas,
  kDeclined,
  kOver,
  kMissing,
  kDone,
  kGone,
  kProbe
};
static_assert(msg::kRelayWordCount == 4, "name the new word here, and give it a case");
// Another list of words does not compile until there is a case for them.
[[maybe_unused]] void lists_of(const msg::PeerBatch& batch) {
  [[maybe_unused]] const auto& [recovery, subscribes, offers, grants, relays, dones, gones, probes] = batch;
}

// The peer reads what is made here, and this worker what the peer makes.
struct Talking : Busy {
  Talking() {
    log({plan_of({on(kPeer, 4, map_of(10, 70, source(10, 2).space))}, {}, 6)});
    step({PeerReady{kOther, false}});  // nothing is read in place: bytes are sent
  }
  msg::PeerBatch sample(Word word) {
    msg::PeerBatch batch;
    const msg::BlockRef mine{ArrayId{10}, 0}, theirs{ArrayId{20}, 0};
    switch (word) {
      case Word::kSubscribe: batch.subscribes = {{mine, OpId{4}, kHere, kPeer}}; break;
      case Word::kElsewhere: batch.subscribes = {{mine, OpId{4}, kHere, kPeer, kHere}}; break;
      case Word::kOffer: {
        msg::Offer offer;
        offer.block = theirs, offer.op = OpId{3}, offer.from = kPeer, offer.to = kHere;
        offer.slab = msg::kNoSlab, offer.bytes = 64;
        batch.offers = {offer};
        break;
      }
      case Word::kGrant: batch.grants = {{mine, kHere, kPeer, 5}}; break;
      case Word::kHas: batch.relays = {{mine, kPeer, kHere, msg::RelayWord::kHas}}; break;
      case Word::kDeclined: batch.relays = {{mine, kPeer, kHere, msg::RelayWord::kDeclined}}; break;
      case Word::kOver: batch.relays = {{theirs, kPeer, kHere, msg::RelayWord::kOver}}; break;
      case Word::kMissing: batch.relays = {{theirs, kPeer, kHere, msg::RelayWord::kMissing, 5}}; break;
      case Word::kDone: batch.dones = {{mine, OpId{4}, kHere, kPeer}}; break;
      case Word::kGone: batch.gones = {{theirs, kPeer, kHere}}; break;
      case Word::kProbe: batch.probes = {{kHere, kPeer, 6, 4096}}; break;
    }
    return batch;
  }
};

template <class Fn> void for_each_word(Fn&& fn) {
  for (int word = 0; word <= static_cast<int>(Word::kProbe); ++word) {
    CAPTURE(word);
    Talking w;
    fn(w, static_cast<Word>(word));
  }
}

}  // namespace

TEST_CASE("every word of a peer twice: the second time nothing changes") {
  for_each_word([](Talking& w, Word word) {
    w.from_peer(w.sample(word));
    const std::string once = w.state();
    const Actions& again = w.from_peer(w.sample(word));
    CHECK(w.state() == once);
    CHECK(again.launches.empty());
    CHECK(again.receives.empty());  // a repeated Grant is answered again: the bytes go nowhere
  });
}

TEST_CASE("every word of a peer late: its op is over and its arrays are gone") {
  for_each_word([](Talking& w, Word word) {
    const msg::PeerBatch batch = w.sample(word);
    w.from_peer([&] {
      msg::PeerBatch done;
      for (std::int64_t b = 0; b < 2; ++b) done.dones.push_back({{ArrayId{10}, b}, OpId{4}, kHere, kPeer});
      return done;
    }());
    w.log({msg::CancelGraph{GraphId{3}, {Errc::kCancelled, "x"}},
           msg::Release{{ArrayId{10}, ArrayId{20}, ArrayId{30}}},
           msg::Retire{{OpId{1}, OpId{2}, OpId{3}, OpId{4}}}});
    for (int i = 0; i < 3; ++i) w.step({});
    CHECK(w.core->counters().copies_live == 0);
    const std::string before = w.state();
    const Actions& after = w.from_peer(batch);
    CHECK(after.transmits.empty());
    CHECK(after.receives.empty());
    CHECK(w.state() == before);
    CHECK(w.core->counters().parked == 0);
  });
}

TEST_CASE("every word of a dead incarnation: nobody listens") {
  for_each_word([](Talking& w, Word word) {
    w.log({msg::PeerLost{kOther, 1, {OpId{2}, OpId{3}}}});
    const std::string before = w.state();
    CHECK(silent(w.from_peer(w.sample(word))));
    CHECK(w.state() == before);
  });
}

// Links lose nothing while they are up, so what is lost is lost with its sender, the word or what would have followed it: then a
// recovery says what comes instead.
TEST_CASE(
    "every word of a peer lost with it: whoever waited learns what comes instead, and nothing is left over") {
  for (const bool arrived : {false, true}) {
    CAPTURE(arrived);
    for_each_word([&](Talking& w, Word word) {
      if (word == Word::kGrant) w.from_peer(w.sample(Word::kSubscribe));
      if (arrived) w.from_peer(w.sample(word));
      w.log({msg::PeerLost{kOther, 1, {OpId{2}, OpId{3}}}});
      w.log({msg::Recover{1, {}}});
      w.core->check_invariants();
      w.log({msg::Release{{ArrayId{10}, ArrayId{20}, ArrayId{30}}},
             msg::CancelGraph{GraphId{6}, {Errc::kCancelled, "x"}},
             msg::Retire{{OpId{1}, OpId{2}, OpId{3}, OpId{4}}}});
      for (int i = 0; i < 3; ++i) w.step({});
      CHECK(w.core->counters().tasks_live == 0);
      CHECK(w.core->counters().copies_live == 0);
    });
  }
}

TEST_CASE(
    "words of peers about ops to come wait each for its own, up to so many, and then end their worker") {
  constexpr std::int64_t kMost = 1 << 20;
  Lists lists;
  const ir::Op a = source(10, 1), b = source(11, 1);
  lists.log({plan_of({on(kHere, 1, a)}, {ArrayId{10}})});
  const auto subscribes = [&](std::uint64_t op, std::uint64_t array, std::int64_t times) {
    msg::PeerBatch batch;
    batch.subscribes.assign(static_cast<std::size_t>(times),
                            {{ArrayId{array}, 0}, OpId{op}, kHere, kPeer, {}});
    return batch;
  };
  lists.from_peer(subscribes(9, 11, 1));
  lists.from_peer(subscribes(7, 10, 1));
  lists.from_peer(subscribes(3, 10, 1));
  CHECK(lists.core->counters().parked == 3);
  lists.log({plan_of({on(kHere, 2, b)}, {ArrayId{11}}, 2)});
  CHECK(lists.core->counters().parked == 3);  // of none of them
  lists.log({plan_of({on(kPeer, 3, map_of(10, 12, a.space))}, {}, 3)});
  CHECK(lists.core->counters().parked == 2);
  const std::int64_t stale = lists.core->counters().stale;
  lists.log({plan_of({on(kPeer, 9, map_of(11, 13, b.space))}, {}, 4)});  // 7 is nobody's here
  CHECK(lists.core->counters().parked == 0);
  CHECK(lists.core->counters().stale == stale + 1);
  CHECK_FALSE(lists.from_peer(subscribes(20, 10, kMost)).broken);
  CHECK(lists.core->counters().parked == kMost);
  const std::optional<Error> broken = lists.from_peer(subscribes(21, 10, 1)).broken;
  REQUIRE(broken);
  CHECK(broken->code == Errc::kLimitExceeded);
  CHECK_MESSAGE(broken->message.find("op 20") != std::string::npos, broken->message);
}
