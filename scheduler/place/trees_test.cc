// What sums of many partial results move between hosts, on paper, beside the least that their trees allow: these are functions of
// shapes alone, so it is a matter of where their inner nodes are.
#include "place_case.h"

#include <tilewise/ir/lower.h>
#include <tilewise/place/simulate.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace tilewise::place {
namespace {

constexpr int kHosts = 8, kEach = 8;
constexpr std::int64_t kWidth = 4096;   // elements of a small partial result: 32 KiB
constexpr std::int64_t kWide = 16'384;  // of a large one: 128 KiB

struct Sum {
  std::vector<Device> devices;
  std::deque<ir::Op> ops;
  std::deque<ir::Geometry> geometries;
  std::deque<ir::Placement> placements;
  std::vector<SimOp> sim;
  std::vector<SimArray> arrays;
  std::map<std::uint64_t, std::size_t> index;  // by name
  std::vector<std::string_view> why;           // each op is where it is

  // Rows of one block each, summed; `owner` of each.
  Sum(std::int64_t rows, const std::function<int(std::int64_t)>& owner, std::int64_t width = kWidth)
      : devices(hosts(kHosts * kEach, kEach)) {
    for (Device& d : devices) d.worker = WorkerId{d.id.value};
    ir::Op op;
    op.kind = ir::OpKind::kReduce;
    op.space = grid({rows, width}, {1, width});
    op.operands = {{1, ir::View::identity(op.space.shape())}};
    op.outputs = {{2, ir::DType::kFloat64, grid({width}, {width})}};
    op.attrs = ir::ReduceAttrs{ir::Tape{{load(0)}}, ir::ReduceKind::kSum, 1};
    ir::Rule rule;  // a chunk a row
    rule.parts = {static_cast<std::int32_t>(rows), 1};
    rule.cyclic = {0, 0};
    for (std::int64_t r = 0; r < rows; ++r)
      rule.devices.push_back(devices[static_cast<std::size_t>(owner(r))].id);
    placements.push_back(ir::Placement::whole(op.space.counts(), std::move(rule)));
    add_array(1, op.space, true);
    std::uint64_t next = 100;
    const ir::SourceArray source{ir::DType::kFloat64, op.space};
    auto lowered = ir::lower(op, std::vector{source}, [&] { return next++; });
    REQUIRE_MESSAGE(lowered.has_value(), lowered.error().message);
    for (ir::Op& each : *lowered) place(std::move(each));
  }

  void add_array(std::uint64_t name, const ir::Grid& g, bool exists) {
    index[name] = arrays.size();
    arrays.push_back({{ir::DType::kFloat64, g}, &placements.back(), exists, !exists});
    arrays.back().held = exists;
  }
  void place(ir::Op op) {
    ops.push_back(std::move(op));
    const ir::Op& o = ops.back();
    std::vector<std::size_t> reads;
    std::vector<ir::SourceArray> sources;
    std::vector<Input> inputs;
    for (const ir::Operand& operand : o.operands) reads.push_back(index.at(operand.array));
    for (const std::size_t a : reads) {
      sources.push_back(arrays[a].source);
      inputs.push_back({&arrays[a].source, arrays[a].placement});
    }
    auto geometry = ir::Geometry::make(o, sources);
    REQUIRE_MESSAGE(geometry.has_value(), geometry.error().message);
    geometries.push_back(std::move(*geometry));
    const Speeds speeds;
    auto decision = Placer().place({&o, &geometries.back(), inputs, devices, devices, {}, &speeds});
    REQUIRE(decision.has_value());
    why.push_back(decision->why);
    placements.push_back(std::move(decision->placement));
    const std::size_t made = arrays.size();
    add_array(o.outputs[0].array, o.outputs[0].grid, false);
    sim.push_back({&o, &geometries.back(), &placements.back(), reads, {made}, {}});
  }

  std::uint32_t host(DeviceId id) const { return devices[id.value - 1].host; }

  // Blocks that crossed from one host to another.
  std::int64_t crossed() const {
    const Simulation s = simulate(sim, arrays, devices, Speeds{});
    REQUIRE(s.complete);
    std::int64_t blocks = 0;
    for (const SimLink& link : s.links) blocks += host(link.from) != host(link.to) ? link.blocks : 0;
    return blocks;
  }

