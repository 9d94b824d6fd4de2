#include "paper_graph.h"

#include <tilewise/ir/cost.h>
#include <tilewise/place/levels.h>

#include <algorithm>

namespace tilewise::place {
namespace {

using Reads = PaperGraph::Reads;

std::vector<Device> apart(int n, std::int64_t memory_bytes = 0) {
  std::vector<Device> out;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(n); ++i)
    out.push_back(
        {.id = DeviceId{i + 1}, .host = i, .worker = WorkerId{i + 1}, .memory_bytes = memory_bytes});
  return out;
}

std::int64_t peak(const Simulation& s) {
  std::int64_t most = 0;
  for (const SimDevice& d : s.devices) most = std::max(most, d.bytes_peak);
  return most;
}

// LU without pivoting of n x n tiles on a grid of side x side devices, tile by tile in turn: of each step a corner, the row and
// the column beside it, and what is left.
PaperGraph factorisation(std::int64_t n, std::int64_t side) {
  PaperGraph g(16'384);
  const auto device = [side](std::int64_t i, std::int64_t j) {
    return static_cast<std::uint32_t>(i % side * side + j % side + 1);
  };
  std::size_t rest = g.exists(n * n, [&](std::int64_t p) { return device(p / n, p % n); });
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t left = n - k - 1;
    const auto at = [&](std::int64_t i, std::int64_t j) { return (i - k) * (n - k) + j - k; };  // in `rest`
    const auto l = g.op(
        1, [&](std::int64_t) { return device(k, k); }, {{rest, {{at(k, k)}}}}, 4e7);
    if (left == 0) break;
    Reads mine, diagonal(static_cast<std::size_t>(2 * left), {0});
    for (std::int64_t i = 1; i <= left; ++i) mine.push_back({at(k + i, k)});
    for (std::int64_t j = 1; j <= left; ++j) mine.push_back({at(k, k + j)});
    const auto sides = g.op(
        2 * left,
        [&](std::int64_t p) { return p < left ? device(k + 1 + p, k) : device(k, k + 1 + p - left); },
        {{rest, mine}, {l, diagonal}}, 1e7);
    Reads own, beside;
    for (std::int64_t i = 0; i < left; ++i) {
      for (std::int64_t j = 0; j < left; ++j) {
        own.push_back({at(k + 1 + i, k + 1 + j)});
        beside.push_back({i, left + j});
      }
    }
    rest = g.op(
        left * left, [&](std::int64_t p) { return device(k + 1 + p / left, k + 1 + p % left); },
        {{rest, own}, {sides, beside}}, 1e7);
  }
  return g;
}

// Stages on devices of their own, through which the parts of a batch go, and back if told. Each stage also makes an account of
// each part, as long as the stage itself takes, that the first device collects.
struct Pipeline {
  static constexpr double kFlops = 2e7;
  PaperGraph graph{16'384};
  int stages;
  Pipeline(int n, int parts, bool back, bool accounts) : stages(n) {
    const auto on = [](int s) { return [s](std::int64_t) { return static_cast<std::uint32_t>(s + 1); }; };
    for (int p = 0; p < parts; ++p) {
      std::vector<std::size_t> made{graph.exists(1, on(0), true)};
      for (int s = 0; s < n; ++s) {
        const std::size_t in = made.back();
        if (accounts && s > 0) {
          const std::size_t account = graph.op(1, on(s), {{in, {{0}}}}, kFlops);
          graph.op(1, on(0), {{account, {{0}}}}, 0, true);
        }
        made.push_back(graph.op(1, on(s), {{in, {{0}}}}, kFlops, !back && s + 1 == n));
      }
      std::size_t grad = made.back();
      for (int s = n; back && s-- > 0;)
        grad =
            graph.op(1, on(s), {{grad, {{0}}}, {made[static_cast<std::size_t>(s)], {{0}}}}, kFlops, s == 0);
    }
  }
  Simulation run(bool by_level, std::int64_t memory_bytes = 0) const {
    return graph.run(apart(stages, memory_bytes), Speeds{}, by_level);
  }
};

const auto kOne = [](std::int64_t) { return 1u; };
const auto kTwo = [](std::int64_t) { return 2u; };

std::vector<std::int64_t> levels_of(const PaperGraph& g, const std::vector<Device>& devices,
                                    const Speeds& speeds = {}) {
  Levels levels(devices, speeds);
  for (const SimOp& op : g.sim) {
    std::vector<Input> inputs;
    for (const std::size_t a : op.inputs) inputs.push_back({&g.arrays[a].source, g.arrays[a].placement});
    levels.add(*op.op, op.geometry, *op.placement, inputs);
  }
  return levels.nanoseconds();
}

TEST_CASE("a level is the longest way to the end: steps, and blocks between devices") {
  PaperGraph g(1024);
  const auto a = g.exists(1, kOne);
  const auto b = g.op(1, kOne, {{a, {{0}}}}, 2e6);  // about 0.1 ms each
  const auto c = g.op(1, kTwo, {{b, {{0}}}}, 2e6);
  g.op(1, kTwo, {{c, {{0}}}}, 2e6);
  g.op(1, kOne, {{b, {{0}}}}, 2e6);
  const auto devices = apart(2);
  const double step_ns = ir::model_step_ns(g.geometries[0], {0});
  const LinkSpeed link = link_between(devices[0], devices[1]);
  const double moves_ns = 1e9 * (link.latency_s + static_cast<double>(g.block_bytes()) / link.bytes_per_s);
  const std::vector<std::int64_t> levels = levels_of(g, devices);
  REQUIRE(levels.size() == 4);
  CHECK(static_cast<double>(levels[3]) == doctest::Approx(step_ns));
  CHECK(static_cast<double>(levels[2]) == doctest::Approx(step_ns));
  CHECK(static_cast<double>(levels[1]) == doctest::Approx(2 * step_ns));
  CHECK(static_cast<double>(levels[0]) == doctest::Approx(3 * step_ns + moves_ns));
  Speeds measured;  // the second device is ten times as slow
  measured.learn(devices[0], "call k", 1'000'000, 1'000'000);
  measured.learn(devices[1], "call k", 10'000'000, 1'000'000);
  CHECK(static_cast<double>(levels_of(g, devices, measured)[0]) == doctest::Approx(21 * step_ns + moves_ns));
}

TEST_CASE("who reads much of an op waits for all that one device makes of it") {
  PaperGraph g(1024);
  const auto a = g.exists(8, kOne);
  Reads each, all(1);
  for (std::int64_t i = 0; i < 8; ++i) each.push_back({i}), all[0].push_back(i);
  const auto halves = [](std::int64_t p) { return p < 4 ? 1u : 2u; };
  const auto b = g.op(8, halves, {{a, each}}, 2e6);
  g.op(1, kOne, {{b, all}}, 2e6);
  const std::vector<std::int64_t> levels = levels_of(g, apart(2));
  const double step_ns = ir::model_step_ns(g.geometries[0], {0});
  CHECK(static_cast<double>(levels[0] - levels[1]) >= 4 * step_ns);
  CHECK(static_cast<double>(levels[0] - levels[1]) <= 5 * step_ns);
}

TEST_CASE("a factorisation looks ahead: the next corner is made before the rest of the step") {
  struct Case {
    std::int64_t n, side;
    double at_most;  // of the time that the order of the plan takes
  };
  for (const Case& c : {Case{8, 2, 0.94}, Case{12, 3, 0.98}, Case{16, 4, 0.93}, Case{24, 6, 0.86}}) {
    CAPTURE(c.n);
    const PaperGraph g = factorisation(c.n, c.side);
    const auto devices = apart(static_cast<int>(c.side * c.side));
    const Simulation before = g.run(devices, Speeds{}, false), ahead = g.run(devices, Speeds{}, true);
    CHECK(ahead.seconds <= c.at_most * before.seconds);
    CHECK(ahead.tasks == before.tasks);
    CHECK(peak(ahead) <= 1.2 * static_cast<double>(peak(before)));
  }
}

TEST_CASE(
    "a pipeline of 4 stages and 12 parts overlaps as much as it can, whatever else its results are for") {
  const Pipeline plain(4, 12, false, false), back(4, 12, true, false), accounts(4, 12, false, true);
  const double step_s = ir::model_step_ns(plain.graph.geometries[0], {0}) * 1e-9;
  CHECK(plain.run(true).seconds <= plain.run(false).seconds);
  CHECK(plain.run(true).seconds <= (12 + 3) * step_s * 1.03);
  CHECK(back.run(true).seconds <= back.run(false).seconds);
  // What they are collected for ends nothing that others wait for: it goes when a stage has nothing else to do.
  CHECK(accounts.run(true).seconds <= 0.65 * accounts.run(false).seconds);
}

TEST_CASE("while memory is short, what lets go of some goes before the critical path") {
  const Pipeline back(4, 12, true, false);
  const Simulation ample = back.run(true), tight = back.run(true, static_cast<std::int64_t>(peak(ample)));
  CHECK(peak(tight) <= 0.85 * static_cast<double>(peak(ample)));
  CHECK(tight.seconds == doctest::Approx(ample.seconds));  // here it costs nothing
}

TEST_CASE("partial results do not pile up because what is made of them is nearer to the end") {
  constexpr std::int64_t kSums = 40;
  PaperGraph g(16'384);
  const auto a = g.exists(1, kTwo, true);
  Reads each, pairs;
  for (std::int64_t i = 0; i < kSums; ++i) {
    pairs.push_back({2 * i, 2 * i + 1});
    for (int twice = 0; twice < 2; ++twice) each.push_back({0});
  }
  const auto partial = g.op(2 * kSums, kOne, {{a, each}}, 2e6);
  const auto sums = g.op(kSums, kOne, {{partial, pairs}}, 0);
  Reads all(1);
  for (std::int64_t i = 0; i < kSums; ++i) all[0].push_back(i);
  g.op(1, kTwo, {{sums, all}}, 0);
  const Simulation s = g.run(apart(2), Speeds{}, true);
  CHECK(s.devices[0].bytes_peak <= 8 * g.block_bytes());
}

}  // namespace
}  // namespace tilewise::place
