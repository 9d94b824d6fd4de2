#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

TEST_CASE("a submission becomes a plan, progress and a result") {
  World w;
  const auto w1 = w.add_worker(1, 2), w2 = w.add_worker(2, 2);
  const auto me = w.join(10, w.client());
  const auto reply =
      w.submit(10, 1, {random(1, kFourByFour), map(2, kFourByFour, {1}), fetch(2, kFourByFour)}, {2});
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
    w.submit(10, 1, {fill(5, kFourByFour)});
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

namespace tilewise::scheduler::test {
namespace {

TEST_CASE("a refused submission says why and leaves no trace") {
  World w;
  const auto w1 = w.add_worker(1, 2);
  const auto me = w.join(10, w.client());
  w.join(11, w.client());
  w.submit(11, 1, {fill(1, kFourByFour)}, {1});
  std::uint64_t request = 0;
  const auto refused = [&](std::vector<ir::Op> ops, std::vector<std::uint64_t> holds, Errc code,
                           const std::string& what) {
    const int plans = static_cast<int>(w.log<msg::Plan>(1).size());
    const auto reply = w.submit(10, ++request, std::move(ops), std::move(holds));
    CHECK_MESSAGE(reply.outcome.code == code, reply.outcome.message);
    CHECK_MESSAGE(mentions(reply.outcome.message, what), reply.outcome.message);
    CHECK(reply.arrays.empty());
    CHECK_FALSE(reply.graph);
    CHECK(static_cast<int>(w.log<msg::Plan>(1).size()) == plans);
  };
  ir::Op op = map(2, kFourByFour, {1});
  op.label = "residual";
  refused({op}, {2}, Errc::kNotFound, "op 0 (map 'residual')");  // another session's 1
  refused({fill(1, kFourByFour), map(2, grid({8, 8}, {2, 2}), {1, 9})}, {2}, Errc::kNotFound, "array 9");
  refused({fill(1, kFourByFour), fill(1, kFourByFour)}, {1}, Errc::kAlreadyExists, "op 1");
  refused({fill(1, kFourByFour)}, {5}, Errc::kNotFound, "array 5");
  refused({map(1, kFourByFour, {1})}, {1}, Errc::kNotFound, "array 1");  // itself

  const ir::Grid wide = grid({8, 9}, {2, 3});
  refused({fill(1, kFourByFour), map(2, wide, {1})}, {2}, Errc::kOutOfRange, "op 1");
  refused({fill(1, kFourByFour), fill(2, wide), matmul(3, wide, 2, kFourByFour, 1)}, {3},
          Errc::kShapeMismatch, "op 2 (matmul)");
  refused({fill(1, kFourByFour), fill(2, wide), matmul(3, wide, 2, kFourByFour, 1)}, {3},
          Errc::kShapeMismatch, "(8, 9) x (8, 8)");

  op = fill(1, kFourByFour);
  op.hint.devices = {DeviceId{77}};
  refused({op}, {1}, Errc::kNotFound, "77");
  op.hint.devices = {me.devices[0]};
  refused({op}, {1}, Errc::kNotFound, "no device");  // clients run nothing
  op = fill(1, kFourByFour);
  op.attrs = ir::MatmulAttrs{};
  refused({op}, {1}, Errc::kInvalidArgument, "op 0");
  op = fill(1, kFourByFour);
  op.operands.resize(1000);
  refused({op}, {1}, Errc::kLimitExceeded, "1000 operands");
  op = fill(1, kFourByFour);
  op.outputs.clear();
  refused({op}, {}, Errc::kShapeMismatch, "op 0");
  op = fill(1, kFourByFour);
  op.kind = static_cast<ir::OpKind>(200);
  refused({op}, {1}, Errc::kInvalidArgument, "op 0");
  op = fetch(1, kFourByFour);
  op.operands.clear();
  refused({op}, {}, Errc::kInvalidArgument, "op 0");
  op = fetch(1, kFourByFour);
  op.hint.devices = {w1.devices[0]};
  refused({fill(1, kFourByFour), op}, {}, Errc::kPlacementConflict, "w1/host:0");
  op = fill(1, kFourByFour);
  op.kind = ir::OpKind::kCall;
  op.attrs = ir::CallAttrs{"blur", "1.0"};
  refused({op}, {1}, Errc::kNotFound, "blur");
  refused(std::vector<ir::Op>(limits::kMaxOpsPerSubmit + 1), {}, Errc::kLimitExceeded, "65537 ops");

  const auto fine = w.submit(10, ++request, {fill(1, kFourByFour)}, {1});
  CHECK(fine.outcome.ok());  // no number was used up
  SUBCASE("numbers in use stay in use until released") {
    refused({fill(1, kFourByFour)}, {1}, Errc::kAlreadyExists, "number 1");
    w.receive(10, msg::ReleaseArrays{{1}});
    refused({map(2, kFourByFour, {1})}, {2}, Errc::kNotFound, "array 1");
    CHECK(w.submit(10, ++request, {fill(1, kFourByFour)}, {1}).outcome.ok());
  }
  SUBCASE("a refusal is remembered like any answer") {
    const auto first = w.submit(10, ++request, {map(2, kFourByFour, {55})}, {2});
    CHECK_FALSE(first.outcome.ok());
    CHECK(w.submit(10, request, {fill(2, kFourByFour)}, {2}) == first);
  }
  SUBCASE("old requests are not executed again, remembered or not") {
    for (int i = 0; i < 300; ++i) w.submit(10, ++request, {fill(100 + request, kFourByFour)});
    const auto plans = w.log<msg::Plan>(1).size();
    CHECK(w.submit(10, 1, {fill(2, kFourByFour)}, {2}).outcome.code == Errc::kUnavailable);
    CHECK(w.submit(10, 0, {fill(2, kFourByFour)}, {2}).outcome.code == Errc::kUnavailable);
    CHECK(w.log<msg::Plan>(1).size() == plans);
  }
}

TEST_CASE("nobody is there to work") {
  World w;
  w.join(10, w.client());
  CHECK(w.submit(10, 1, {fill(1, kFourByFour)}, {1}).outcome.code == Errc::kUnavailable);
  CHECK(w.submit(10, 2, {provide(1, kFourByFour)}, {1}).outcome.ok());
  w.add_worker(1, 1);
  CHECK(w.submit(10, 3, {map(2, kFourByFour, {1})}, {2}).outcome.ok());
}

TEST_CASE("what can never fit is refused with an account") {
  World w;
  w.join(1, w.worker(2, "small", 1 << 20));
  w.join(10, w.client());
  const ir::Grid coarse = grid({1024, 1024}, {512, 512});
  ir::Op op = random(1, coarse);
  op.label = "field";
  auto outcome = w.submit(10, 1, {op}, {1}).outcome;
  CHECK(outcome.code == Errc::kOutOfMemory);
  CHECK(mentions(outcome.message, "'field'"));
  CHECK(mentions(outcome.message, "2097152"));
  CHECK(mentions(outcome.message, "1048576"));
  const ir::Grid fine = grid({1024, 1024}, {64, 64});
  outcome = w.submit(10, 2, {random(1, fine)}, {1}).outcome;
  CHECK(outcome.code == Errc::kOutOfMemory);
  CHECK(mentions(outcome.message, "array 1"));
  CHECK(mentions(outcome.message, "8388608"));
  ir::Op total;
  total.kind = ir::OpKind::kReduce;
  total.operands = {{1, ir::View::identity(fine.shape())}};
  total.space = fine;
  total.outputs = {{2, ir::DType::kFloat64, ir::Grid({ir::DimGrid::whole(1), ir::DimGrid::whole(1)})}};
  total.attrs = ir::ReduceAttrs{{{load(0)}}, ir::ReduceKind::kSum, 3};
  CHECK(w.submit(10, 3, {random(1, fine), total}, {2}).outcome.ok());  // only passing through
}

TEST_CASE("limits of graphs and ops") {
  World w(Options{.max_graphs = 2, .max_live_ops = 3});
  w.add_worker(1, 1);
  w.join(10, w.client());
  CHECK(w.submit(10, 1, {fill(1, kFourByFour)}, {1}).outcome.ok());
  CHECK(w.submit(10, 2, {fill(2, kFourByFour), fill(3, kFourByFour, 2), fill(4, kFourByFour, 3)}, {2, 3, 4})
            .outcome.code == Errc::kLimitExceeded);
  CHECK(w.submit(10, 3, {fill(2, kFourByFour)}, {2}).outcome.ok());
  CHECK(w.submit(10, 4, {fill(3, kFourByFour)}, {3}).outcome.code == Errc::kLimitExceeded);
}

TEST_CASE("empty work ends at once") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {});
  CHECK(w.count<msg::GraphDone>(10) == 1);
  w.submit(10, 2, {fill(1, kFourByFour)});  // nobody wants it
  CHECK(w.count<msg::GraphDone>(10) == 2);
  const ir::Grid none = grid({0, 8}, {2, 2});
  CHECK(w.submit(10, 3, {random(1, none), map(2, none, {1}), fetch(2, none)}, {1, 2}).outcome.ok());
  CHECK(w.count<msg::GraphDone>(10) == 3);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE("passes can be switched off; explicit devices are kept") {
  Options options;
  options.passes_off = {"fusion", "common-subexpressions"};
  World plain(options), w;
  for (World* world : {&plain, &w}) {
    world->add_worker(1, 4);
    world->join(10, world->client());
    ir::Op second = map(2, kFourByFour, {1});
    second.hint.devices = {DeviceId{3}};
    CHECK(world->submit(10, 1, {random(1, kFourByFour), second}, {2}).outcome.ok());
  }
  CHECK(plain.log<msg::Plan>(1)[0].ops.size() == 2);
  // Its user is on device 3, so the operand is made there as well.
  CHECK(plain.log<msg::Plan>(1)[0].ops[0].placement.devices() == std::vector<DeviceId>{DeviceId{3}});
  REQUIRE(w.log<msg::Plan>(1)[0].ops.size() == 1);
  CHECK(w.log<msg::Plan>(1)[0].ops[0].placement.devices() == std::vector<DeviceId>{DeviceId{3}});
}

TEST_CASE("plug-in kernels run where they are offered") {
  World w;
  w.add_worker(1, 2);
  auto join = w.worker(2, "with");
  join.plugins = {{"blur", "1.0", 42}};
  const auto with = w.join(2, join);
  w.join(10, w.client());
  ir::Op call = fill(1, kFourByFour);
  call.kind = ir::OpKind::kCall;
  call.attrs = ir::CallAttrs{"blur", "1.0"};
  CHECK(w.submit(10, 1, {call}, {1}).outcome.ok());
  CHECK(w.log<msg::Plan>(1)[0].ops[0].placement.devices() == with.devices);
  call.outputs[0].array = 2;
  call.attrs = ir::CallAttrs{"blur", "2.0"};
  CHECK(w.submit(10, 2, {call}, {2}).outcome.code == Errc::kVersionMismatch);
  call.attrs = ir::CallAttrs{"blur", "1.0"};
  call.hint.devices = {DeviceId{1}};
  CHECK(w.submit(10, 3, {call}, {2}).outcome.code == Errc::kNotFound);
}

TEST_CASE("two runs of the same events agree") {
  const auto run = [] {
    World w;
    w.add_worker(1, 3);
    w.join(10, w.client());
    w.submit(10, 1, {random(1, kFourByFour), map(2, kFourByFour, {1}), fetch(2, kFourByFour)}, {2});
    w.add_worker(2, 1);
    w.submit(10, 2, {map(3, kFourByFour, {2})}, {3});
    w.complete(w.log<msg::Plan>(1)[0]);
    w.drop(2);
    return w.core.digest();
  };
  CHECK(run() == run());
}

}  // namespace
}  // namespace tilewise::scheduler::test
