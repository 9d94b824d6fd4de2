// Recoveries where devices are not alike: of other numeric classes, or without the plug-in.
#include <doctest/doctest.h>

#include "losing.h"

namespace tilewise::scheduler::test {
namespace {

// Each worker has one device: those of w1, w3 and w5 are of one numeric class, those of w2 and w4 of another.
struct TwoClasses : World {
  TwoClasses() {
    for (std::uint32_t conn = 1; conn <= 5; ++conn) {
      msg::Join about = worker(1, "w" + std::to_string(conn));
      about.devices[0].numeric_class = conn % 2 == 1 ? "x" : "y";
      about.plugins = {kPair};
      workers.emplace_back(conn, join(conn, about));
      devices.push_back(workers.back().second.devices[0]);
    }
    join(10, client());
  }
  DeviceId device(std::uint32_t conn) const { return devices[conn - 1]; }
  ir::Op on(ir::Op op, std::uint32_t conn) const {
    op.hint.devices = {device(conn)};
    return op;
  }
  msg::Plan run(std::uint64_t request, std::vector<ir::Op> ops, std::vector<std::uint64_t> holds) {
    REQUIRE(submit(10, request, std::move(ops), std::move(holds)).outcome.ok());
    const msg::Plan plan = log<msg::Plan>(5).back();
    complete(plan);
    REQUIRE(last<msg::GraphDone>(10)->request == request);
    return plan;
  }
  // The worker is lost. `conn` says that it has these arrays on its device, the others that they have nothing.
  msg::Recover lose(std::uint32_t lost, std::uint32_t conn = 0,
                    const std::vector<std::uint64_t>& arrays = {}) {
    std::erase_if(workers, [&](const auto& worker) { return worker.first == lost; });
    drop(lost);
    for (const auto& [living, welcome] : workers) {
      msg::Held held;
      held.version = log<msg::PeerLost>(living).back().version;
      for (const std::uint64_t array : arrays)
        if (living == conn) held.blocks.push_back({ArrayId{array}, device(living), {{0, 4}}, {}});
      // None of what it was to make again has been begun.
      for (const msg::Recover& recover : log<msg::Recover>(living))
        for (const msg::Plan& plan : recover.plans)
          for (const msg::PlannedOp& op : plan.ops)
            if (!op.done && op.placement.owned_count(device(living)) > 0)
              held.shares.push_back({op.id, device(living), 0, {}});
      receive(living, held);
    }
    REQUIRE(!log<msg::Recover>(5).empty());
    return log<msg::Recover>(5).back();
  }
  std::vector<DeviceId> devices;
};

std::uint64_t result(const msg::PlannedOp& op, std::size_t i = 0) { return op.op.outputs[i].array; }

// Layers of the op in a Recover.
std::vector<msg::PlannedOp> layers(const msg::Recover& recover, const msg::PlannedOp& of) {
  std::vector<msg::PlannedOp> found;
  for (const msg::Plan& plan : recover.plans)
    for (const msg::PlannedOp& op : plan.ops)
      if (op.of == of.id) found.push_back(op);
  return found;
}

TEST_CASE("only devices of the same numeric class make a block again") {
  World w;
  msg::Join other = w.worker(1, "other");
  other.devices[0].numeric_class = "y";
  const auto w1 = w.add_worker(1, 1, "one");
  w.workers.emplace_back(2, w.join(2, other));
  w.join(10, w.client());
  ir::Op op = fill(1, kFourBlocks);
  op.hint.devices = w1.devices;
  w.submit(10, 1, {op}, {1});
  w.workers.erase(w.workers.begin());
  w.drop(1);
  w.receive(2, msg::Held{1, {}, {}, false});
  CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kWorkerLost);
  CHECK(w.last<msg::GraphDone>(10)->outcome.message.find("numeric class") != std::string::npos);
}

TEST_CASE("a block is made again by devices like the one that made it, wherever it has been since") {
  TwoClasses w;
  const msg::PlannedOp source = w.run(1, {w.on(fill(1, kFourBlocks), 1)}, {1}).ops[0];
  const msg::PlannedOp reader = w.run(2, {w.on(map(2, kFourBlocks, {1}), 3)}, {2}).ops[0];
  const std::vector<msg::PlannedOp> kept = layers(w.lose(1, 2, {result(source)}), source);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].done);
  CHECK(kept[0].placement.devices() == std::vector{w.device(2)});

  std::vector<msg::PlannedOp> again;
  SUBCASE("who had the copy was lost") { again = layers(w.lose(2, 3, {result(reader)}), source); }
  SUBCASE("who had the copy lives, and has let it go") {
    REQUIRE(
        w.submit(10, 3, {w.on(map(3, kFourBlocks, {1}), 3)}, {3}).outcome.ok());  // under way when w3 is lost
    w.receive(10, msg::ReleaseArrays{{1}});
    again = layers(w.lose(3), source);
  }
  REQUIRE(again.size() == 1);
  CHECK(!again[0].done);
  for (const DeviceId device : again[0].placement.devices())
    CHECK((device == w.device(3) || device == w.device(5)));
}

