#include <tilewise/kernel.h>

#include "access.h"

namespace tilewise {
namespace {

using client::Access;

std::vector<ir::OutputSpec> specs(const std::vector<OutputLike>& outputs) {
  if (outputs.empty()) throw ArrayError(Errc::kInvalidArgument, "a kernel call without outputs");
  std::vector<ir::OutputSpec> out;
  for (const OutputLike& o : outputs) out.push_back({0, o.dtype, o.grid});
  return out;
}

ir::CallAttrs attrs_of(const Kernel& kernel) {
  ir::CallAttrs attrs;
  attrs.kernel = kernel.name;
  attrs.version = kernel.version;
  attrs.params = kernel.params;
  attrs.flops_per_point = kernel.flops_per_point;
  attrs.scratch_bytes = kernel.scratch_bytes;
  return attrs;
}

std::vector<Array> call(std::span<const Array> arrays, ir::CallAttrs attrs,
                        const std::vector<OutputLike>& outputs) {
  if (arrays.empty())
    throw ArrayError(Errc::kInvalidArgument, "kernel '" + attrs.kernel + "' is called on no array");
  const std::vector<ir::OutputSpec> out = specs(outputs);
  const std::string name = attrs.kernel;
  auto inferred = infer_call(Access::sources(arrays), std::move(attrs), outputs.front().grid, out);
  if (!inferred)
    throw ArrayError(inferred.error().code, "kernel '" + name + "': " + inferred.error().message);
  return Access::state(arrays.front()).add(std::move(*inferred->op));
}

}  // namespace

std::vector<Array> map_blocks(const Kernel& kernel, std::span<const Array> arrays,
                              std::vector<ir::OperandMap> maps, const std::vector<OutputLike>& outputs) {
  ir::CallAttrs attrs = attrs_of(kernel);
  if (maps.empty()) {
    for (const Array& a : arrays) {
      if (outputs.empty() || a.shape() != outputs.front().grid.shape()) {
        throw ArrayError(Errc::kShapeMismatch,
                         "kernel '" + kernel.name + "': an array of shape " + ir::to_string(a.shape()) +
                             " needs an index map, because the output has shape " +
                             (outputs.empty() ? "()" : ir::to_string(outputs.front().grid.shape())));
      }
      ir::OperandMap map;
      for (int d = 0; d < a.rank(); ++d)
        map.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
      maps.push_back(map);
    }
  }
  attrs.maps = std::move(maps);
  return call(arrays, std::move(attrs), outputs);
}

std::vector<Array> map_blocks(const Kernel& kernel, const std::vector<BlockLists>& inputs,
                              const std::vector<OutputLike>& outputs) {
  ir::CallAttrs attrs = attrs_of(kernel);
  std::vector<Array> arrays;
  for (const BlockLists& input : inputs) {
    if (outputs.empty() ||
        static_cast<std::int64_t>(input.blocks.size()) != outputs.front().grid.block_count()) {
      throw ArrayError(Errc::kInvalidArgument,
                       "kernel '" + kernel.name + "': input " + std::to_string(arrays.size()) + " has " +
                           std::to_string(input.blocks.size()) + " lists of blocks for " +
                           std::to_string(outputs.empty() ? 0 : outputs.front().grid.block_count()) +
                           " calls");
    }
    arrays.push_back(input.array);
    ir::ExplicitMap& map = attrs.explicit_maps.emplace_back();
    map.offsets.reserve(input.blocks.size() + 1);
    map.offsets.push_back(0);
    for (const std::vector<std::int64_t>& blocks : input.blocks) {
      map.blocks.insert(map.blocks.end(), blocks.begin(), blocks.end());
      map.offsets.push_back(static_cast<std::uint32_t>(map.blocks.size()));
    }
  }
  return call(arrays, std::move(attrs), outputs);
}

Array task(const Kernel& kernel, const std::vector<BlockRef>& refs, DType dtype, const Shape& shape) {
  // One operand for each run of blocks of one array: so the kernel sees them in the order of `refs`.
  std::vector<BlockLists> inputs;
  for (const BlockRef& ref : refs) {
    if (inputs.empty() || Access::key(inputs.back().array) != Access::key(ref.array))
      inputs.push_back({ref.array, {{}}});
    inputs.back().blocks.front().push_back(ref.block);
  }
  std::vector<ir::DimGrid> dims;
  for (const std::int64_t extent : shape) dims.push_back(ir::DimGrid::whole(extent));
  return std::move(map_blocks(kernel, inputs, {{dtype, Grid(std::move(dims))}}).front());
}

}  // namespace tilewise
