#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

const ir::Grid kGrid = grid({8, 8}, {2, 2});

TEST_CASE("a submission becomes a plan, progress and a result") {
  World w;
  const auto w1 = w.add_worker(1, 2), w2 = w.add_worker(2, 2);
  const auto me = w.join(10, w.client());
  const auto reply = w.submit(10, 1, {random(1, kGrid), map(2, kGrid, {1}), fetch(2, kGrid)}, {2});
  REQUIRE_MESSAGE(reply.outcome.ok(), reply.outcome.message);
  REQUIRE(reply.arrays.size() == 1);
  CHECK(reply.arrays[0].first == 2);
  const auto plans = w.log<msg::Plan>(1);
  REQUIRE(plans.size() == 1);
  CHECK(w.log<msg::Plan>(2) == plans);
  CHECK(w.log<msg::Plan>(10).empty());  // clients run nothing
  const msg::Plan& plan = plans[0];
  CHECK(plan.graph == reply.graph);
  CHECK(plan.holds == std::vector<ArrayId>{reply.arrays[0].second});
  std::int64_t points = 0;
  for (const msg::PlannedOp& op : plan.ops) {
    CHECK_FALSE(op.done);
    CHECK(op.placement.verify(op.op.space.counts()).has_value());
    if (op.op.kind == ir::OpKind::kFetch) {
      CHECK(op.op.get<ir::FetchAttrs>().to == me.devices[0]);
      CHECK(op.placement.devices() == me.devices);
      continue;
    }
    CHECK(op.placement.devices().size() == 4);
    points += op.op.space.block_count();
  }
  CHECK(w.count<msg::GraphDone>(10) == 0);
  w.complete(plan);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  CHECK(w.last<msg::GraphDone>(10)->tasks == points);
  SUBCASE("repeats change nothing") {
    const auto before = w.core.digest();
    w.complete(plan);
    CHECK(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.core.digest() == before);
    w.submit(10, 1, {fill(5, kGrid)});
    CHECK(*w.last<msg::SubmitReply>(10) == reply);
    CHECK(w.count<msg::GraphDone>(10) == 2);  // said again, not done again
    CHECK(w.log<msg::Plan>(1).size() == 1);
  }
  SUBCASE("a release lets everything go") {
    w.receive(10, msg::ReleaseArrays{{2}});
    const auto releases = w.log<msg::Release>(1);
    REQUIRE(releases.size() == 1);
    CHECK(releases[0].arrays == plan.holds);
    std::size_t retired = 0;
    for (const auto& r : w.log<msg::Retire>(2)) retired += r.ops.size();
    CHECK(retired == plan.ops.size());
    w.receive(10, msg::ReleaseArrays{{2, 77}});
    CHECK(w.log<msg::Release>(1).size() == 1);
    w.receive(10, msg::StatusRequest{});
    CHECK(w.last<msg::StatusReply>(10)->arrays_live == 0);
    CHECK(w.last<msg::StatusReply>(10)->graphs_done == 1);
  }
}

}  // namespace
}  // namespace tilewise::scheduler::test
