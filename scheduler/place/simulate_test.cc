#include <tilewise/place/simulate.h>

#include <tilewise/ir/cost.h>
#include <tilewise/place/place.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

namespace tilewise::place {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements of a block: 8192 bytes

// A chain of maps over vectors of blocks, placed by hand.
struct Plan {
  std::deque<ir::Op> ops;
  std::deque<ir::Geometry> geometries;
  std::deque<ir::Placement> placements;
  std::vector<SimOp> sim;
  std::vector<SimArray> arrays;

  std::int64_t block = kBlock;

  ir::Grid grid(std::int64_t blocks) { return *ir::Grid::uniform({blocks * block}, {block}); }
  std::size_t exists(std::int64_t blocks, ir::Placement placement, bool held) {
    placements.push_back(std::move(placement));
    arrays.push_back({{ir::DType::kFloat64, grid(blocks)}, &placements.back(), true, held});
    return arrays.size() - 1;
  }
  // out = sum of the operands, element by element.
  std::size_t map(std::int64_t blocks, std::vector<std::size_t> operands, ir::Placement placement, bool held,
                  std::size_t results = 1) {
    ir::Op op;
    op.kind = ir::OpKind::kMap;
    op.space = grid(blocks);
    op.outputs = {{100 + arrays.size(), ir::DType::kFloat64, op.space}};
    ir::Tape tape;
    std::vector<ir::SourceArray> sources;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      op.operands.push_back({100 + operands[i], ir::View::identity(op.space.shape())});
      sources.push_back(arrays[operands[i]].source);
      ir::TapeInstr load;
      load.op = ir::TapeOp::kLoad;
      load.imm_i = static_cast<std::int64_t>(i);
      tape.code.push_back(load);
    }
    if (operands.size() == 2) {
      ir::TapeInstr add;
      add.op = ir::TapeOp::kAdd, add.a = 0, add.b = 1;
      tape.code.push_back(add);
    }
    if (operands.empty()) tape.code.push_back({});
    for (std::size_t i = 1; i < results; ++i)
      op.outputs.push_back({100 + arrays.size() + i, ir::DType::kFloat64, op.space});
    if (results > 1) tape.outputs.assign(results, static_cast<std::uint16_t>(tape.code.size() - 1));
    op.attrs = ir::MapAttrs{tape};
    ops.push_back(std::move(op));
    auto geometry = ir::Geometry::make(ops.back(), sources);
    REQUIRE_MESSAGE(geometry.has_value(), geometry.error().message);
    geometries.push_back(std::move(*geometry));
    placements.push_back(std::move(placement));
    std::vector<std::size_t> made;
    for (std::size_t i = 0; i < results; ++i) {
      arrays.push_back({{ir::DType::kFloat64, grid(blocks)}, &placements.back(), false, held});
      made.push_back(arrays.size() - 1);
    }
    sim.push_back({&ops.back(), &geometries.back(), &placements.back(), std::move(operands), made, {}});
    return made.front();
  }
  double step_s(std::size_t op) { return ir::model_step_ns(geometries[op], geometries[op].point(0)) * 1e-9; }
};

std::vector<Device> devices(int n, bool one_host) {
  std::vector<Device> out;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(n); ++i)
    out.push_back({.id = DeviceId{i + 1}, .host = one_host ? 0 : i, .worker = WorkerId{i + 1}});
  return out;
}
ir::Placement over(std::int64_t blocks, int n) {
  std::vector<DeviceId> ids;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(n); ++i) ids.push_back(DeviceId{i + 1});
  const ir::PerDim<double> even(1, 1.0);
  return tiled({blocks}, ids, even, false);
}

