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

TEST_CASE(
    "of steps that take much longer than predicted a stream holds two, until they are as predicted again") {
  Lists lists(1 << 24);
  std::vector<msg::PlannedOp> chain{on(kHere, 1, source(10, 1))};
  for (std::uint64_t i = 1; i < 200; ++i)
    chain.push_back(on(kHere, 1 + i, map_of(9 + i, 10 + i, chain[0].op.space)));
  std::uint64_t launched = lists.log({plan_of(std::move(chain))}).launches.size(), done = 0;
  REQUIRE(launched > 3);
  const auto complete = [&](TimeNs took) -> const Actions& {
    const Actions& actions = lists.step({StreamCompleted{0, 0, ++done, took}});
    launched += actions.launches.size();
    return actions;
  };
  std::size_t more = 0;
  while (launched - done > 2) more += complete(kSecond).launches.size();
  CHECK(more <= 1);  // the first of which it is known: what was enqueued before counts as it was expected
  CHECK(complete(kSecond).launches.size() == 1);
  CHECK(launched - done == 2);
  // Another session's step has so few before it.
  msg::Plan other = plan_of({on(kHere, 1000, source(1000, 1))}, {}, 2);
  other.session = SessionId{2};
  launched += lists.log({std::move(other)}).launches.size();
  const Actions& next = complete(kSecond);
  REQUIRE(next.launches.size() == 1);
  CHECK(next.launches[0].run.id == OpId{1000});
  for (int i = 0; i < 60 && launched - done <= 2; ++i) complete(1);
  CHECK(launched - done > 2);
}

TEST_CASE(
    "that steps of one family take long is not forgotten for another's that do not, nor held against those") {
  for (const std::size_t together : {1u, 2u}) {  // steps that are told of at once, with what all of them took
    CAPTURE(together);
    Options options = Lists::options_of({kHere, 0, 1 << 24, 1 << 24, 1, false});
    options.window = 128;
    Lists lists(std::move(options));
    std::vector<msg::PlannedOp> ops;
    for (std::uint64_t i = 1; i < 300; ++i)  // ten of a kernel that takes a second, forty maps as predicted
      ops.push_back(on(kHere, i, i % 50 < 10 ? pair_of(2 * i, 8) : source(2 * i, 1)));
    std::deque<Launch> flying;
    std::size_t slow = 0, most_slow = 0, most = 0;
    const auto takes_long = [](const Launch& launch) { return launch.op->op.kind == ir::OpKind::kCall; };
    const auto take = [&](const Actions& actions) {
      for (const Launch& launch : actions.launches) slow += takes_long(launch), flying.push_back(launch);
      most_slow = std::max(most_slow, slow);
      most = std::max(most, flying.size());
    };
    take(lists.log({plan_of(std::move(ops))}));
    std::size_t done = 0;
    while (!flying.empty()) {
      TimeNs took = 0;
      std::uint64_t last = 0;
      for (std::size_t i = 0; i < together && !flying.empty(); ++i, ++done) {
        const Launch launch = flying.front();
        flying.pop_front();
        slow -= takes_long(launch);
        took += takes_long(launch) ? kSecond : launch.op->model_ns;
        last = launch.sequence;
      }
      take(lists.step({StreamCompleted{0, 0, last, took}}));
    }
    CHECK(done == 299);
    CHECK(most_slow <= 2);
    CHECK(most >= 30);
  }
}

TEST_CASE("of a kernel that has never run a stream holds two steps") {
  Lists lists(1 << 24);
  std::vector<msg::PlannedOp> calls;
  for (std::uint64_t i = 0; i < 6; ++i) calls.push_back(on(kHere, 1 + i, pair_of(10 + 2 * i, 8)));
  CHECK(lists.log({plan_of(calls)}).launches.size() == 2);
  CHECK(lists.completed(1).launches.size() == 4);
}

}  // namespace
}  // namespace tilewise::worker::test
