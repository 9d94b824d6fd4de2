#include "core_world.h"

#include <doctest/doctest.h>

namespace tilewise::scheduler::test {
namespace {

constexpr std::int64_t kBytes = 64 * 64 * 8;

msg::Explanation account(World& w, GraphId graph) {
  msg::Explain question;
  question.submit.request = 70;
  question.graph = graph;
  question.account = true;
  w.receive(10, question);
  return *w.last<msg::Explanation>(10);
}

msg::Submit asking(std::uint64_t request, std::vector<ir::Op> ops, std::vector<std::uint64_t> holds) {
  msg::Submit submit{request, 0, std::move(ops), std::move(holds)};
  submit.account = true;
  return submit;
}

TEST_CASE("an account has what was predicted when the graph came, beside what was measured") {
  World w;
  const msg::Welcome me = w.add_worker(1, 2);
  w.join(10, w.client());
  const std::vector<ir::Op> ops{random(1, kEightByEight), map(2, kEightByEight, {1})};
  msg::Explain before;
  before.submit = {1, 0, ops, {2}};
  w.receive(10, before);
  const msg::Explanation predicted = *w.last<msg::Explanation>(10);
  REQUIRE(predicted.simulated);

  w.receive(10, asking(1, ops, {2}));
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  const std::size_t last = plan.ops.size() - 1;
  w.wait(2 * kSecond);
  msg::Explanation told = account(w, plan.graph);
  CHECK(told.request == 70);
  CHECK(told.measured.known);
  CHECK(told.measured.running);
  CHECK(told.measured.tasks_done == 0);
  CHECK(told.measured.seconds == doctest::Approx(2));
  CHECK(told.measured.ops[0].begin_s == -1);

  // All of it in one report, which ends the graph: what is told of devices and links in that is the graph's too.
  msg::Progress progress;
  for (const msg::PlannedOp& op : plan.ops) {
    for (const DeviceId device : me.devices) {
      const std::int64_t owned = op.placement.owned_count(device);
      progress.ops.push_back({op.id, device, owned, 0});
      progress.measured.push_back({op.id, device, 1'000'000, 100});
    }
  }
  progress.devices = {
      {.device = me.devices[0], .bytes_used = 700, .disk_written = 64, .disk_read = 32, .bytes_high = 900}};
  progress.pairs = {{me.devices[0], me.devices[1], msg::Lane::kPeerCopy, 3, 4096, 5'000'000}};
  // What it knows of speeds by then is no part of the prediction.
  progress.families = {{me.devices[0], "map", 100, 1'000'000'000, 1'000}};
  w.receive(1, progress);
  told = account(w, plan.graph);
  CHECK(!told.measured.running);
  CHECK(told.measured.alone);
  CHECK(told.measured.outcome.ok());
  CHECK(told.measured.tasks_done == told.tasks);
  CHECK(told.simulated);
  CHECK(told.seconds == predicted.seconds);
  CHECK(told.critical == predicted.critical);
  CHECK(told.devices == predicted.devices);
  CHECK(told.ops == predicted.ops);
  REQUIRE(told.measured.ops.size() == plan.ops.size());
  const msg::MeasuredOp& op = told.measured.ops[last];
  CHECK(op.id == plan.ops[last].id);
  CHECK(op.op == last);
  CHECK(op.tasks == 64);
  CHECK(op.busy_s == doctest::Approx(0.002));
  CHECK(op.busiest_s == doctest::Approx(0.001));
  CHECK(op.bytes_moved == 200);
  CHECK(op.begin_s == doctest::Approx(2));
  REQUIRE(told.measured.devices.size() == 2);
  CHECK(told.measured.devices[0].bytes_peak == 900);
  CHECK(told.measured.devices[0].bytes_spilled == 64);
  CHECK(told.measured.devices[0].bytes_returned == 32);
  CHECK(told.measured.devices[1].busy_s == doctest::Approx(0.001 * static_cast<double>(plan.ops.size())));
  REQUIRE(told.measured.links.size() == 1);
  CHECK(told.measured.links[0].bytes == 4096);
  CHECK(told.measured.links[0].lane == msg::Lane::kPeerCopy);
  CHECK(told.measured.links[0].busy_s == doctest::Approx(0.005));
  // Nor does it end with the graph's arrays.
  w.receive(10, msg::ReleaseArrays{{2}});
  w.apply_logs();
  const msg::Explanation later = account(w, plan.graph);
  CHECK(later.devices == predicted.devices);
  CHECK(later.measured.ops == told.measured.ops);
  CHECK(later.measured.devices == told.measured.devices);
}

TEST_CASE("nothing is kept of graphs whose account nobody asked for, and of the others the last") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {random(1, kEightByEight)}, {1});
  const GraphId plain = w.log<msg::Plan>(1).back().graph;
  CHECK(account(w, plain).outcome.code == Errc::kNotFound);
  w.receive(10, asking(2, {random(2, kEightByEight)}, {2}));
  const msg::Plan first = w.log<msg::Plan>(1).back();
  CHECK(!account(w, first.graph).measured.alone);  // the plain one runs
  w.complete(first);
  for (std::uint64_t n = 3; n <= 70; ++n) {
    w.receive(10, asking(n, {random(n, kEightByEight)}, {n}));
    w.complete(w.log<msg::Plan>(1).back());
  }
  CHECK(account(w, first.graph).outcome.code == Errc::kNotFound);
  const msg::Explanation last = account(w, w.log<msg::Plan>(1).back().graph);
  CHECK(last.simulated);
  CHECK(last.devices[0].bytes_before >= kBytes);
}

