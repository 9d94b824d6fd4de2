#include <doctest/doctest.h>

#include "losing.h"

namespace tilewise::scheduler::test {
namespace {

TEST_CASE("what was on a lost worker is made again on another, and who waits gets it") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1)}, {1});
  w.complete(w.log<msg::Plan>(1)[0]);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  w.submit(10, 2, {w.on(map(2, kFourBlocks, {1}), w.w1)}, {2});
  w.lose_first();
  REQUIRE(w.log<msg::PeerLost>(2).size() == 1);
  CHECK(w.log<msg::PeerLost>(2)[0].version == 1);
  CHECK(w.log<msg::PeerLost>(2)[0].ops.size() == 2);
  CHECK(w.log<msg::PeerLost>(10).size() == 1);
  CHECK(w.log<msg::Recover>(2).empty());
  SUBCASE("") { w.answer(2); }
  SUBCASE("answers of others, of older losses and repeats change nothing") {
    w.receive(2, msg::Held{0, {}, {}, false});
    w.receive(10, msg::Held{1, {}, {}, false});
    CHECK(w.log<msg::Recover>(2).empty());
    w.answer(2);
    w.answer(2);
  }
  REQUIRE(w.log<msg::Recover>(2).size() == 1);
  const msg::Recover recover = w.log<msg::Recover>(2)[0];
  REQUIRE(recover.plans.size() == 2);
  CHECK(recover.plans[0].graph == w.log<msg::Plan>(2)[0].graph);
  const std::vector<msg::Plan> plans = w.log<msg::Plan>(2);
  for (std::size_t i = 0; i < 2; ++i) {
    const msg::PlannedOp& op = recover.plans[i].ops[0];
    const msg::PlannedOp& planned = plans[i].ops[0];
    CHECK(op.of == planned.id);
    CHECK(op.op == planned.op);
    CHECK(points(op) == 4);
    CHECK(op.placement.devices() == w.w2.devices);
  }
  CHECK(w.count<msg::GraphDone>(10) == 1);
  w.finish(recover);
  REQUIRE(w.count<msg::GraphDone>(10) == 2);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  // Later requests read what was made again, and are placed where it is.
  REQUIRE(w.submit(10, 3, {map(3, kFourBlocks, {2})}, {3}).outcome.ok());
  CHECK(w.log<msg::Plan>(2).back().ops[0].placement.devices() == w.w2.devices);
  w.complete(w.log<msg::Plan>(2).back());
  const auto dead_device = w.submit(10, 4, {w.on(fill(4, kFourBlocks), w.w1)}, {4}).outcome;
  CHECK(dead_device.code == Errc::kWorkerLost);
  CHECK(mentions(dead_device.message, "w1/host:0"));
  // Late words of the dead.
  w.receive(1, msg::Progress{1});
  w.drop(1);
  CHECK(w.quiet());
  w.receive(10, msg::ReleaseArrays{{1, 2, 3}});
  w.apply_logs();
  w.receive(10, msg::StatusRequest{});
  CHECK(w.last<msg::StatusReply>(10)->arrays_live == 0);
}

TEST_CASE("what is made again comes before whoever waits for it, whatever its own priority was") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1)}, {1}, -1);
  w.submit(10, 2, {w.on(map(2, kFourBlocks, {1}), w.w1)}, {2}, -1);
  for (const msg::Plan& plan : w.log<msg::Plan>(1)) w.complete(plan);
  REQUIRE(w.count<msg::GraphDone>(10) == 2);
  w.submit(10, 3, {w.on(fill(3, kFourBlocks), w.w1)}, {3}, -1);
  w.submit(10, 4, {w.on(map(4, kFourBlocks, {2}), w.w2)}, {4}, 7);
  w.lose_first();
  w.answer(2);
  REQUIRE(w.log<msg::Recover>(2).size() == 1);
  const msg::Recover recover = w.log<msg::Recover>(2)[0];
  REQUIRE(recover.plans.size() == 3);
  CHECK(recover.plans[0].priority == 7);  // what the array that is read was made from
  CHECK(recover.plans[1].priority == 7);
  CHECK(recover.plans[2].priority == -1);  // nobody waits for this
}

