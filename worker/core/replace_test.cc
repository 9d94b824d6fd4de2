// Points that a device was to make and others make: what is taken back, what is told, what is no longer waited for.
#include <doctest/doctest.h>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

// Op `of`'s points from `first` on are made by `id` on the peer.
msg::Recover moved(std::uint64_t version, std::uint64_t id, std::uint64_t of, const ir::Op& op,
                   std::int64_t first, DeviceId to = kPeer) {
  msg::PlannedOp layer{OpId{id}, op, {}, false, OpId{of}};
  layer.placement = ir::Placement::of_runs(op.space.counts(), {{first, op.space.block_count() - first, to}});
  return {version, {plan_of({std::move(layer)})}, {{OpId{of}, kHere, first}}};
}

std::vector<msg::Done> dones(const Actions& actions) {
  std::vector<msg::Done> out;
  for (const auto& [to, batch] : actions.batches)
    out.insert(out.end(), batch.dones.begin(), batch.dones.end());
  return out;
}

std::size_t points_run(const Actions& actions, std::uint64_t op) {
  return static_cast<std::size_t>(std::count_if(actions.launches.begin(), actions.launches.end(),
                                                [&](const Launch& l) { return l.run.id == OpId{op}; }));
}

}  // namespace

TEST_CASE("what has not begun is held back while the scheduler asks, and goes on where it is not moved") {
  Lists lists(1 << 20, 2);  // two steps at a time
  const ir::Op a = source(10, 6);
  CHECK(lists.log({plan_of({on(kHere, 1, a)}, {ArrayId{10}})}).launches.size() == 2);
  lists.log({msg::PeerLost{{}, 1, {OpId{1}}, {{OpId{1}, kHere, 3}}}});
  const msg::Held* held = told(lists.actions);
  REQUIRE(held != nullptr);
  REQUIRE(held->shares.size() == 1);
  CHECK(held->shares[0].next ==
        3);  // all six had been expanded: three are taken back, one more was asked to stay
  CHECK(held->shares[0].begun == std::vector<msg::Range>{{0, 3}});
  CHECK(lists.core->counters().taken_back == 3);
  CHECK(points_run(lists.completed(2), 1) == 1);
  CHECK(lists.completed(3).launches.empty());  // held
  SUBCASE("and nothing was moved") {
    CHECK(points_run(lists.log({msg::Recover{1, {}}}), 1) == 2);
    CHECK(points_run(lists.completed(5), 1) == 1);
    lists.completed(6);
    CHECK(lists.core->holds({ArrayId{10}, 5}));
  }
  SUBCASE("and the end of it was") {
    CHECK(points_run(lists.log({moved(1, 9, 1, a, 4)}), 1) == 1);
    lists.completed(4);
    CHECK(lists.core->counters().tasks_done == 4);
    CHECK(lists.core->counters().given_away == 2);
    CHECK(lists.core->holds({ArrayId{10}, 3}));
    CHECK(!lists.core->holds({ArrayId{10}, 4}));
    CHECK(lists.core->counters().tasks_live == 0);
  }
  SUBCASE("and the graph was cancelled meanwhile") {
    lists.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "no more"}}, msg::Recover{1, {}}});
    CHECK(lists.core->counters().tasks_live == 0);
  }
}

TEST_CASE(
    "a device reads from others what they make of its share, and discharges what that would have read") {
  Lists lists(1 << 20, 1);
  const ir::Op a = source(10, 4), b = map_of(10, 20, a.space), c = map_of(20, 30, a.space);
  // The peer makes a; this device b of it and c of b.
  lists.log({plan_of({on(kPeer, 1, a), on(kHere, 2, b), on(kHere, 3, c)}, {ArrayId{30}})});
  lists.log({msg::PeerLost{{}, 1, {OpId{1}, OpId{2}}, {{OpId{2}, kHere, 1}}}});
  const msg::Held* held = told(lists.actions);
  REQUIRE(held != nullptr);
  REQUIRE(!held->shares.empty());
  CHECK(held->shares[0] == msg::Held::Share{OpId{2}, kHere, 1, {{0, 1}}});
  const Actions& actions = lists.log({moved(1, 9, 2, b, 1)});
  // Blocks 1 to 3 of a are not read here for op 2 any more ...
  const std::vector<msg::Done> done = dones(actions);
  REQUIRE(done.size() == 3);
  for (std::int64_t block = 1; block < 4; ++block)
    CHECK(done[static_cast<std::size_t>(block) - 1] ==
          msg::Done{{ArrayId{10}, block}, OpId{2}, kPeer, kHere});
  // ... and those of b come from the peer.
  REQUIRE(actions.batches.size() == 1);
  CHECK(actions.batches[0].second.recovery ==
        1);  // it does not let go of them before it knows who reads them now
  std::size_t wishes = 0;
  for (const msg::Subscribe& s : actions.batches[0].second.subscribes) wishes += s.block.array == ArrayId{20};
  CHECK(wishes == 3);
  msg::PeerBatch offers;
  offers.recovery = 1;
  offers.offers.push_back({{ArrayId{10}, 0}, OpId{2}, kPeer, kHere, 0, 0, 64, {}, false, {}});
  for (std::int64_t block = 1; block < 4; ++block)
    offers.offers.push_back({{ArrayId{20}, block}, OpId{3}, kPeer, kHere, 0, 64 * block, 64, {}, false, {}});
  lists.from_peer(offers);
  for (std::uint64_t i = 1; i <= 5; ++i) lists.completed(i);
  CHECK(lists.core->counters().tasks_done == 5);  // one of b, four of c
  CHECK(lists.core->counters().tasks_failed == 0);
  lists.log({msg::Release{{ArrayId{30}}}});
  lists.step({});
  CHECK(lists.core->counters().copies_live == 0);
}