  // The least that can cross, wherever the inner nodes are: of each node and host, the least for all below it (Sankoff's
  // algorithm on the tree of reads).
  std::int64_t least() const {
    using Costs = std::vector<std::int64_t>;          // by host
    std::map<std::size_t, std::vector<Costs>> costs;  // of an array: by block
    std::vector<Costs>& leaves = costs[0];
    constexpr std::int64_t kMuch = 1 << 20;
    for (std::int64_t b = 0; b < arrays[0].source.grid.block_count(); ++b) {
      leaves.emplace_back(kHosts, kMuch);
      leaves.back()[host(arrays[0].placement->owner(ir::unravel(b, arrays[0].source.grid.counts())))] = 0;
    }
    std::vector<ir::Read> reads;
    for (const SimOp& op : sim) {
      std::vector<Costs>& made = costs[op.outputs[0]];
      for (std::int64_t p = 0; p < op.geometry->point_count(); ++p) {
        Costs mine(kHosts, 0);
        const ir::Index point = op.geometry->point(p);
        for (std::int64_t s = 0; s < op.geometry->steps(point); ++s) {
          op.geometry->reads(point, s, reads);
          for (const ir::Read& read : reads) {
            const Costs& from = costs.at(op.inputs[read.operand])[static_cast<std::size_t>(read.block)];
            const std::int64_t away = *std::min_element(from.begin(), from.end()) + 1;
            for (std::size_t h = 0; h < mine.size(); ++h) mine[h] += std::min(from[h], away);
          }
        }
        made.push_back(std::move(mine));
      }
    }
    const Costs& root = costs.at(sim.back().outputs[0]).back();
    return *std::min_element(root.begin(), root.end());
  }
};

TEST_CASE(
    "sums cross hosts as little as their trees allow: rows in stretches, dealt out, by hosts in turn, "
    "anyhow") {
  struct Way {
    const char* name;
    std::function<int(std::int64_t)> owner;
    double at_most,
        at_most_large;  // of the least: where rows of each sum are on all hosts alike, time decides
  };
  for (const std::int64_t rows : {64, 128, 500, 1024}) {
    CAPTURE(rows);
    std::mt19937 random(7);
    const Way ways[] = {
        {"in stretches", [&](std::int64_t r) { return static_cast<int>(r * kHosts * kEach / rows); }, 1, 1},
        {"stretches that end elsewhere",
         [&](std::int64_t r) { return static_cast<int>((r + 5) * kHosts * kEach / (rows + 5)); }, 1, 1.3},
        {"dealt out", [](std::int64_t r) { return static_cast<int>(r % (kHosts * kEach)); }, 1.01, 1.1},
        {"hosts in turn",
         [](std::int64_t r) { return static_cast<int>(r % kHosts * kEach + r / kHosts % kEach); }, 1.1, 1.1},
        {"anyhow", [&](std::int64_t) { return static_cast<int>(random() % (kHosts * kEach)); }, 1.2, 1.35}};
    for (const Way& way : ways) {
      CAPTURE(std::string(way.name));
      for (const std::int64_t width : {kWidth, kWide}) {
        CAPTURE(width);
        const Sum sum(rows, way.owner, width);
        const double at_most = width == kWide ? way.at_most_large : way.at_most;
        CHECK(static_cast<double>(sum.crossed()) <= at_most * static_cast<double>(sum.least()));
        CHECK(sum.crossed() >= sum.least());
      }
    }
  }
  // Sixteen rows a host, and sixteen to a sum: nothing leaves a host but one sum.
  CHECK(Sum(128, [](std::int64_t r) { return static_cast<int>(r / 2); }).crossed() == kHosts - 1);
}

TEST_CASE("large partial results cross each border of hosts once, however few a host has") {
  // In stretches of a power of two rows each, on all devices of a host or on one.
  for (const std::int64_t each : {1, 2, 4, 8, 64})
    for (const bool one : {false, true}) {
      CAPTURE(each);
      CAPTURE(one);
      const auto owner = [&](std::int64_t r) {
        return static_cast<int>(r / each * kEach + (one ? 0 : r % each * kEach / each));
      };
      CHECK(Sum(kHosts * each, owner, kWide).crossed() == kHosts - 1);
      // Small ones are taken sixteen at a time, and of sixteen some are elsewhere.
      if (each < 16 && each > 1) CHECK(Sum(kHosts * each, owner).crossed() > kHosts - 1);
    }
}

TEST_CASE("sums made on one host are spread over its devices, in turn") {
  const Sum sum(1024, [](std::int64_t r) { return static_cast<int>(r / 16); });
  REQUIRE(sum.why.size() == 4);
  CHECK(sum.why[1] == "on the host that has most");
  for (const Device& d : sum.devices) CHECK(sum.sim[1].placement->owned_count(d.id) == 1);
}

}  // namespace
}  // namespace tilewise::place