TEST_CASE("a request does not end while what it holds may be lost") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1), w.on(fill(2, kFourBlocks), w.w2)}, {1, 2});
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  msg::Progress half;  // the first op is made, then its worker dies, then the second one is made
  half.ops = {{plan.ops[0].id, w.w1.devices[0], 4, 0}};
  w.receive(1, half);
  w.lose_first();
  w.complete(plan);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  SUBCASE("made again") {
    w.answer(2, {{ArrayId{plan.ops[1].op.outputs[0].array}, w.w2.devices[0], {{0, 4}}, {}}});
    const msg::Recover recover = w.log<msg::Recover>(2).at(0);
    CHECK(w.count<msg::GraphDone>(10) == 0);
    w.finish(recover);
    REQUIRE(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  }
  SUBCASE("cancelled meanwhile") {
    w.receive(10, msg::CancelRequest{1});
    REQUIRE(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kCancelled);
    w.answer(2);
  }
  SUBCASE("its client leaves") {
    w.drop(10);
    w.answer(2);
  }
}

TEST_CASE("only what is needed is made again") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1), w.on(map(2, kFourBlocks, {1}), w.w2)}, {2});
  const msg::Plan plan = w.log<msg::Plan>(2)[0];
  REQUIRE(plan.ops.size() == 2);
  w.lose_first();
  msg::Held held;
  held.version = 1;
  // The second op has used blocks 0 and 1; block 2 waits in a task that was begun, block 3 was not looked at.
  held.shares = {{plan.ops[1].id, w.w2.devices[0], 3, {{2, 1}}}};
  held.blocks = {{ArrayId{plan.ops[0].op.outputs[0].array}, w.w2.devices[0], {}, {{2, 1}}},
                 {ArrayId{plan.ops[1].op.outputs[0].array}, w.w2.devices[0], {{0, 2}}, {}}};
  SUBCASE("") {
    w.receive(2, held);
    const msg::Recover recover = w.log<msg::Recover>(2).at(0);
    REQUIRE(recover.plans.size() == 1);
    REQUIRE(recover.plans[0].ops.size() == 1);
    CHECK(recover.plans[0].ops[0].of == plan.ops[0].id);
    CHECK(recover.plans[0].ops[0].placement.listed()->runs() ==
          std::vector<ir::Run>{{2, 2, w.w2.devices[0]}});
    w.finish(recover);
  }
  SUBCASE("what another has a copy of is not made at all") {
    held.blocks[0].sealed = {{3, 1}};
    w.receive(2, held);
    const msg::Recover recover = w.log<msg::Recover>(2).at(0);
    REQUIRE(recover.plans.size() == 1);
    REQUIRE(recover.plans[0].ops.size() == 2);
    CHECK(recover.plans[0].ops[0].done);
    CHECK(recover.plans[0].ops[0].placement.listed()->runs() ==
          std::vector<ir::Run>{{3, 1, w.w2.devices[0]}});
    CHECK(recover.plans[0].ops[1].placement.listed()->runs() ==
          std::vector<ir::Run>{{2, 1, w.w2.devices[0]}});
    w.finish(recover);
  }
  SUBCASE("an answer that was cut tells nothing") {
    w.receive(2, msg::Held{1, {}, {}, true});
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kWorkerLost);
    return;
  }
  w.complete(plan);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE("forgotten ancestors are made again, unless lineage is over its limit") {
  for (const std::size_t limit : {std::size_t{100}, std::size_t{0}}) {
    CAPTURE(limit);
    Options options;
    options.max_lineage_ops = limit;
    options.passes_off = {"fusion", "shared-tapes"};
    Losing w(options);
    w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1), w.on(map(2, kFourBlocks, {1}), w.w1)}, {2});
    const msg::Plan plan = w.log<msg::Plan>(1)[0];
    REQUIRE(plan.ops.size() == 2);
    w.complete(plan);
    CHECK(w.log<msg::Retire>(2).size() == 1);  // the first one
    w.lose_first();
    w.answer(2);
    REQUIRE(w.log<msg::Recover>(2).size() == 1);
    const msg::Recover recover = w.log<msg::Recover>(2)[0];
    if (limit > 0) {
      REQUIRE(recover.plans.size() == 1);
      CHECK(recover.plans[0].ops.size() == 2);
      w.finish(recover);
      CHECK(w.submit(10, 2, {map(3, kFourBlocks, {2})}, {3}).outcome.ok());
    } else {
      CHECK(recover.plans.empty());
      const auto lost = w.submit(10, 2, {map(3, kFourBlocks, {2})}, {3}).outcome;
      CHECK(lost.code == Errc::kWorkerLost);
      CHECK(mentions(lost.message, "array 2"));
      CHECK(mentions(lost.message, "w1"));
    }
  }
}

