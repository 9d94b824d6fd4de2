// Tasks that are run for what they do, and whose results nobody takes: the last one of a save, which puts the file in place. A request
// that ends well has done it, whoever dies or leaves meanwhile.
#include <doctest/doctest.h>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// Two workers; the first is to run a task of one point that reads all of an array of the second's.
struct Saving : World {
  // `made`: all of the array is there, else all but its last block.
  explicit Saving(const std::string& kernel, bool made = true) : made_(made) {
    for (const std::uint32_t conn : {1u, 2u}) {
      msg::Join with = worker(1, conn == 1 ? "one" : "two");
      with.plugins = {{kernel, "1", 42}};
      workers.emplace_back(conn, join(conn, with));
      devices.push_back(workers.back().second.devices[0]);
    }
    join(10, client());
    ir::Op source = random(1, kFourBlocks), act;
    source.hint.devices = {devices[1]};
    ir::DimMap whole;
    whole.kind = ir::DimMap::Kind::kWhole;
    act.kind = ir::OpKind::kCall;
    act.operands = {{1, ir::View::identity(kFourBlocks.shape())}};
    act.space = grid({1}, {1});
    act.outputs = {{2, ir::DType::kInt64, act.space}};
    act.attrs = ir::CallAttrs{.kernel = kernel, .version = "1", .maps = {{whole}}};
    act.hint.devices = {devices[0]};
    REQUIRE(submit(10, 1, {source, act}).outcome.ok());
    plan = log<msg::Plan>(1)[0];
    REQUIRE(plan.ops.back().op.kind == ir::OpKind::kCall);
    REQUIRE(plan.ops.back().placement.owner({0}) == devices[0]);
    // The task is not known to be over.
    msg::Progress progress;
    for (const msg::PlannedOp& op : plan.ops) {
      if (const std::int64_t owned = op.placement.owned_count(devices[1]); owned > 0)
        progress.ops.push_back({op.id, devices[1], made_ ? owned : owned - 1, 0});
    }
    receive(2, progress);
    REQUIRE(count<msg::GraphDone>(10) == 0);
  }
  OpId act() const { return plan.ops.back().id; }
  // What the worker has: the second the whole array; the first so many tasks of the one.
  void answer(std::uint32_t conn, std::int64_t begun) {
    msg::Held held;
    REQUIRE(!log<msg::PeerLost>(conn).empty());
    held.version = log<msg::PeerLost>(conn).back().version;
    if (conn == 1) held.shares = {{act(), devices[0], begun, {}}};
    if (conn == 2) {
      const std::int64_t there = made_ ? 4 : 3;
      held.shares = {{plan.ops[0].id, devices[1], there, {}}};
      held.blocks = {{ArrayId{plan.ops[0].op.outputs[0].array}, devices[1], {{0, there}}, {}}};
    }
    receive(conn, held);
  }
  // Those of the last word about a loss that are to be run.
  std::vector<msg::PlannedOp> again(std::uint32_t conn) const {
    std::vector<msg::PlannedOp> out;
    const std::vector<msg::Recover> told = log<msg::Recover>(conn);
    REQUIRE(!told.empty());
    for (const msg::Plan& recovered : told.back().plans) {
      for (const msg::PlannedOp& op : recovered.ops) {
        if (!op.done && op.op.kind == ir::OpKind::kCall) out.push_back(op);
      }
    }
    return out;
  }
  void complete_again() {
    const std::vector<msg::Recover> told = log<msg::Recover>(2);
    for (const msg::Plan& recovered : told.back().plans) complete(recovered);
  }
  std::vector<DeviceId> devices;
  msg::Plan plan;
  bool made_;
};

