// Ops that keep copies (kKeep), as lists.
#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

const ir::Grid kOneBlock = source(20, 1).space;  // 64 bytes

// A held array of one block of the peer's, of which a copy is to be kept here.
struct Keeping : Lists {
  Keeping() {
    log({plan_of({on(kPeer, 2, source(20, 1)), on(kHere, 3, keep_of(20, kOneBlock))}, {ArrayId{20}}, 2)});
  }
  const Actions& offer(std::uint64_t op) {
    msg::PeerBatch batch;
    msg::Offer offer{{ArrayId{20}, 0}, OpId{op}, kPeer, kHere, 0, 0, 64};
    batch.offers.push_back(offer);
    return from_peer(batch);
  }
  bool here() const {
    const msg::BlocksReply reply = core->blocks({1, ArrayId{20}, 0, 1});
    return reply.copies.size() == 1 && reply.copies[0].state == msg::BlockState::kHere;
  }
  // How much of the op is done, as told last; -1: nothing.
  std::int64_t told(const Actions& a, std::uint64_t op) const {
    for (const msg::Message& m : a.to_scheduler) {
      const auto* progress = std::get_if<msg::Progress>(&m);
      if (progress == nullptr) continue;
      for (const msg::OpProgress& p : progress->ops)
        if (p.op == OpId{op}) return p.completed;
    }
    return -1;
  }
};

}  // namespace

TEST_CASE("what is to be kept is copied though it could be read in place, and stays until its release") {
  Keeping w;
  const Actions& granted = w.offer(3);
  REQUIRE(granted.receives.size() == 1);  // not borrowed
  CHECK(granted.launches.empty());
  const Actions& done =
      w.step({TransferDone{granted.receives[0].transfer, {Errc::kOk, {}}, msg::Lane::kTcp}});
  CHECK(done.launches.empty());
  CHECK(w.told(done, 3) == 1);
  CHECK(w.here());
  SUBCASE("its release") { w.log({msg::Release{{ArrayId{20}}}}); }
  SUBCASE("the end of the op") {
    w.log({msg::Retire{{OpId{3}}}});
    w.step({});
  }
  SUBCASE("its cancellation") { w.log({msg::CancelGraph{GraphId{2}, {Errc::kCancelled, "x"}}}); }
  CHECK(w.core->counters().copies_live == 0);
}

TEST_CASE("what is read in place already is copied, and who reads it goes on") {
  Lists w;
  w.log({plan_of({on(kPeer, 2, source(20, 1)), on(kHere, 4, map_of(20, 30, kOneBlock))},
                 {ArrayId{20}, ArrayId{30}}, 2)});
  msg::PeerBatch batch;
  batch.offers.push_back({{ArrayId{20}, 0}, OpId{4}, kPeer, kHere, 0, 0, 64});
  REQUIRE(w.from_peer(batch).launches.size() == 1);
  CHECK(w.actions.receives.empty());
  // Another reader is begun while the kernel runs; both find it in place.
  const Actions& asked = w.log({plan_of({on(kHere, 5, keep_of(20, kOneBlock))}, {}, 3)});
  REQUIRE(asked.batches.size() == 1);
  REQUIRE(asked.batches.begin()->second.subscribes.size() == 1);
  CHECK(asked.batches.begin()->second.subscribes[0].op == OpId{5});
  msg::PeerBatch again;
  again.offers.push_back({{ArrayId{20}, 0}, OpId{5}, kPeer, kHere, 0, 0, 64});
  const Actions& granted = w.from_peer(again);
  REQUIRE(granted.receives.size() == 1);
  w.step({TransferDone{granted.receives[0].transfer, {Errc::kOk, {}}, msg::Lane::kTcp}});
  w.completed(1);
  const msg::BlocksReply reply = w.core->blocks({1, ArrayId{20}, 0, 1});
  REQUIRE(reply.copies.size() == 1);
  CHECK(reply.copies[0].state == msg::BlockState::kHere);
  w.log({msg::Release{{ArrayId{20}, ArrayId{30}}}});
  CHECK(w.core->counters().copies_live == 0);
}

TEST_CASE("a copy that is kept outlives its owner, and is its heir when the scheduler says so") {
  Keeping w;
  const std::uint64_t transfer = w.offer(3).receives.at(0).transfer;
  w.step({TransferDone{transfer, {Errc::kOk, {}}, msg::Lane::kTcp}});
  const Actions& lost = w.log({msg::PeerLost{kOther, 1, {OpId{2}}}});
  const msg::Held* held = nullptr;
  for (const msg::Message& m : lost.to_scheduler)
    if (const auto* h = std::get_if<msg::Held>(&m)) held = h;
  REQUIRE(held != nullptr);
  REQUIRE(held->blocks.size() == 1);
  CHECK(held->blocks[0].sealed == std::vector<msg::Range>{{0, 1}});
  msg::PlannedOp heir{OpId{9}, source(20, 1), ir::Placement::of_runs({1}, {{0, 1, kHere}}), true, OpId{2}};
  heir.op.kind = ir::OpKind::kProvide;
  heir.op.attrs = ir::FetchAttrs{kHere};
  w.log({msg::Recover{1, {plan_of({heir}, {}, 2)}}});
  CHECK(w.here());
  w.log({msg::Retire{{OpId{3}}}});  // it is the owner's now
  CHECK(w.here());
  w.log({msg::Release{{ArrayId{20}}}});
  CHECK(w.core->counters().copies_live == 0);
}