TEST_CASE("what reads or writes blocks of files is run again, and so is what puts a file in place") {
  for (const char* kernel : {"tilewise.read_stored", "tilewise.write_zarr", "tilewise.commit_zarr"}) {
    CAPTURE(kernel);
    World w;
    for (std::uint32_t conn = 1; conn <= 2; ++conn) {
      msg::Join with = w.worker(1, "w" + std::to_string(conn));
      with.plugins = {{kernel, "1", 1}};
      w.workers.emplace_back(conn, w.join(conn, with));
    }
    w.join(10, w.client());
    ir::Op call = fill(1, kFourBlocks);
    call.kind = ir::OpKind::kCall;
    call.attrs = ir::CallAttrs{.kernel = kernel, .version = "1"};
    call.hint.devices = {w.workers[0].second.devices[0]};
    REQUIRE(w.submit(10, 1, {call}, {1}).outcome.ok());
    w.complete(w.log<msg::Plan>(1)[0]);
    w.workers.erase(w.workers.begin());
    w.drop(1);
    w.receive(2, msg::Held{1, {}, {}, false});
    const msg::Outcome next = w.submit(10, 2, {map(2, kFourBlocks, {1})}, {2}).outcome;
    CHECK_MESSAGE(next.ok(), next.message);
  }
}

TEST_CASE(
    "a loss that leaves more pieces than can be told is a typed error, not a message that nobody takes") {
  for (const bool told : {true, false}) {
    CAPTURE(told);
    Losing w({.max_recovered_runs = told ? 4u : 3u});
    w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1)}, {1});
    w.complete(w.log<msg::Plan>(1)[0]);
    const ArrayId array{w.log<msg::Plan>(1)[0].ops[0].op.outputs[0].array};
    w.submit(10, 2, {w.on(map(2, kFourBlocks, {1}), w.w2)}, {2});
    w.lose_first();
    w.answer(2, {{array, w.w2.devices[0], {{0, 1}, {2, 1}}, {}}});  // blocks 1 and 3 are lost
    REQUIRE(w.log<msg::Recover>(2).size() == 1);
    const msg::Recover recover = w.log<msg::Recover>(2)[0];
    if (told) {
      REQUIRE(recover.plans.size() == 1);
      std::size_t runs = 0;
      for (const msg::PlannedOp& op : recover.plans[0].ops) runs += op.placement.listed()->runs().size();
      CHECK(runs == 4);
      continue;
    }
    CHECK(recover.plans.empty());
    REQUIRE(w.count<msg::GraphDone>(10) == 2);
    const msg::Outcome outcome = w.last<msg::GraphDone>(10)->outcome;
    CHECK(outcome.code == Errc::kWorkerLost);
    CHECK(mentions(outcome.message, "in more than 3 pieces"));
    CHECK(w.submit(10, 3, {map(3, kFourBlocks, {1})}, {3}).outcome.code == Errc::kWorkerLost);
  }
}

TEST_CASE("uploaded blocks whose only copies died are a typed error naming the array") {
  Losing w;
  w.submit(10, 1, {provide(1, kFourBlocks), w.on(map(2, kFourBlocks, {1}), w.w1)}, {2});
  w.complete(w.log<msg::Plan>(1)[0]);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  w.submit(10, 2, {w.on(map(3, kFourBlocks, {2}), w.w2)}, {3});
  w.submit(10, 3, {w.on(fill(4, kFourBlocks), w.w2)}, {4});
  w.lose_first();
  w.answer(2);
  REQUIRE(w.count<msg::GraphDone>(10) == 2);
  CHECK(w.last<msg::GraphDone>(10)->request == 2);
  CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kWorkerLost);
  CHECK(mentions(w.last<msg::GraphDone>(10)->outcome.message, "uploaded"));
  const auto lost = w.submit(10, 4, {map(5, kFourBlocks, {2})}, {5}).outcome;
  CHECK(lost.code == Errc::kWorkerLost);
  CHECK(mentions(lost.message, "array 2"));
}