TEST_CASE("where ended graphs are remembered, an account that was not asked for has what was measured") {
  Options options;
  options.history_graphs = 2;
  World w(std::move(options));
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {random(1, kEightByEight)}, {1});
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  w.complete(plan);
  const msg::Explanation told = account(w, plan.graph);
  REQUIRE(told.outcome.ok());
  CHECK(!told.simulated);
  CHECK(told.unpredicted.find("not asked") != std::string::npos);
  REQUIRE(told.ops.size() == 1);
  CHECK(told.ops[0].op.find("op 0") == 0);
  REQUIRE(told.measured.ops.size() == 1);
  CHECK(told.measured.ops[0].tasks == 64);
}

TEST_CASE("what does not fit is refused with figures: for what a step reads, and where results are held") {
  World w;
  w.join(10, w.client());
  msg::Join small = w.worker(2, "w", 4 * kBytes);
  w.join(1, small);
  const DeviceId first{2};  // 1 is the client's
  const auto refused = [&](std::uint64_t request, std::vector<ir::Op> ops, std::vector<std::uint64_t> holds) {
    const std::size_t plans = w.log<msg::Plan>(1).size();
    const msg::SubmitReply reply = w.submit(10, request, std::move(ops), std::move(holds));
    CHECK(reply.outcome.code == Errc::kOutOfMemory);
    CHECK(w.log<msg::Plan>(1).size() == plans);
    REQUIRE(reply.needs.size() >= 1);
    return reply.needs[0];
  };
  SUBCASE("a step's inputs") {
    // Products of blocks of 2 kBytes: two to read and one to write pass 4.
    const ir::Grid one = grid({64, 128}, {64, 128}), square = grid({128, 64}, {128, 64});
    ir::Op a = random(1, one), b = random(2, square, 8), c = matmul(3, one, 1, square, 2);
    for (ir::Op* op : {&a, &b, &c}) op->hint.devices = {first};
    const msg::SubmitReply fits = w.submit(10, 1, {a, b}, {1});
    CHECK(fits.outcome.ok());
    const ir::Grid wide = grid({128, 128}, {128, 128});
    ir::Op d = random(4, wide), e = random(5, wide, 9), f = matmul(6, wide, 4, wide, 5);
    for (ir::Op* op : {&d, &e, &f}) op->hint.devices = {first};
    const msg::NeedAccount need = refused(2, {d, e, f}, {6});
    CHECK(need.needed_bytes == 3 * 4 * kBytes);
    CHECK(need.input_bytes == 2 * 4 * kBytes);
    CHECK(need.output_bytes == 4 * kBytes);
    CHECK(need.memory_bytes == 4 * kBytes);
    CHECK(need.devices == std::vector<DeviceId>{first});
    CHECK(need.op.find("matmul") != std::string::npos);
  }
  SUBCASE("a tape's outputs: one of them takes its operand's memory") {
    const ir::Grid one = grid({64, 128}, {64, 128});                                    // of 2 kBytes
    const auto graph = [&](std::uint64_t from, ir::DType dtype, std::uint64_t count) {  // of running sums
      ir::Op sums = map(from + 1, one, {from}), maps = map(from + 2, one, {from + 1}, ir::TapeOp::kAdd);
      sums.kind = ir::OpKind::kScan;
      sums.attrs = ir::ScanAttrs{};
      ir::Tape& tape = *ir::tape_of(maps);
      tape.code[1] = {.op = ir::TapeOp::kCast, .dtype = dtype};
      tape.outputs.assign(count, 1);
      maps.outputs.resize(count, maps.outputs[0]);
      for (std::uint64_t i = 0; i < count; ++i)
        maps.outputs[i].array = from + 2 + i, maps.outputs[i].dtype = dtype;
      std::vector<ir::Op> ops{random(from, one), sums, maps};
      for (ir::Op& op : ops) op.hint.devices = {first};
      return ops;
    };
    CHECK(w.submit(10, 1, graph(1, ir::DType::kFloat64, 2), {3}).outcome.ok());
    const msg::NeedAccount need = refused(2, graph(11, ir::DType::kFloat32, 3), {13});
    CHECK(need.needed_bytes == 5 * kBytes);
    CHECK(need.input_bytes == 2 * kBytes);
    CHECK(need.output_bytes == 3 * kBytes);
  }
  SUBCASE("results of one device, though all together have room") {
    ir::Op a = random(1, kEightByEight), b = random(2, kEightByEight, 8), c = random(3, kEightByEight, 9);
    const ir::Grid twice = grid({128, 64}, {8, 8});
    ir::Op d = random(4, twice, 10);
    for (ir::Op* op : {&a, &b, &c, &d}) op->hint.devices = {first};
    CHECK(w.submit(10, 1, {a, b, c}, {1, 2, 3}).outcome.ok());
    for (std::uint64_t n = 1; n <= 3; ++n) w.receive(10, msg::ReleaseArrays{{n}});
    a.outputs[0].array = 11, b.outputs[0].array = 12, c.outputs[0].array = 13, d.outputs[0].array = 14;
    const msg::NeedAccount need = refused(2, {a, b, c, d}, {11, 12, 13, 14});
    CHECK(need.held_bytes == 5 * kBytes);
    CHECK(need.needed_bytes == 5 * kBytes);
    CHECK(need.memory_bytes == 4 * kBytes);
    CHECK(need.devices == std::vector<DeviceId>{first});
  }
  SUBCASE("all results, on all devices") {
    const ir::Grid large = grid({64 * 9, 64}, {8, 8});
    const msg::NeedAccount need = refused(1, {random(1, large)}, {1});
    CHECK(need.needed_bytes == 9 * kBytes);
    CHECK(need.memory_bytes == 8 * kBytes);
    CHECK(need.devices.size() == 2);
  }
  SUBCASE("what lies below has room") {
    msg::Join spills = w.worker(1, "x", 2 * kBytes);
    spills.devices[0].spill_bytes = 8 * kBytes;
    const msg::Welcome joined = w.join(2, spills);
    ir::Op a = random(1, grid({64 * 9, 64}, {8, 8}));
    a.hint.devices = {joined.devices[0]};
    CHECK(w.submit(10, 1, {a}, {1}).outcome.ok());
  }
}

}  // namespace
}  // namespace tilewise::scheduler::test
