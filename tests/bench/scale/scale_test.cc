// The paper machine itself, and that what the real core plans can be run on it.
#include "placed.h"
#include "rivals.h"

#include <doctest/doctest.h>

#include <array>
#include <numeric>

namespace tilewise::scale {
namespace {

// Hand-made graphs: one op, tasks of one step.
struct Task {
  std::vector<std::uint32_t> reads;
  float seconds = 1;
  std::uint32_t bytes = 1000;
};
Unrolled graph_of(const std::vector<Task>& tasks) {
  Unrolled g;
  g.ops.push_back({OpId{1}, "map", 0, static_cast<std::uint32_t>(tasks.size()), false, {}});
  g.first_step.push_back(0);
  g.first_read.push_back(0);
  for (const Task& task : tasks) {
    g.op_of.push_back(0);
    g.bytes.push_back(task.bytes);
    g.step_s.push_back(task.seconds);
    g.reads.insert(g.reads.end(), task.reads.begin(), task.reads.end());
    g.first_read.push_back(static_cast<std::uint32_t>(g.reads.size()));
    g.first_step.push_back(g.steps());
  }
  return g;
}
Machine machine_of(int devices, int a_host) {
  Machine m;
  for (int d = 0; d < devices; ++d)
    m.devices.push_back({DeviceId{static_cast<std::uint32_t>(d + 2)}, place::kHostKind,
                         static_cast<std::uint32_t>(d / a_host), 0,
                         WorkerId{static_cast<std::uint32_t>(d + 2)}});
  return m;
}

TEST_CASE("a chain on one device takes the sum, a slower device more, and leaves no bytes but the peak") {
  const Unrolled g = graph_of({{{}, 1}, {{0}, 2}, {{1}, 3}});
  Machine m = machine_of(1, 1);
  const Outcome one = run(g, m, {0, 0, 0});
  CHECK(one.seconds == doctest::Approx(6));
  CHECK(one.moved_bytes == 0);
  CHECK(one.peak_bytes == 2000);  // a task's input and output, never all three
  m.slower = {2.5};
  CHECK(run(g, m, {0, 0, 0}).seconds == doctest::Approx(15));
  CHECK(lower_bound_s(g, m, 0) == doctest::Approx(15));
}

TEST_CASE("bytes take the time of their link, once a device, and ports serve one after the other") {
  const std::uint32_t bytes = 2'500'000'000;  // a second between hosts
  const Machine far = machine_of(3, 1), near = machine_of(3, 3);
  const Unrolled twice = graph_of({{{}, 1, bytes}, {{0}, 1}, {{0}, 1}});
  const Outcome once = run(twice, far, {0, 1, 1});
  CHECK(once.seconds == doctest::Approx(1 + 1 + 60e-6 + 2));
  CHECK(once.moved_bytes == bytes);
  CHECK(once.crossing_bytes == bytes);
  const Outcome both = run(twice, far, {0, 1, 2});
  CHECK(both.seconds == doctest::Approx(1 + 2 + 60e-6 + 1));  // the second copy leaves after the first
  CHECK(both.moved_bytes == 2ll * bytes);
  const Outcome mapped = run(twice, near, {0, 1, 2});
  CHECK(mapped.moved_bytes == 0);
  CHECK(mapped.seconds == doctest::Approx(2 + 1e-6));
}

TEST_CASE("by trees, a block crosses each host boundary once, and two hosts send on to two each") {
  const std::uint32_t bytes = 2'500'000'000;  // a second between hosts, half a second between GPUs of one
  // Made on the first of 8 hosts of 2 devices, read by all.
  std::vector<Task> tasks{{{}, 1, bytes}};
  std::vector<std::int32_t> owners{0};
  for (std::int32_t d = 0; d < 16; ++d) {
    tasks.push_back({{0}, 1});
    owners.push_back(d);
  }
  const Unrolled g = graph_of(tasks);
  Machine m = machine_of(16, 2);
  for (place::Device& d : m.devices) d.kind = place::kCudaKind;
  m.tree_bytes = bytes;
  const Outcome star = run(g, m, owners);
  CHECK(star.moved_bytes == 15ll * bytes);
  CHECK(star.crossing_bytes == 14ll * bytes);
  CHECK(star.seconds == doctest::Approx(1 + 14.5 + 1).epsilon(1e-3));  // one after the other through one port
  m.tree_bytes = place::kTreeBytes;
  const Outcome tree = run(g, m, owners);
  CHECK(tree.moved_bytes == 15ll * bytes);
  CHECK(tree.crossing_bytes == 7ll * bytes);
  CHECK(tree.seconds < 8);
  // What is passed on is copied; only what the owner's host reads is read in place.
  for (place::Device& d : m.devices) d.kind = place::kHostKind;
  const Outcome mapped = run(g, m, owners);
  CHECK(mapped.moved_bytes == 14ll * bytes);
  CHECK(mapped.crossing_bytes == 7ll * bytes);
  CHECK(mapped.peak_bytes <= star.peak_bytes);
}

TEST_CASE("what another device waits for is made first") {
  // Block 2 is wanted elsewhere; 0 and 1 are not.
  const Unrolled g = graph_of({{{}, 1}, {{}, 1}, {{}, 1}, {{2}, 3}});
  CHECK(run(g, machine_of(2, 2), {0, 0, 0, 1}).seconds == doctest::Approx(4 + 1e-6));
}

TEST_CASE("Dask's rule: to the holder unless waiting there costs more than the bytes") {
  const Machine m = machine_of(2, 1);
  const Unrolled small = graph_of({{{}, 1}, {{0}, 1}, {{0}, 1}});
  CHECK(run(small, m, like_dask(1e6)).seconds == doctest::Approx(2).epsilon(0.01));
  CHECK(run(small, m, like_dask(1e2)).seconds == doctest::Approx(3));  // ten seconds of bytes: stays
}

TEST_CASE("no schedule beats the lower bound, and the core agrees that everything has run") {
  const Layout equal{.hosts = 2, .workers_a_host = 2, .devices_a_worker = 2};
  Layout unequal = equal;
  unequal.slower = {1, 1, 1, 3, 1, 1, 1, 3};
  for (const Layout& layout : {equal, unequal}) {
    Control control(layout);
    const int n = layout.devices();
    for (const Program& program : {random_program(n, 3), matmul_program(n), reductions_program(n),
                                   stencil_program(n), regression_program(n), rows_program(2000, 10)}) {
      CAPTURE(program.name);
      const msg::Plan& plan = control.submit(program);
      const Unrolled graph = unroll(plan);
      const Machine& machine = control.machine();
      const Outcome ours = run(graph, machine, owners(graph, plan, machine.devices), control.reporter(graph));
      control.deliver();
      CHECK(control.graph_done());
      control.core().check_invariants();
      const double bound_s = lower_bound_s(graph, machine, program.received_bytes);
      const std::size_t devices = machine.devices.size();
      const Outcome dealt = run(graph, machine, round_robin(graph, devices));
      const Outcome drawn = run(graph, machine, at_random(graph, devices, 1));
      const Outcome dask = run(graph, machine, like_dask());
      for (const Outcome& outcome : {ours, dealt, drawn, dask}) {
        CHECK(outcome.tasks == graph.tasks());
        CHECK(outcome.seconds >= bound_s * (1 - 1e-6));
      }
      CHECK(ours.seconds <= 1.2 * bound_s);
      CHECK(ours.seconds <= 1.05 * std::min({dealt.seconds, drawn.seconds, dask.seconds}));
    }
  }
}

TEST_CASE("products move what SUMMA moves, and in layers of k what 2.5D does") {
  const Layout gpus{.hosts = 2, .workers_a_host = 4, .kind = place::kCudaKind};
  constexpr std::int64_t kSide = 8192;
  const auto moved = [&](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t parts) {
    Control control(gpus);
    const msg::Plan& plan = control.submit(matmul_program(m, n, k, 1024, gpus.devices(), parts));
    const Unrolled graph = unroll(plan);
    const Machine& machine = control.machine();
    const Outcome outcome =
        run(graph, machine, owners(graph, plan, machine.devices), control.reporter(graph));
    control.deliver();
    CHECK(control.graph_done());
    return static_cast<double>(outcome.moved_bytes) / (8.0 * 1024 * 1024);  // blocks
  };
  CHECK(moved(kSide, kSide, kSide, 0) == 4 * 64);          // 2 x 4 devices: 3 |A| + |B|
  CHECK(moved(kSide, kSide, kSide, 2) == 3 * 64);          // 2 layers of 2 x 2: |A| + |B| + |C|
  CHECK(moved(2048, 2048, 16 * 1024, 8) == 7 * 4);         // 8 layers of one device: 7 |C|
  CHECK(moved(2048, 2048, 16 * 1024, 16) == 7 * 4);        // two parts a device: summed there first
  CHECK(moved(1024, 16 * 1024, 1024, 0) <= 1.01 * 7 * 1);  // B and C stay, A goes everywhere
}

// Each of eight hosts has a row of `parts` blocks; all rows are summed, and every host reads the whole sum.
Program all_reduce(const Control& control, std::int64_t parts) {
  constexpr std::int64_t kHosts = 8, kWidth = 8 << 20;
  Recorder r;
  const ir::Source x = r.random({kHosts, kWidth}, {1, kWidth / parts});
  const ir::Source sum = r.sum(x, std::vector{0});
  r.hold(r.add(x, sum));
  Program program = r.take("all-reduce");
  for (ir::Op& op : program.ops) {
    if (op.outputs[0].grid.shape()[0] != kHosts) continue;
    for (const place::Device& device : control.machine().devices) op.hint.devices.push_back(device.id);
    op.hint.parts = {kHosts, 1};
  }
  return program;
}

TEST_CASE("what all read of a sum, where it is cut, is a reduce-scatter and an all-gather") {
  Control control({.hosts = 8});
  const auto run_with = [&](std::int64_t parts) {
    return place_and_run(control, all_reduce(control, parts)).outcome;
  };
  const Outcome whole = run_with(1), cut = run_with(8);
  constexpr std::int64_t kBytes = std::int64_t{8} * (8 << 20);
  CHECK(cut.moved_bytes ==
        2 * 7 * kBytes);  // the least there is (Patarasuk and Yuan 2009): no byte more than once to a host
  CHECK(whole.moved_bytes == 2 * 7 * kBytes);
  CHECK(cut.seconds <= 0.5 * whole.seconds);  // all ports at once, not one after the other
}

TEST_CASE("explain tells the bytes between hosts that trees send") {
  const Layout gpus{.hosts = 4, .workers_a_host = 4, .kind = place::kCudaKind};
  const Layout cores{.hosts = 4, .workers_a_host = 4};
  bool saved = false;
  for (const Layout& layout : {gpus, cores}) {
    for (const auto& [m, n, k] : {std::array{8192, 8192, 8192}, std::array{1024, 32768, 1024}}) {
      Control control(layout);
      const Program program = matmul_program(m, n, k, 1024, layout.devices(), 0);
      const Machine& machine = control.machine();
      const auto host_of = [&](DeviceId id) -> std::int64_t {
        for (const place::Device& device : machine.devices)
          if (device.id == id) return device.host;
        return -1;  // the client's
      };
      std::int64_t told = 0;
      const msg::Explanation before = control.explain(program);
      CHECK(before.simulated);
      for (const msg::LinkAccount& link : before.links) {
        const std::int64_t from = host_of(link.from), to = host_of(link.to);
        if (from >= 0 && to >= 0 && from != to) told += link.bytes;
      }
      const msg::Plan& plan = control.submit(program);
      const Unrolled graph = unroll(plan);
      Machine star = machine;
      star.tree_bytes = INT64_MAX;
      const std::vector<std::int32_t> where = owners(graph, plan, machine.devices);
      const Outcome trees = run(graph, machine, where);
      CHECK(told == trees.crossing_bytes);
      const Outcome direct = run(graph, star, where);
      CHECK(trees.crossing_bytes <= direct.crossing_bytes);
      saved |= trees.crossing_bytes < direct.crossing_bytes;
    }
  }
  CHECK(saved);
}

TEST_CASE("a rule's owners are those of the plan") {
  Control control({.hosts = 2, .workers_a_host = 4});
  const Program program = stencil_program(8);
  const msg::Plan& plan = control.submit(program);
  const Unrolled graph = unroll(plan);
  const std::vector<std::int32_t> all = owners(graph, plan, control.machine().devices);
  REQUIRE(all.size() == graph.tasks());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (std::size_t d = 0; d < control.machine().devices.size(); ++d) {
      const auto first = all.begin() + graph.ops[o].first_task;
      CHECK(std::count(first, first + graph.ops[o].tasks, static_cast<std::int32_t>(d)) ==
            plan.ops[o].placement.owned_count(control.machine().devices[d].id));
    }
  }
}

TEST_CASE("the least of many numbers, and the first of equal ones") {
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{64}}) {
    Least least(count);
    std::uint64_t draw = 1;
    for (int i = 0; i < 500; ++i) {
      const auto& all = least.values();
      CHECK(least.place() == std::min_element(all.begin(), all.end()) - all.begin());
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      least.add((draw >> 33) % count, static_cast<double>((draw >> 40) % 5) - 1.5);
    }
  }
}

TEST_CASE(
    "large programs have about as many tasks as they are asked for, and messages to workers are counted") {
  Control control({.hosts = 2, .workers_a_host = 2});
  constexpr std::int64_t kTasks = 4000;
  for (const Program& program :
       {large_random_program(kTasks, 1), large_matmul_program(4, kTasks), large_reductions_program(kTasks),
        large_stencil_program(kTasks), large_regression_program(kTasks)}) {
    CAPTURE(program.name);
    const Placed placed = place_and_run(control, program);
    CHECK(placed.graph.tasks() > kTasks / 2);
    CHECK(placed.graph.tasks() < 2 * kTasks);
    CHECK(placed.outcome.seconds >=
          lower_bound_s(placed.graph, control.machine(), program.received_bytes) * (1 - 1e-6));
    CHECK(placed.core_s > 0);
    CHECK(placed.wire.messages >= 4);  // a plan to each worker
    CHECK(placed.wire.bytes > 4 * 100);
    CHECK(placed.wire.seconds > 0);
  }
}

}  // namespace
}  // namespace tilewise::scale