TEST_CASE("of a request that has ended, only what hangs on a loss is lost") {
  Losing w;
  const auto w3 = w.add_worker(3, 1, "three");
  w.submit(10, 1,
           {provide(1, kFourBlocks), w.on(map(2, kFourBlocks, {1}), w.w2), w.on(fill(3, kFourBlocks), w3),
            w.on(fill(4, kFourBlocks), w.w1)},
           {2, 3, 4});
  w.complete(w.log<msg::Plan>(1)[0]);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  w.lose_first();
  w.answer(2);
  w.answer(3);
  REQUIRE(w.log<msg::Recover>(3).size() == 1);  // array 4 is being made again
  w.workers.erase(w.workers.begin());
  w.drop(2);
  w.answer(3);
  CHECK(w.submit(10, 2, {map(5, kFourBlocks, {2})}, {5}).outcome.code == Errc::kWorkerLost);
  CHECK(w.submit(10, 3, {map(6, kFourBlocks, {3})}, {6}).outcome.ok());
  for (const msg::Recover& recover : w.log<msg::Recover>(3)) w.finish(recover);
  CHECK(w.submit(10, 4, {map(7, kFourBlocks, {4})}, {7}).outcome.ok());
}

// A kernel with two results: arrays 2 and 3 of array 1, both held, and done. Everything is on the first of three workers.
struct Pairs : World {
  explicit Pairs(ir::Op source) {
    for (std::uint32_t conn = 1; conn <= 3; ++conn) {
      msg::Join with = worker(1, "w" + std::to_string(conn));
      with.plugins = {kPair};
      workers.emplace_back(conn, join(conn, with));
      devices.push_back(workers.back().second.devices[0]);
    }
    join(10, client());
    ir::Op pair = pair_call(2, 3, kFourBlocks, 1);
    pair.hint.devices = {devices[0]};
    if (source.kind != ir::OpKind::kProvide) source.hint.devices = {devices[0]};
    submit(10, 1, {std::move(source), pair}, {2, 3});
    REQUIRE(log<msg::Plan>(1).size() == 1);
    plan = log<msg::Plan>(1)[0];
    complete(plan);
    REQUIRE(count<msg::GraphDone>(10) == 1);
  }
  void lose(std::size_t i) {
    const std::uint32_t conn = workers[i].first;
    workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(i));
    drop(conn);
  }
  // All blocks of the first and of the second result are there, or not.
  void answer(std::uint32_t conn, bool first, bool second) {
    msg::Held held;
    held.version = log<msg::PeerLost>(conn).back().version;
    const auto& outputs = plan.ops.back().op.outputs;
    const bool has[] = {first, second};
    for (std::size_t i = 0; i < 2; ++i)
      if (has[i]) held.blocks.push_back({ArrayId{outputs[i].array}, devices[conn - 1], {{0, 4}}, {}});
    if (conn == 1) held.shares = {{plan.ops.back().id, devices[0], 4, {}}};
    receive(conn, held);
  }
  // Of the kernel: they say where its results are.
  std::vector<msg::PlannedOp> layers(const msg::Recover& recover) {
    std::vector<msg::PlannedOp> found;
    for (const msg::Plan& p : recover.plans)
      for (const msg::PlannedOp& op : p.ops)
        if (op.of == plan.ops.back().id) found.push_back(op);
    for (const msg::PlannedOp& layer : found) CHECK(points(layer) == 4);
    return found;
  }
  // The only one.
  msg::PlannedOp layer(const msg::Recover& recover) {
    const std::vector<msg::PlannedOp> found = layers(recover);
    REQUIRE(found.size() == 1);
    CHECK(found[0].op.outputs.size() == 2);
    return found[0];
  }
  // A layer says of this result alone that it is there.
  void lies(const msg::PlannedOp& layer, std::size_t result, DeviceId where) const {
    CHECK(layer.done);
    REQUIRE(layer.op.outputs.size() == 1);
    CHECK(layer.op.outputs[0] == plan.ops.back().op.outputs[result]);
    CHECK(layer.placement.devices() == std::vector{where});
  }
  // The task is run again for this result alone: the other one is nobody's.
  void makes(const msg::PlannedOp& layer, std::size_t result) const {
    const auto& planned = plan.ops.back().op.outputs;
    CHECK(!layer.done);
    REQUIRE(layer.op.outputs.size() == 2);
    CHECK(layer.op.outputs[result] == planned[result]);
    const ir::OutputSpec& other = layer.op.outputs[1 - result];
    CHECK(other.array > std::max(planned[0].array, planned[1].array));
    CHECK(other.grid == planned[1 - result].grid);
  }
  std::vector<DeviceId> devices;
  msg::Plan plan;
};

