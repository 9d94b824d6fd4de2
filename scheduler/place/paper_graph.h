// For tests: a placed plan of tasks whose reads are listed one by one, on devices of one stream each.
#pragma once
#include <tilewise/place/simulate.h>

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <string>

namespace tilewise::place {

struct PaperGraph {
  using Reads = std::vector<std::vector<std::int64_t>>;  // of each point: blocks
  struct Operand {
    std::size_t array = 0;
    Reads reads;
  };
  explicit PaperGraph(std::int64_t block_elements) : block(block_elements) {}

  std::int64_t block = 0;  // elements, of float64
  std::deque<ir::Op> ops;
  std::deque<ir::Geometry> geometries;
  std::deque<ir::Placement> placements;
  std::vector<SimOp> sim;
  std::vector<SimArray> arrays;

  std::int64_t block_bytes() const { return block * 8; }
  ir::Grid grid(std::int64_t blocks) const { return *ir::Grid::uniform({blocks * block}, {block}); }

  ir::Placement placed(std::int64_t points, const std::function<std::uint32_t(std::int64_t)>& device) {
    std::vector<ir::Run> runs;
    for (std::int64_t p = 0; p < points; ++p) {
      const DeviceId owner{device(p)};
      if (!runs.empty() && runs.back().device == owner)
        ++runs.back().count;
      else
        runs.push_back({p, 1, owner});
    }
    return ir::Placement::of_runs({points}, std::move(runs));
  }

  std::size_t exists(std::int64_t blocks, const std::function<std::uint32_t(std::int64_t)>& device,
                     bool held = false) {
    placements.push_back(placed(blocks, device));
    arrays.push_back({{ir::DType::kFloat64, grid(blocks)}, &placements.back(), true, held});
    return arrays.size() - 1;
  }

  // An op of so many points, of which each writes a block and takes about this long.
  std::size_t op(std::int64_t points, const std::function<std::uint32_t(std::int64_t)>& device,
                 const std::vector<Operand>& operands, double flops, bool held = false) {
    ir::Op op;
    op.kind = ir::OpKind::kCall;
    op.space = grid(points);
    op.outputs = {{1 + arrays.size(), ir::DType::kFloat64, op.space}};
    ir::CallAttrs attrs{.kernel = "k"};
    attrs.flops_per_point = flops;
    std::vector<ir::SourceArray> sources;
    std::vector<std::size_t> inputs;
    for (const Operand& operand : operands) {
      op.operands.push_back(
          {1 + operand.array, ir::View::identity(arrays[operand.array].source.grid.shape())});
      sources.push_back(arrays[operand.array].source);
      inputs.push_back(operand.array);
      ir::ExplicitMap map{{0}, {}};
      for (const std::vector<std::int64_t>& blocks : operand.reads) {
        map.blocks.insert(map.blocks.end(), blocks.begin(), blocks.end());
        map.offsets.push_back(static_cast<std::uint32_t>(map.blocks.size()));
      }
      attrs.explicit_maps.push_back(std::move(map));
    }
    op.attrs = std::move(attrs);
    ops.push_back(std::move(op));
    auto geometry = ir::Geometry::make(ops.back(), sources);
    REQUIRE_MESSAGE(geometry.has_value(), geometry.error().message);
    geometries.push_back(std::move(*geometry));
    placements.push_back(placed(points, device));
    arrays.push_back({{ir::DType::kFloat64, grid(points)}, &placements.back(), false, held});
    sim.push_back({&ops.back(), &geometries.back(), &placements.back(), inputs, {arrays.size() - 1}, {}});
    return arrays.size() - 1;
  }

  Simulation run(const std::vector<Device>& devices, const Speeds& speeds, bool by_level) const {
    const Simulation s = simulate(sim, arrays, devices, speeds, {.by_level = by_level});
    REQUIRE(s.complete);
    return s;
  }
};

}  // namespace tilewise::place