TEST_CASE("a chain on one device: every step, one after another, and what it holds at once") {
  Plan p;
  const auto a = p.map(4, {}, over(4, 1), false);
  const auto b = p.map(4, {a}, over(4, 1), true);
  (void)b;
  const auto cluster = devices(1, true);
  const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{});
  REQUIRE(s.complete);
  CHECK(s.tasks == 8);
  CHECK(s.seconds == doctest::Approx(4 * (p.step_s(0) + p.step_s(1))));
  CHECK(s.bound_s == doctest::Approx(s.seconds));
  CHECK(s.links.empty());
  // Results take the memory of what they are made of: nothing is held twice.
  CHECK(s.devices[0].bytes_peak == 4 * kBlock * 8);
  CHECK(s.devices[0].bytes_after == 4 * kBlock * 8);
  double critical = 0;
  for (const SimCritical& c : s.critical) critical += c.seconds;
  CHECK(critical == doctest::Approx(s.seconds));
}

TEST_CASE("outputs of a tape take the memory of operands that nobody reads later, each of another") {
  const auto peak = [](bool first_held, std::size_t results) {
    Plan p;
    const auto a = p.map(4, {}, over(4, 1), first_held), b = p.map(4, {}, over(4, 1), false);
    p.map(4, {a, b}, over(4, 1), true, results);
    const auto cluster = devices(1, true);
    const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{});
    REQUIRE(s.complete);
    return s.devices[0].bytes_peak / (kBlock * 8);
  };
  CHECK(peak(false, 2) == 8);
  CHECK(peak(true, 1) == 8);
  CHECK(peak(true, 2) == 12);
}

TEST_CASE("what is read elsewhere moves once a device, and is freed there after its last reader") {
  for (const bool one_host : {true, false}) {
    Plan p;
    const auto a = p.exists(8, over(8, 1), true);
    const auto b = p.map(8, {a}, over(8, 2), false);
    p.map(8, {b, a}, over(8, 2), true);
    const auto cluster = devices(2, one_host);
    const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{});
    REQUIRE(s.complete);
    REQUIRE(s.links.size() == 1);
    CHECK(s.links[0].from == DeviceId{1});
    CHECK(s.links[0].to == DeviceId{2});
    CHECK(s.links[0].blocks == 4);
    CHECK(s.links[0].bytes == 4 * kBlock * 8);
    CHECK(s.links[0].mapped == one_host);
    // Device 2: b and, where it is copied, a; the last op's results take b's place.
    const std::int64_t four = 4 * kBlock * 8;
    CHECK(s.devices[1].bytes_peak >= four);
    CHECK(s.devices[1].bytes_peak <= (one_host ? four : 2 * four));
    CHECK(s.devices[1].bytes_after == four);
    CHECK(s.seconds >= s.bound_s);
  }
}

TEST_CASE("blocks are used as soon as they are made") {
  Plan p;
  p.block = 16 * kBlock;  // small ones need not be let go of soon
  const auto a = p.map(1000, {}, over(1000, 1), false);
  const auto b = p.map(1000, {a, a}, over(1000, 1), false);
  p.map(1000, {b}, over(1000, 1), false);
  const Simulation s = simulate(p.sim, p.arrays, devices(1, true), Speeds{});
  REQUIRE(s.complete);
  CHECK(s.devices[0].tasks == 3000);
  CHECK(s.devices[0].bytes_peak <= 4 * p.block * 8);
  CHECK(s.devices[0].bytes_after == 0);
}

TEST_CASE("measured speeds count: a slow device ends last") {
  Plan p;
  p.map(8, {}, over(8, 2), true);
  const auto cluster = devices(2, true);
  Speeds speeds;
  speeds.learn(cluster[1], "map", 30'000'000, 10'000'000);
  CHECK(speeds.ratio(cluster[1], "map") == doctest::Approx(3));
  CHECK(speeds.ratio(cluster[0], "map") ==
        doctest::Approx(3));  // its own is not known, others of its kind are
  speeds.learn(cluster[0], "map", 1'000'000, 1'000'000);
  CHECK(speeds.ratio(cluster[0], "map") == doctest::Approx(1));
  const Simulation s = simulate(p.sim, p.arrays, cluster, speeds);
  CHECK(s.devices[1].busy_s == doctest::Approx(3 * s.devices[0].busy_s));
  CHECK(s.seconds == doctest::Approx(s.devices[1].busy_s));
  CHECK(s.critical.back().device == DeviceId{2});
}