TEST_CASE("each result of a task is taken from where it is, and only those that are nowhere are made again") {
  Pairs w(fill(1, kFourBlocks));
  SUBCASE("one worker has both, another only one") {
    w.lose(0);
    w.answer(2, true, false);
    w.answer(3, true, true);
    const msg::PlannedOp kept = w.layer(w.log<msg::Recover>(2).at(0));
    CHECK(kept.done);
    CHECK(kept.placement.devices() == std::vector{w.devices[2]});
  }
  SUBCASE("nobody has both") {
    w.lose(0);
    w.answer(2, true, false);
    w.answer(3, false, true);
    const auto kept = w.layers(w.log<msg::Recover>(2).at(0));
    REQUIRE(kept.size() == 2);
    w.lies(kept[0], 0, w.devices[1]);
    w.lies(kept[1], 1, w.devices[2]);
  }
  SUBCASE("one is nowhere") {
    w.lose(0);
    w.answer(2, true, false);
    w.answer(3, false, false);
    const msg::Recover recover = w.log<msg::Recover>(2).at(0);
    const auto found = w.layers(recover);
    REQUIRE(found.size() == 2);
    w.lies(found[0], 0, w.devices[1]);
    w.makes(found[1], 1);
    w.receive(10, msg::StatusRequest{});
    CHECK(w.last<msg::StatusReply>(10)->arrays_live == 3);
  }
  SUBCASE("what nobody wants any more is not asked for") {
    w.receive(10, msg::ReleaseArrays{{3}});
    w.lose(0);
    w.answer(2, true, false);
    w.answer(3, false, false);
    const auto kept = w.layers(w.log<msg::Recover>(2).at(0));
    REQUIRE(kept.size() == 1);
    w.lies(kept[0], 0, w.devices[1]);
  }
  ir::Op reader = map(4, kFourBlocks, {3});
  reader.hint.devices = {w.devices[1]};
  SUBCASE("an owner that lives and has neither leaves them to who has them") {
    w.submit(10, 2, {reader}, {4});
    w.lose(1);
    w.answer(1, false, false);
    w.answer(3, true, true);
    const msg::PlannedOp kept = w.layer(w.log<msg::Recover>(1).at(0));
    CHECK(kept.done);
    CHECK(kept.placement.devices() == std::vector{w.devices[2]});
  }
  SUBCASE("an owner that lives and has only one goes on serving that one") {
    w.submit(10, 2, {reader}, {4});
    w.lose(1);
    w.answer(1, true, false);
    SUBCASE("another has both") {
      w.answer(3, true, true);
      const auto kept = w.layers(w.log<msg::Recover>(1).at(0));
      REQUIRE(kept.size() == 1);
      w.lies(kept[0], 1, w.devices[2]);
    }
    SUBCASE("and makes the other one again itself") {
      w.answer(3, false, false);
      const auto again = w.layers(w.log<msg::Recover>(1).at(0));
      REQUIRE(again.size() == 1);
      w.makes(again[0], 1);
      CHECK(again[0].placement.devices() == std::vector{w.devices[0]});
    }
  }
}

