// Calls of built-in kernels whose results are cut otherwise than their iteration space is: a counter a block, say.
#pragma once
#include "builtin_call.h"

namespace tilewise::client {

// As map_blocks with index maps, over the blocks of `space`; outputs have as many.
inline std::vector<Array> map_space(const Kernel& kernel, std::span<const Array> arrays,
                                    std::vector<ir::OperandMap> maps, const Grid& space,
                                    const std::vector<OutputLike>& outputs) {
  ir::CallAttrs attrs{.kernel = kernel.name,
                      .version = kernel.version,
                      .params = kernel.params,
                      .maps = std::move(maps),
                      .flops_per_point = kernel.flops_per_point};
  std::vector<ir::OutputSpec> specs;
  for (const OutputLike& out : outputs) specs.push_back({0, out.dtype, out.grid});
  ir::Inferred call =
      value_or_throw(infer_call(Access::sources(arrays), std::move(attrs), space, std::move(specs)));
  return Access::state(arrays.front()).add(std::move(*call.op));
}

}  // namespace tilewise::client
