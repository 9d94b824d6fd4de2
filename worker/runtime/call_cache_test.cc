#include <tilewise/worker/call_cache.h>

#include <doctest/doctest.h>

#include <array>

namespace tilewise::worker {
namespace {

bool same(const kernels::TensorView& a, const kernels::TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
}
bool same(const kernels::KernelCall& a, const kernels::KernelCall& b) {
  const auto views = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const auto& v, const auto& w) { return same(v, w); });
  };
  return a.op == b.op && a.box == b.box && a.space_shape == b.space_shape && a.step == b.step &&
         a.steps == b.steps && views(a.inputs, b.inputs) && a.input_boxes == b.input_boxes &&
         views(a.outputs, b.outputs) && a.output_boxes == b.output_boxes;
}

// A call over two arrays: of the second a window of the first's reversed columns, or lists of blocks.
OpEntry entry_of(ir::GeometryCache& geometries, const std::string& params, bool listed,
                 std::int64_t rows = 9) {
  const ir::Grid grid = *ir::Grid::uniform({rows, 4}, {2, 4});
  OpEntry entry;
  entry.op.kind = ir::OpKind::kCall;
  entry.op.space = grid;
  entry.op.operands = {{1, ir::View::identity(grid.shape())}, {2, ir::View::identity(grid.shape())}};
  entry.op.operands[0].view.source[1] = {1, 3, -1};
  entry.op.outputs = {{3, ir::DType::kFloat32, grid}};
  ir::CallAttrs attrs{.kernel = "test", .version = "1", .params = params};
  if (listed) {
    entry.op.operands[0].view = ir::View::identity(grid.shape());
    ir::ExplicitMap map;
    map.offsets.push_back(0);
    for (std::int64_t p = 0; p < grid.block_count(); ++p) {
      for (std::int64_t k = std::max<std::int64_t>(0, p - 1); k <= p; ++k) map.blocks.push_back(k);
      map.offsets.push_back(static_cast<std::uint32_t>(map.blocks.size()));
    }
    attrs.explicit_maps = {map, map};
  } else {
    ir::DimMap along;
    ir::DimMap across;
    across.dim = 1;
    attrs.maps = {{along, across}, {along, across}};
  }
  entry.op.attrs = attrs;
  entry.sources = {{ir::DType::kFloat64, grid}, {ir::DType::kInt32, grid}};
  auto geometry = geometries.of(entry.op, entry.sources);
  REQUIRE_MESSAGE(geometry.has_value(), geometry.error().message);
  entry.geometry = *geometry;
  return entry;
}

TEST_CASE("a call from the cache is the one that would be built, for every op of the same shape") {
  std::array<std::byte, 4096> memory{};
  for (const bool listed : {false, true}) {
    ir::GeometryCache geometries;
    CallCache cache;
    std::vector<ir::Read> reads;
    std::size_t at = 0;
    for (int round = 0; round < 3; ++round) {
      for (const std::int64_t rows : {9, 8, 1}) {
        const OpEntry entry = entry_of(geometries, "row " + std::to_string(round), listed, rows);
        for (std::int64_t point = 0; point < entry.geometry->point_count(); ++point) {
          ResolvedStep step;
          step.op = &entry;
          step.point = point;
          entry.geometry->reads(entry.geometry->point(point), 0, reads);
          for (std::size_t i = 0; i < reads.size(); ++i)
            step.inputs.push_back(memory.data() + at++ % 512 * 8);
          step.outputs.push_back(memory.data() + at++ % 512 * 8);
          kernels::KernelCall plain;
          build_call(step, reads, plain);
          CHECK(same(cache.build(step), plain));
        }
      }
    }
  }
}

TEST_CASE("more shapes than the cache has room for") {
  std::array<std::byte, 64> memory{};
  ir::GeometryCache geometries;
  CallCache cache;
  std::vector<ir::Read> reads;
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t rows = 1; rows <= 100; ++rows) {
      const OpEntry entry = entry_of(geometries, "", false, rows);
      ResolvedStep step;
      step.op = &entry;
      step.point = entry.geometry->point_count() - 1;
      step.inputs = {memory.data(), memory.data() + 8};
      step.outputs.push_back(memory.data() + 16);
      kernels::KernelCall plain;
      build_call(step, reads, plain);
      CHECK(same(cache.build(step), plain));
    }
  }
}

}  // namespace
}  // namespace tilewise::worker