TEST_CASE("of several results that cannot be made again only those are lost that are nowhere") {
  Pairs w(provide(1, kFourBlocks));
  w.lose(0);
  SUBCASE("one") {
    w.answer(2, false, true);
    w.answer(3, false, false);
    const auto kept = w.layers(w.log<msg::Recover>(2).at(0));
    REQUIRE(kept.size() == 1);
    w.lies(kept[0], 1, w.devices[1]);
    CHECK(w.submit(10, 2, {map(4, kFourBlocks, {2})}, {4}).outcome.code == Errc::kWorkerLost);
    CHECK(w.submit(10, 3, {map(4, kFourBlocks, {3})}, {4}).outcome.ok());
  }
  SUBCASE("both") {
    w.answer(2, false, false);
    w.answer(3, false, false);
    CHECK(w.submit(10, 2, {map(4, kFourBlocks, {2})}, {4}).outcome.code == Errc::kWorkerLost);
    CHECK(w.submit(10, 3, {map(4, kFourBlocks, {3})}, {4}).outcome.code == Errc::kWorkerLost);
  }
  SUBCASE("none, if each is somewhere") {
    w.answer(2, true, false);
    w.answer(3, false, true);
    CHECK(w.submit(10, 2, {map(4, kFourBlocks, {2})}, {4}).outcome.ok());
    CHECK(w.submit(10, 3, {map(5, kFourBlocks, {3})}, {5}).outcome.ok());
  }
}

TEST_CASE("who joins while a loss is unanswered knows what may be made again") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w2)}, {1});
  w.complete(w.log<msg::Plan>(1)[0]);
  w.submit(10, 2, {w.on(map(2, kFourBlocks, {1}), w.w1)}, {2});
  w.complete(w.log<msg::Plan>(1)[1]);
  w.lose_first();
  w.receive(10, msg::ReleaseArrays{{1}});  // nobody wants it any more, but to make the other one again
  w.add_worker(3, 1, "three");
  const auto known = w.log<msg::Plan>(3);
  REQUIRE(known.size() == 2);
  CHECK(known[0].ops.at(0).id == w.log<msg::Plan>(1)[0].ops.at(0).id);
  CHECK(known[0].ops[0].done);
  REQUIRE(w.log<msg::PeerLost>(3).size() == 1);  // what it is given to read until the Recover may be lost
  w.answer(2);
  CHECK(w.log<msg::Recover>(3).empty());
  w.answer(3);
  CHECK(w.log<msg::Recover>(3).size() == 1);
}

TEST_CASE("what is made again is dealt out so that the living end together") {
  Options apart;  // a held array and a map of it stay two ops
  apart.passes_off = {"shared-tapes"};
  Losing w(apart);
  const auto w3 = w.add_worker(3, 1, "three");
  const ir::Grid eight = grid({80}, {10}), four = grid({40}, {10}), two = grid({20}, {10});
  SUBCASE("less to those who have more to do") {
    w.submit(10, 1, {w.on(fill(1, eight), w.w1)}, {1});
    w.complete(w.log<msg::Plan>(1)[0]);
    w.submit(10, 2, {w.on(fill(2, four), w3)}, {2});
    w.lose_first();
    w.receive(2, msg::Held{1, {}, {}, false});
    w.receive(3, msg::Held{1, {}, {}, false});
    const msg::PlannedOp layer = w.log<msg::Recover>(3).at(0).plans.at(0).ops.at(0);
    CHECK(layer.placement.owned_count(w.w2.devices[0]) == 6);
    CHECK(layer.placement.owned_count(w3.devices[0]) == 2);
  }
  SUBCASE("ops of a few blocks each, apart from each other, not all to one") {
    std::vector<ir::Op> ops;
    std::vector<std::uint64_t> held;
    for (std::uint64_t array = 1; array <= 8; array += 2) {
      ops.push_back(w.on(fill(array, grid({10}, {10})), w.w1));
      ops.push_back(w.on(map(array + 1, grid({10}, {10}), {array}), w.w1));
      held.insert(held.end(), {array, array + 1});
    }
    w.submit(10, 1, ops, held);
    w.complete(w.log<msg::Plan>(1)[0]);
    w.lose_first();
    w.receive(2, msg::Held{1, {}, {}, false});
    w.receive(3, msg::Held{1, {}, {}, false});
    std::map<DeviceId, int> taken;
    std::vector<DeviceId> order;
    const msg::Recover recover = w.log<msg::Recover>(3).at(0);
    for (const msg::Plan& plan : recover.plans) {
      for (const msg::PlannedOp& op : plan.ops) {
        order.push_back(op.placement.devices().at(0));
        ++taken[order.back()];
      }
    }
    REQUIRE(order.size() == 8);
    CHECK(taken[w.w2.devices[0]] == 4);
    CHECK(taken[w3.devices[0]] == 4);
    for (std::size_t i = 0; i < order.size(); i += 2)
      CHECK(order[i] == order[i + 1]);  // beside what it reads
  }
}