TEST_CASE("of an array that was released meanwhile nothing is kept") {
  Keeping w;
  w.log({msg::Release{{ArrayId{20}}}});
  const Actions& done = w.offer(3);
  CHECK(done.receives.empty());
  CHECK(w.told(done, 3) == 1);
  CHECK(w.core->counters().copies_live == 0);
}

namespace {

// A block of a worker that leaves is to be kept here, where the machine may have no memory.
struct Short : Lists {
  Short() {
    log({plan_of({on(kPeer, 2, source(20, 1))}, {ArrayId{20}}, 2)});
    ask({msg::Drain{kOther, msg::DrainOrder::kMove, 1, {{ArrayId{20}, kPeer, kHere, {{0, 1}}}}}});
    CHECK(asked == 1);
  }
  const Actions& ask(std::vector<msg::LogEntry> entries) {
    msg::Log log{1, next, std::move(entries)};
    next += log.entries.size();
    return once({log});
  }
  // As Lists::step(), but for the memory.
  const Actions& once(std::vector<Event> events) {
    core->step(events, now, actions);
    core->check_invariants();
    for (const msg::Message& m : actions.to_scheduler)
      if (const auto* said = std::get_if<msg::Stuck>(&m)) ++stuck, refused = said->refused;
    if (actions.slabs.empty()) return actions;
    ++asked;
    std::vector<Event> answer{SlabAdded{0, actions.slabs[0].bytes, has_memory, false, refusal}};
    core->step(answer, now, actions);
    core->check_invariants();
    return actions;
  }
  const Actions& wait() {
    const TimeNs due = core->next_deadline();
    REQUIRE(due < now + 6 * kSecond);
    now = std::max(now + 1, due);
    return once({});
  }
  bool has_memory = false;
  int asked = 0;
  int stuck = 0;
  const Error refusal{Errc::kLimitExceeded, "no file descriptor"};
  msg::Outcome refused;
};

}  // namespace

TEST_CASE("memory for the blocks of a worker that leaves is asked for again and again, until it is there") {
  Short w;
  for (int i = 0; i < 40; ++i) CHECK(w.wait().receives.empty());
  CHECK(w.asked > 10);
  CHECK(w.stuck == 0);  // no task starves for it
  w.has_memory = true;
  for (int i = 0; i < 10 && w.actions.receives.empty(); ++i) w.wait();
  REQUIRE(w.actions.receives.size() == 1);
  const Actions& done =
      w.once({TransferDone{w.actions.receives[0].transfer, {Errc::kOk, {}}, msg::Lane::kTcp}});
  std::int64_t left = -1;
  for (const msg::Message& m : done.to_scheduler)
    if (const auto* drained = std::get_if<msg::Drained>(&m)) left = drained->left;
  CHECK(left == 0);
}

TEST_CASE(
    "a task that starves beside such blocks is told of, and when it has gone they are asked for again") {
  Short w;
  w.ask({plan_of({on(kHere, 3, source(30, 1))}, {ArrayId{30}}, 3)});
  const TimeNs since = w.now;
  for (int i = 0; i < 100 && w.stuck == 0; ++i) w.wait();
  CHECK(w.stuck == 1);
  CHECK(w.refused == msg::Outcome{Errc::kLimitExceeded, "no file descriptor"});  // why it has no memory
  CHECK(w.now < since + 10 * kSecond);
  w.ask({msg::CancelGraph{GraphId{3}, {Errc::kOutOfMemory, "it is stuck"}}});
  const int before = w.asked;
  for (int i = 0; i < 40; ++i) w.wait();
  CHECK(w.asked > before + 10);
  CHECK(w.stuck == 1);
}

TEST_CASE(
    "a worker stays after all: who waits for its block asks the owner again, not who had a second copy") {
  constexpr WorkerId kLeaver{9};
  constexpr DeviceId kOwner{7}, kKeeper{8};  // both the leaver's
  Short w;                                   // without memory for what is to be kept
  const msg::DeviceDesc host{.name = "host:0"};
  w.ask({msg::PeerJoined{
      {kLeaver, msg::Role::kWorker, "leaver", "host", {}, {kOwner, kKeeper}, {host, host}}}});
  w.once({PeerReady{kLeaver, true}});
  const auto asked_at = [&]() -> std::vector<DeviceId> {
    std::vector<DeviceId> out;
    for (const auto& [peer, batch] : w.actions.batches) {
      for (const msg::Subscribe& s : batch.subscribes)
        if (peer == kLeaver) out.push_back(s.from);
    }
    return out;
  };
  w.ask({plan_of({on(kOwner, 4, source(21, 1)), on(kHere, 5, map_of(21, 31, source(21, 1).space))},
                 {ArrayId{21}, ArrayId{31}}, 3)});
  CHECK(asked_at() == std::vector{kOwner});
  w.ask({msg::Drain{kLeaver, msg::DrainOrder::kMove, 1, {{ArrayId{21}, kKeeper, kHere, {{0, 1}}}}}});
  CHECK(w.actions.receives.empty());
  w.ask({msg::Drain{kLeaver, msg::DrainOrder::kGoOn, 2, {}}});
  CHECK(asked_at() == std::vector{kOwner});
}