TEST_CASE("a block is not made again by a worker that has it and lacks the plug-in") {
  World w;
  std::vector<DeviceId> devices;
  for (std::uint32_t conn = 1; conn <= 4; ++conn) {
    msg::Join about = w.worker(1, "w" + std::to_string(conn));
    if (conn != 2) about.plugins = {kPair};
    w.workers.emplace_back(conn, w.join(conn, about));
    devices.push_back(w.workers.back().second.devices[0]);
  }
  w.join(10, w.client());
  const auto lose = [&](std::uint32_t lost, const std::vector<msg::Held::Blocks>& of_w2) {
    std::erase_if(w.workers, [&](const auto& worker) { return worker.first == lost; });
    w.drop(lost);
    for (const auto& [conn, welcome] : std::vector(w.workers))
      w.receive(conn, msg::Held{w.log<msg::PeerLost>(conn).back().version,
                                {},
                                conn == 2 ? of_w2 : std::vector<msg::Held::Blocks>{},
                                false});
    return w.log<msg::Recover>(4).back();
  };
  ir::Op call = pair_call(2, 3, kFourBlocks, 1);
  call.outputs.pop_back();
  call.hint.devices = {devices[0]};
  REQUIRE(w.submit(10, 1, {fill(1, kFourBlocks), call}, {2}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(4).back();
  w.complete(plan);
  const ArrayId array{result(plan.ops[1])};
  REQUIRE(layers(lose(1, {{array, devices[1], {{0, 4}}, {}}}), plan.ops[1]).at(0).done);
  ir::Op reader = map(4, kFourBlocks, {2});
  reader.hint.devices = {devices[2]};
  REQUIRE(w.submit(10, 2, {reader}, {4}).outcome.ok());  // under way when w3 is lost
  w.receive(10, msg::ReleaseArrays{{2}});
  const std::vector<msg::PlannedOp> again = layers(lose(3, {}), plan.ops[1]);
  REQUIRE(again.size() == 1);
  CHECK(!again[0].done);
  CHECK(again[0].placement.devices() == std::vector{devices[3]});
}

TEST_CASE("a device of another class goes on serving one result of a task whose other one is made again") {
  TwoClasses w;
  const msg::PlannedOp call =
      w.run(1, {w.on(fill(1, kFourBlocks), 1), w.on(pair_call(2, 3, kFourBlocks, 1), 1)}, {1, 2, 3}).ops[1];
  const std::vector<msg::PlannedOp> kept = layers(w.lose(1, 2, {result(call), result(call, 1)}), call);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].placement.devices() == std::vector{w.device(2)});
  w.run(2, {w.on(map(4, kFourBlocks, {2}), 3)}, {4});
  w.receive(10, msg::ReleaseArrays{{2}});
  const std::vector<msg::PlannedOp> again = layers(w.lose(3, 2, {result(call, 1)}), call);
  REQUIRE(again.size() == 1);
  CHECK(!again[0].done);
  CHECK(again[0].placement.devices() == std::vector{w.device(5)});
  CHECK(result(again[0]) == result(call));
  CHECK(result(again[0], 1) != result(call, 1));
}

TEST_CASE("of a task that is run again for one result, and cannot be, the other one is not lost") {
  TwoClasses w;
  const msg::Plan plan =
      w.run(1, {w.on(fill(1, kFourBlocks), 2), w.on(pair_call(2, 3, kFourBlocks, 1), 1)}, {2, 3});
  const msg::PlannedOp &source = plan.ops[0], &call = plan.ops[1];
  const std::uint64_t first = result(call);
  const msg::Recover recover = w.lose(1, 3, {first});
  REQUIRE(layers(recover, source).size() == 1);  // what it reads is made again too, by w2
  CHECK(layers(recover, source)[0].placement.devices() == std::vector{w.device(2)});
  const std::vector<msg::PlannedOp> of_call = layers(recover, call);
  REQUIRE(of_call.size() == 2);  // one is kept, the other made again
  CHECK(of_call[0].done);
  CHECK(result(of_call[1], 1) == result(call, 1));
  REQUIRE(layers(w.lose(2, 3, {first}), source).size() == 1);
  w.lose(4, 3, {first});
  CHECK(w.submit(10, 2, {map(4, kFourBlocks, {3})}, {4}).outcome.code == Errc::kWorkerLost);
  CHECK(w.submit(10, 3, {map(5, kFourBlocks, {2})}, {5}).outcome.ok());
}

}  // namespace
}  // namespace tilewise::scheduler::test
