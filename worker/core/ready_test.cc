// In which order tasks that could run are launched: by what their readers' levels say (msg::PlannedOp::level_ns).
#include "lists.h"

namespace tilewise::worker::test {
namespace {

constexpr std::int64_t kExtent = 16'384;  // elements of a block: 128 KiB

msg::PlannedOp at_level(msg::PlannedOp op, std::int64_t level_ns) {
  op.level_ns = level_ns;
  return op;
}

// Of a stream that holds one step at a time, what runs after `steps` have.
OpId next_after(Lists& lists, std::uint64_t steps) {
  const Actions& actions = lists.completed(steps);
  REQUIRE(actions.launches.size() == 1);
  return actions.launches[0].run.id;
}

TEST_CASE("of two readers of a block the one that the longer path needs is launched first, in replays too") {
  Lists lists(1 << 24, 1);
  const ir::Op made = source(10, 1, kExtent);
  const ir::Grid grid = made.space;
  msg::Plan plan = plan_of(
      {on(kHere, 1, made), on(kHere, 2, map_of(10, 11, grid)), on(kHere, 3, map_of(10, 12, grid)),
       at_level(on(kHere, 4, map_of(11, 13, grid)), 5), at_level(on(kHere, 5, map_of(12, 14, grid)), 50)});
  plan.keep_as = 7;
  lists.log({plan});
  CHECK(next_after(lists, 1) == OpId{3});
  CHECK(next_after(lists, 2) == OpId{5});  // it lets go of what has just been made; op 2 only makes more
  CHECK(next_after(lists, 3) == OpId{2});
  CHECK(next_after(lists, 4) == OpId{4});
  lists.completed(5);
  CHECK(lists.core->counters().copies_live == 0);
  lists.log({msg::Replay{7, GraphId{2}, 0, OpId{11}, ArrayId{20}, {}, {}, 100}});
  CHECK(next_after(lists, 6) == OpId{13});
}

TEST_CASE(
    "what somebody elsewhere waits for goes first while memory is not short, then what lets go of some "
    "does") {
  for (const bool is_short : {false, true}) {
    CAPTURE(is_short);
    Lists lists(is_short ? 4 * kExtent * 8 - 4096 : 1 << 24, 1);
    const ir::Op both = pair_of(10, kExtent);
    const ir::Grid grid = both.space;
    lists.log({plan_of(
        {on(kHere, 1, both), on(kHere, 2, map_of(10, 12, grid)), on(kHere, 3, map_of(11, 13, grid)),
         at_level(on(kPeer, 4, map_of(12, 14, grid)), 90), at_level(on(kHere, 5, map_of(13, 15, grid)), 1)},
        {ArrayId{10}})});
    CHECK(next_after(lists, 1) == OpId{is_short ? 3u : 2u});
  }
}

}  // namespace
}  // namespace tilewise::worker::test
