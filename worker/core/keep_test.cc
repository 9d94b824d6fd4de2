// Ops that keep copies (kKeep), as lists.
#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

ir::Op keep_of(std::uint64_t from, const ir::Grid& grid) {
  ir::Op op;
  op.kind = ir::OpKind::kKeep;
  op.space = grid;
  op.operands.push_back({from, ir::View::identity(grid.shape())});
  op.attrs = ir::FetchAttrs{};
  return op;
}

const ir::Grid kOne = source(20, 1).space;  // 64 bytes

// A held array of one block of the peer's, of which a copy is to be kept here.
struct Keeping : Lists {
  Keeping() {
    log({plan_of({on(kPeer, 2, source(20, 1)), on(kHere, 3, keep_of(20, kOne))}, {ArrayId{20}}, 2)});
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
  w.log({plan_of({on(kPeer, 2, source(20, 1)), on(kHere, 4, map_of(20, 30, kOne))},
                 {ArrayId{20}, ArrayId{30}}, 2)});
  msg::PeerBatch batch;
  batch.offers.push_back({{ArrayId{20}, 0}, OpId{4}, kPeer, kHere, 0, 0, 64});
  REQUIRE(w.from_peer(batch).launches.size() == 1);
  CHECK(w.actions.receives.empty());
  // Another reader is begun while the kernel runs; both find it in place.
  const Actions& asked = w.log({plan_of({on(kHere, 5, keep_of(20, kOne))}, {}, 3)});
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

TEST_CASE("memory for the blocks of a worker that leaves is asked for again and again, until it is there") {
  Lists w;
  bool has_memory = false;
  int asked = 0;
  // As Lists::step(), but the machine may have no memory.
  const auto step = [&](std::vector<Event> events) -> const Actions& {
    w.core->step(events, w.now, w.actions);
    w.core->check_invariants();
    if (w.actions.slabs.empty()) return w.actions;
    ++asked;
    std::vector<Event> answer{SlabAdded{0, w.actions.slabs[0].bytes, has_memory, false}};
    w.core->step(answer, w.now, w.actions);
    w.core->check_invariants();
    return w.actions;
  };
  w.log({plan_of({on(kPeer, 2, source(20, 1))}, {ArrayId{20}}, 2)});
  step({msg::Log{
      1, w.next, {msg::Drain{kOther, msg::DrainOrder::kMove, 1, {{ArrayId{20}, kPeer, kHere, {{0, 1}}}}}}}});
  CHECK(asked == 1);
  // No task starves for it, so nobody is told that it is stuck.
  const auto wait = [&]() -> const Actions& {
    const TimeNs next = w.core->next_deadline();
    REQUIRE(next < w.now + 5 * kSecond);
    w.now = std::max(w.now + 1, next);
    return step({});
  };
  for (int i = 0; i < 40; ++i) {
    const Actions& a = wait();
    CHECK(a.receives.empty());
    for (const msg::Message& m : a.to_scheduler) CHECK(!std::holds_alternative<msg::Stuck>(m));
  }
  CHECK(asked > 10);
  has_memory = true;
  for (int i = 0; i < 10 && w.actions.receives.empty(); ++i) wait();
  REQUIRE(w.actions.receives.size() == 1);
  const Actions& done =
      step({TransferDone{w.actions.receives[0].transfer, {Errc::kOk, {}}, msg::Lane::kTcp}});
  std::int64_t left = -1;
  for (const msg::Message& m : done.to_scheduler)
    if (const auto* drained = std::get_if<msg::Drained>(&m)) left = drained->left;
  CHECK(left == 0);
}