TEST_CASE("a block that many devices read comes to each other host once, and leaves with its last reader") {
  constexpr int kHosts = 6, kEach = 3;
  constexpr std::int64_t kBytes = kBlock * 8;
  for (const std::uint8_t kind : {kHostKind, kCudaKind}) {
    for (const bool exists : {true, false}) {
      CAPTURE(kind);
      CAPTURE(exists);
      std::vector<Device> cluster = devices(kHosts * kEach, true);
      for (std::size_t d = 0; d < cluster.size(); ++d) {
        cluster[d].kind = kind;
        cluster[d].host = static_cast<std::uint32_t>(d / kEach);
      }
      cluster[0].load_bytes = exists ? kBytes : 0;
      Plan p;
      const auto on = [&](std::size_t d) {
        return ir::Placement::whole({1}, ir::Rule::constant(1, cluster[d].id));
      };
      const auto a = exists ? p.exists(1, on(0), false) : p.map(1, {}, on(0), false);
      for (std::size_t d = 0; d < cluster.size(); ++d) p.map(1, {a}, on(d), true);
      p.map(1, {a}, on(4), true);  // once more where it has come already
      const auto crossing = [&](const Simulation& s, int& blocks, int& inside) {
        std::int64_t bytes = 0;
        for (const SimLink& link : s.links) {
          const bool far = (link.from.value - 1) / kEach != (link.to.value - 1) / kEach;
          if (far) bytes += link.bytes, blocks += static_cast<int>(link.blocks);
          if (!far && !link.mapped) inside += static_cast<int>(link.blocks);
          CHECK((far ? !link.mapped : true));
        }
        return bytes;
      };
      int crossed = 0, inside = 0;
      const Simulation star = simulate(p.sim, p.arrays, cluster, Speeds{});  // too small for trees
      CHECK(crossing(star, crossed, inside) == (kHosts - 1) * kEach * kBytes);
      crossed = inside = 0;
      const Simulation tree = simulate(p.sim, p.arrays, cluster, Speeds{}, {.tree_bytes = kBytes - 1});
      REQUIRE(tree.complete);
      CHECK(crossing(tree, crossed, inside) == (kHosts - 1) * kBytes);
      CHECK(crossed == kHosts - 1);
      // Those of the owner's own host read it in place if they can; what is passed on is copied.
      CHECK(inside == (kHosts - 1) * (kEach - 1) + (kind == kHostKind ? 0 : kEach - 1));
      // The owner and the first leaders send to two hosts each; the leader of the sixth has it from the second's.
      const auto has = [&](std::uint32_t from, std::uint32_t to) {
        return std::any_of(tree.links.begin(), tree.links.end(),
                           [&](const SimLink& l) { return l.from.value == from && l.to.value == to; });
      };
      const std::pair<std::uint32_t, std::uint32_t> ways[] = {{1, 4}, {1, 7}, {4, 10}, {4, 13}, {7, 16}};
      for (const auto& [from, to] : ways) CHECK(has(from, to));
      for (const SimDevice& d : tree.devices) {  // results stay, copies do not
        CHECK(d.bytes_after == (d.id == cluster[4].id ? 2 : 1) * kBytes);
        CHECK(d.bytes_peak <= 3 * kBytes);
      }
      CHECK(tree.tasks == star.tasks);
    }
  }
}