TEST_CASE(
    "who has waited here for what others make now is not remembered, and a later copy counts what is left") {
  Lists lists(1 << 20, 1);
  const ir::Op a = source(10, 4), b = map_of(10, 20, a.space);
  lists.log({plan_of({on(kHere, 1, a), on(kPeer, 2, b)})});
  msg::PeerBatch wish;
  for (std::int64_t block = 0; block < 4; ++block)
    wish.subscribes.push_back({{ArrayId{10}, block}, OpId{2}, kHere, kPeer});
  lists.from_peer(wish);
  lists.log({msg::PeerLost{{}, 1, {OpId{1}}, {{OpId{1}, kHere, 0}}}});
  lists.log({moved(1, 9, 1, a, 2)});
  std::size_t offered = 0;
  for (std::uint64_t i = 1; i <= 2; ++i) {
    for (const auto& [to, batch] : lists.completed(i).batches) offered += batch.offers.size();
  }
  CHECK(offered == 2);
  msg::PeerBatch done;
  done.recovery = 1;
  for (std::int64_t block = 0; block < 2; ++block)
    done.dones.push_back({{ArrayId{10}, block}, OpId{2}, kHere, kPeer});
  lists.from_peer(done);
  CHECK(lists.core->counters().copies_live == 0);
  lists.from_peer(wish);  // late, from before
  CHECK(lists.core->counters().copies_live == 0);
}

TEST_CASE("of what is moved here no more is expanded than others may read at once") {
  Options options = Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 1, false}, 1);
  options.window = 512;
  Lists lists(options);
  constexpr std::int64_t kRows = 400, kPanels = 300;
  const auto array = [](std::uint64_t id, std::int64_t rows, std::int64_t columns) {
    ir::Op op = source(id, 1);
    op.space = *ir::Grid::uniform({rows, columns}, {1, 1});
    op.outputs[0].grid = op.space;
    return op;
  };
  const ir::Op a = array(10, kRows, kPanels), b = array(11, kPanels, 1);
  ir::Op c = array(12, kRows, 1);
  c.kind = ir::OpKind::kMatmul;
  c.operands = {{10, ir::View::identity(a.space.shape())}, {11, ir::View::identity(b.space.shape())}};
  c.attrs = ir::MatmulAttrs{};
  lists.log({plan_of({on(kPeer, 1, a), on(kPeer, 2, b), on(kPeer, 3, c)}, {ArrayId{12}})});
  REQUIRE(lists.core->counters().tasks_live == 0);
  lists.log({msg::PeerLost{{}, 1, {OpId{3}}, {{OpId{3}, kPeer, 0}}}});
  msg::PlannedOp layer{OpId{9}, c, {}, false, OpId{3}};
  layer.placement = ir::Placement::of_runs(c.space.counts(), {{0, kRows, kHere}});
  lists.log({msg::Recover{1, {plan_of({std::move(layer)})}, {{OpId{3}, kPeer, 0}}}});
  CHECK(lists.core->counters().tasks_live > 0);
  CHECK(lists.core->counters().tasks_live * 2 * kPanels < 70'000);
}

TEST_CASE("what cannot be is not believed") {
  Lists lists(1 << 20, 1);
  const ir::Op a = source(10, 4);
  lists.log({plan_of({on(kHere, 1, a)}, {ArrayId{10}})});
  lists.completed(1);
  lists.log(
      {msg::PeerLost{{}, 1, {OpId{1}}, {{OpId{7}, kHere, 0}, {OpId{1}, kPeer, 0}, {OpId{1}, kHere, -1}}}});
  msg::Recover none{1, {}};
  none.moved = {{OpId{7}, kHere, 0}, {OpId{1}, kPeer, 0}, {OpId{1}, kHere, 0}, {OpId{1}, kHere, 4}};
  lists.log({none});
  for (std::uint64_t i = 2; i <= 4; ++i) lists.completed(i);
  CHECK(lists.core->counters().tasks_done == 4);
  CHECK(lists.core->counters().given_away == 0);
}