TEST_CASE("a second loss while the others are asked asks again") {
  Losing w;
  const auto w3 = w.add_worker(3, 1, "three");
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1)}, {1});
  w.complete(w.log<msg::Plan>(1)[0]);
  w.lose_first();
  w.answer(2);
  CHECK(w.log<msg::Recover>(3).empty());  // the third has not answered
  w.workers.erase(w.workers.begin());
  w.drop(2);
  CHECK(w.log<msg::PeerLost>(3).back().version == 2);
  w.receive(3, msg::Held{1, {}, {}, false});
  CHECK(w.log<msg::Recover>(3).empty());
  w.answer(3);
  REQUIRE(w.log<msg::Recover>(3).size() == 1);
  CHECK(w.log<msg::Recover>(3)[0].version == 2);
  CHECK(w.log<msg::Recover>(3)[0].plans.at(0).ops.at(0).placement.devices() == w3.devices);
}

TEST_CASE("without any worker, lost blocks wait for one, and not for ever") {
  Options options;
  options.recovery_wait_ns = kSecond;
  Losing w(options);
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1)}, {1});
  w.complete(w.log<msg::Plan>(1)[0]);
  w.submit(10, 2, {w.on(map(2, kFourBlocks, {1}), w.w2)}, {2});
  w.lose_first();
  w.workers.clear();
  w.drop(2);
  CHECK(w.core.next_deadline() <= w.now + kSecond);
  SUBCASE("one comes") {
    const auto w3 = w.add_worker(3, 1, "three");
    w.answer(3);
    REQUIRE(w.log<msg::Recover>(3).size() == 1);
    const msg::Recover recover = w.log<msg::Recover>(3)[0];
    REQUIRE(recover.plans.size() == 2);
    CHECK(recover.plans[0].ops[0].placement.devices() == w3.devices);
    w.finish(recover);
    CHECK(w.last<msg::GraphDone>(10)->request == 2);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  }
  SUBCASE("none comes") {
    w.wait(kSecond);
    CHECK(w.last<msg::GraphDone>(10)->request == 2);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kWorkerLost);
    w.add_worker(3, 1, "three");
    CHECK(w.submit(10, 3, {map(3, kFourBlocks, {1})}, {3}).outcome.code == Errc::kWorkerLost);
  }
}

TEST_CASE(
    "that memory is short is looked at when a loss has been answered, and not waited for without rest") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1), w.on(fill(2, kFourBlocks), w.w2)}, {1, 2});
  const msg::Plan plan = w.log<msg::Plan>(2).at(0);
  w.lose_first();
  w.now += kSecond / 10;
  const msg::PlannedOp& mine = plan.ops[plan.ops[0].placement.owned_count(w.w2.devices[0]) > 0 ? 0 : 1];
  w.receive(2, msg::Stuck{plan.graph, mine.id, w.w2.devices[0], 80, 0});
  CHECK(w.count<msg::GraphDone>(10) == 0);
  CHECK(w.core.next_deadline() > w.now);
  w.answer(2);
  w.wait(kSecond);
  CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kOutOfMemory);
}

TEST_CASE("memory that is refused to what is made again is a typed error naming the array") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1)}, {1});
  w.complete(w.log<msg::Plan>(1)[0]);
  w.lose_first();
  w.answer(2);
  const msg::Recover recover = w.log<msg::Recover>(2).at(0);
  w.receive(
      2, msg::TaskFailed{recover.plans[0].ops[0].id, w.w2.devices[0], 1, {Errc::kOutOfMemory, "no memory"}});
  w.complete(recover.plans[0], 1);
  const msg::Outcome lost = w.submit(10, 2, {map(2, kFourBlocks, {1})}, {2}).outcome;
  CHECK(lost.code == Errc::kOutOfMemory);
  CHECK(mentions(lost.message, "array 1"));
  CHECK(mentions(lost.message, "no memory"));
}

TEST_CASE("a loss that concerns nobody asks nobody") {
  Losing w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w2)}, {1});
  w.lose_first();
  CHECK(w.log<msg::PeerLost>(2).at(0).ops.empty());
  CHECK(w.log<msg::Recover>(2).size() == 1);
  w.complete(w.log<msg::Plan>(2)[0]);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

}  // namespace
}  // namespace tilewise::scheduler::test