TEST_CASE("trees save the owner's port: large blocks reach many hosts sooner") {
  std::vector<Device> cluster = devices(8 * 4, true);
  for (std::size_t d = 0; d < cluster.size(); ++d) cluster[d].host = static_cast<std::uint32_t>(d / 4);
  Plan p;
  const auto on = [&](std::size_t d) {
    return ir::Placement::whole({1}, ir::Rule::constant(1, cluster[d].id));
  };
  const auto a = p.exists(1, on(0), false);
  for (std::size_t d = 4; d < cluster.size(); ++d) p.map(1, {a}, on(d), true);
  constexpr double kEachS = kBlock * 8 / 1e5;  // of a block between hosts
  Speeds slow;
  for (const Device& from : cluster)
    for (const Device& to : cluster)
      if (from.host != to.host)
        slow.learn_link(from.worker, to.worker, Speeds::Way::kOtherHost, 2, 100, 10'000'000, 100'000'000'000);
  const double star = simulate(p.sim, p.arrays, cluster, slow).seconds;
  const double tree = simulate(p.sim, p.arrays, cluster, slow, {.tree_bytes = 1}).seconds;
  CHECK(star == doctest::Approx(28 * kEachS).epsilon(0.01));
  // The owner's two, each of theirs, and the seventh host from the third: 1, 2; 2, 3; 3, 4; 4.
  CHECK(tree == doctest::Approx(4 * kEachS).epsilon(0.01));
}

TEST_CASE("a block in parts is passed on while it comes, and takes hardly longer to many hosts than to one") {
  std::vector<Device> cluster = devices(8, true);
  for (std::size_t d = 0; d < cluster.size(); ++d) cluster[d].host = static_cast<std::uint32_t>(d);
  Speeds slow;
  for (const Device& from : cluster)
    for (const Device& to : cluster)
      if (from.host != to.host)
        slow.learn_link(from.worker, to.worker, Speeds::Way::kOtherHost, 2, 100, 10'000'000, 100'000'000'000);
  constexpr std::int64_t kLarge = 1 << 23;  // elements of a block: 64 MiB
  Plan p;
  p.block = kLarge;
  const auto on = [&](std::size_t d) {
    return ir::Placement::whole({1}, ir::Rule::constant(1, cluster[d].id));
  };
  const auto a = p.exists(1, on(0), false);
  for (std::size_t d = 1; d < cluster.size(); ++d) p.map(1, {a}, on(d), true);
  constexpr double kEachS = kLarge * 8 / 1e5;  // of a block between hosts
  const auto seconds = [&](const SimOptions& options) {
    return simulate(p.sim, p.arrays, cluster, slow, options).seconds / kEachS;
  };
  CHECK(seconds({.parts_bytes = INT64_MAX, .chain_bytes = INT64_MAX}) == doctest::Approx(4).epsilon(0.02));
  CHECK(seconds({.chain_bytes = INT64_MAX}) == doctest::Approx(3).epsilon(0.02));
  CHECK(seconds({}) == doctest::Approx(1 + 6.0 / 128).epsilon(0.02));
  // Seven leaders behind each other, each of which waits for the whole block.
  CHECK(seconds({.parts_bytes = INT64_MAX}) == doctest::Approx(7).epsilon(0.02));
}

TEST_CASE("a plan that is too large is counted, not run") {
  Plan p;
  p.map(1000, {}, over(1000, 2), true);
  const auto cluster = devices(2, true);
  const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{}, {.max_steps = 999});
  CHECK(!s.complete);
  CHECK(s.tasks == 1000);
  CHECK(s.seconds == 0);
}

TEST_CASE("within bounds: what is read last leaves for the tiers below, and comes back before it is read") {
  constexpr std::int64_t kElements = 16 * kBlock, kBytes = kElements * 8;  // small ones run in turn
  auto cluster = devices(1, true);
  cluster[0].memory_bytes = 8 * kBytes;
  SimOptions options;
  options.below = {{{100 * kBytes, 1e9}}};
  SUBCASE("results that are held") {
    Plan p;
    p.block = kElements;
    const auto a = p.map(16, {}, over(16, 1), true);
    p.map(16, {a}, over(16, 1), true);
    const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{}, options);
    REQUIRE(s.complete);
    CHECK(s.fits);
    CHECK(s.devices[0].bytes_peak <= 8 * kBytes);
    CHECK(s.devices[0].bytes_spilled >= 24 * kBytes);
    CHECK(s.devices[0].bytes_spilled <= 32 * kBytes);
    CHECK(s.devices[0].bytes_returned == 0);  // each is read where it is made
    CHECK(s.devices[0].spill_s == doctest::Approx(static_cast<double>(s.devices[0].bytes_spilled) / 1e9));
    CHECK(s.seconds > s.bound_s);
    double critical = 0;
    bool spills = false;
    for (const SimCritical& c : s.critical) critical += c.seconds, spills |= c.spills;
    CHECK(spills);
    CHECK(critical == doctest::Approx(s.seconds));
    // With room for all nothing leaves, and nothing else is different.
    cluster[0].memory_bytes = 32 * kBytes;
    const Simulation ample = simulate(p.sim, p.arrays, cluster, Speeds{}, options);
    CHECK(ample.fits);
    CHECK(ample.devices[0].bytes_spilled == 0);
    CHECK(ample.devices[0].bytes_peak == 32 * kBytes);
    CHECK(ample.seconds < s.seconds);
  }
  SUBCASE("what was there before") {
    Plan p;
    p.block = kElements;
    const auto a = p.exists(16, over(16, 1), true);
    p.map(16, {a, a}, over(16, 1), false);
    cluster[0].load_bytes = 16 * kBytes;
    const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{}, options);
    REQUIRE(s.complete);
    CHECK(s.fits);
    CHECK(s.devices[0].bytes_peak <= 8 * kBytes);
    // Half of it is below already.
    CHECK(s.devices[0].bytes_returned >= 8 * kBytes);
    CHECK(s.devices[0].bytes_returned <= 16 * kBytes);
  }
  SUBCASE("nothing is below") {
    Plan p;
    p.block = kElements;
    p.map(16, {}, over(16, 1), true);
    options.below = {};
    const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{}, options);
    REQUIRE(s.complete);
    CHECK(!s.fits);
    REQUIRE(s.needs.size() == 1);
    CHECK(s.needs[0].device == DeviceId{1});
    CHECK(s.needs[0].output_bytes == kBytes);
    CHECK(s.needs[0].bytes == 9 * kBytes);
    CHECK(s.tasks == 16);  // it goes on all the same
    CHECK(s.devices[0].bytes_after == 16 * kBytes);
  }
  SUBCASE("the tier below is full") {
    Plan p;
    p.block = kElements;
    p.map(16, {}, over(16, 1), true);
    options.below = {{{4 * kBytes, 1e9}}};
    CHECK(!simulate(p.sim, p.arrays, cluster, Speeds{}, options).fits);
    options.below = {{{4 * kBytes, 1e10}, {4 * kBytes, 1e9}}};  // pinned memory, then a disk
    const Simulation s = simulate(p.sim, p.arrays, cluster, Speeds{}, options);
    CHECK(s.fits);
    CHECK(s.devices[0].bytes_spilled == 8 * kBytes);
    CHECK(s.devices[0].spill_s == doctest::Approx(4 * kBytes / 1e10 + 4 * kBytes / 1e9));
  }
  SUBCASE("blocks of others wait for room, too") {
    Plan p;
    p.block = kElements;
    auto two = devices(2, false);
    const auto a = p.map(12, {}, ir::Placement::whole({12}, ir::Rule::constant(1, DeviceId{1})), false);
    const auto b = p.map(12, {}, ir::Placement::whole({12}, ir::Rule::constant(1, DeviceId{2})), true);
    p.map(12, {a, b}, ir::Placement::whole({12}, ir::Rule::constant(1, DeviceId{2})), true);
    two[1].memory_bytes = 8 * kBytes;
    options.below = {{}, {{100 * kBytes, 1e9}}};
    const Simulation s = simulate(p.sim, p.arrays, two, Speeds{}, options);
    REQUIRE(s.complete);
    CHECK(s.fits);
    CHECK(s.devices[1].bytes_peak <= 8 * kBytes);
    CHECK(s.devices[1].bytes_spilled >= 16 * kBytes);
  }
}

}  // namespace
}  // namespace tilewise::place