TEST_CASE("the worker dies that was to run it: it is run elsewhere, and only then is the request over") {
  std::string kernel;
  SUBCASE("a plug-in's") { kernel = "mine"; }
  SUBCASE("what removes a file that was not ended") { kernel = "tilewise.discard_npy"; }
  Saving w(kernel);
  w.workers.erase(w.workers.begin());
  w.drop(1);
  w.answer(2, 0);
  REQUIRE(w.again(2).size() == 1);
  CHECK(w.again(2)[0].placement.owner({0}) == w.devices[1]);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  w.complete_again();
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE("it is known to be over when its worker dies: that was it") {
  Saving w("tilewise.commit_npy");
  w.complete(w.plan);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  w.workers.erase(w.workers.begin());
  w.drop(1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

// Whether it has been done is found out by who does it again: all blocks that it is made of say which file they are in.
TEST_CASE("the worker dies that was to put a file in place: another one does, or finds that it is there") {
  Saving w("tilewise.commit_npy");
  w.workers.erase(w.workers.begin());
  w.drop(1);
  w.answer(2, 0);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  const std::vector<msg::PlannedOp> again = w.again(2);
  REQUIRE(again.size() == 1);
  SUBCASE("it is") {
    w.complete_again();
    REQUIRE(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  }
  SUBCASE("it cannot find out: the loss is what is told") {
    w.receive(2, msg::TaskFailed{again[0].id, w.devices[1], 0, {Errc::kNotFound, "/x: not there"}});
    w.complete(msg::Plan{{}, 0, {again[0]}}, 1);
    w.complete_again();  // what gathers for it
    REQUIRE(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kWorkerLost);
    CHECK(w.last<msg::GraphDone>(10)->outcome.message.find("/x: not there") != std::string::npos);
  }
}

TEST_CASE("a file that is not there without a loss is no loss") {
  Saving w("tilewise.commit_npy");
  w.receive(1, msg::TaskFailed{w.act(), w.devices[0], 0, {Errc::kNotFound, "/x: not there"}});
  w.complete(w.plan, 1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kNotFound);
}

// What it wrote was read by the last task, which is over and forgotten; only its own word on it has not come.
TEST_CASE("a block that was written and put in place is not written again") {
  World w;
  std::vector<DeviceId> devices;
  for (const std::uint32_t conn : {1u, 2u}) {
    msg::Join with = w.worker(1, conn == 1 ? "one" : "two");
    with.plugins = {{"tilewise.write_zarr", "1", 1}, {"tilewise.commit_zarr", "1", 2}};
    w.workers.emplace_back(conn, w.join(conn, with));
    devices.push_back(w.workers.back().second.devices[0]);
  }
  w.join(10, w.client());
  const ir::Grid one = grid({1}, {1});
  const auto call = [&](std::uint64_t out, const char* kernel, DeviceId on) {
    ir::Op op;
    op.kind = ir::OpKind::kCall;
    op.space = one;
    op.outputs = {{out, ir::DType::kInt64, one}};
    op.attrs = ir::CallAttrs{.kernel = kernel, .version = "1"};
    op.hint.devices = {on};
    return op;
  };
  ir::Op write = call(1, "tilewise.write_zarr", devices[1]),
         commit = call(2, "tilewise.commit_zarr", devices[0]);
  commit.operands = {{1, ir::View::identity({1})}};
  ir::DimMap whole;
  whole.kind = ir::DimMap::Kind::kWhole;
  commit.attrs = ir::CallAttrs{.kernel = "tilewise.commit_zarr", .version = "1", .maps = {{whole}}};
  REQUIRE(w.submit(10, 1, {write, commit}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  REQUIRE(plan.ops.size() == 2);
  w.receive(1, msg::Progress{.ops = {{plan.ops[1].id, devices[0], 1, 0}}});
  w.apply_logs();
  REQUIRE(w.count<msg::GraphDone>(10) == 0);
  w.workers.pop_back();
  w.drop(2);
  w.receive(1, msg::Held{w.log<msg::PeerLost>(1).back().version, {}, {}, false});
  for (const msg::Recover& recover : w.log<msg::Recover>(1)) {
    for (const msg::Plan& again : recover.plans) CHECK(again.ops.empty());
  }
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE("it cannot have begun, since what it reads was not all there: it is run by another one") {
  Saving w("tilewise.commit_npy", false);
  w.workers.erase(w.workers.begin());
  w.drop(1);
  w.answer(2, 0);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  REQUIRE(w.again(2).size() == 1);
  w.complete(w.plan);
  w.complete_again();
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE("the worker leaves as it was asked to") {
  Saving w("tilewise.commit_npy");
  w.step({OperatorDrain{w.workers[0].second.you}});
  w.receive(1, msg::Drained{w.workers[0].second.you, w.log<msg::Drain>(1).back().round, 0});
  SUBCASE("and has not begun it: another one puts the file in place") {
    w.answer(1, 0);
    w.answer(2, 0);
    REQUIRE(w.log<msg::Drain>(1).back().order == msg::DrainOrder::kLeave);
    REQUIRE(w.again(2).size() == 1);
    CHECK(w.count<msg::GraphDone>(10) == 0);
    w.workers.erase(w.workers.begin());
    w.complete_again();
    REQUIRE(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  }
  SUBCASE("and has done it, which it had not told yet") {
    w.answer(1, 1);
    w.answer(2, 0);
    REQUIRE(w.log<msg::Drain>(1).back().order == msg::DrainOrder::kLeave);
    CHECK(w.again(2).empty());
    REQUIRE(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  }
}

}  // namespace
}  // namespace tilewise::scheduler::test
