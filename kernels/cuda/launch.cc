#include "launch.h"

#include <algorithm>
#include <limits>

namespace tilewise::cuda {

Status launch_kernel(const Environment& env, CUfunction function, std::int64_t blocks_x,
                     std::int64_t blocks_y, void* params, CUstream stream) {
  if (blocks_x > std::numeric_limits<std::int32_t>::max() || blocks_y > 65'535)
    return error(Errc::kLimitExceeded, "a kernel over " + std::to_string(blocks_x) + " x " +
                                           std::to_string(blocks_y) + " thread blocks");
  void* arguments[] = {params};
  TW_CUDA_TRY(*env.context.driver, cuLaunchKernel,
              "cuLaunchKernel on cuda:" + std::to_string(env.context.ordinal), function,
              static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y), 1, kThreads, 1, 1, 0, stream,
              arguments, nullptr);
  return {};
}

std::int64_t blocks_for(std::int64_t count) {
  // Enough to fill any GPU many times; the rest is looped over.
  return std::clamp<std::int64_t>((count + kThreads - 1) / kThreads, 1, 1 << 18);
}

Strided strided(const TensorView& view, const ir::Shape& shape) {
  Strided result{address(view.data), {}};
  for (std::size_t d = 0; d < shape.size(); ++d)
    result.strides.push_back(d < view.shape.size() && view.shape[d] != 1 ? view.strides[d] : 0);
  return result;
}

Status null_operand(const KernelCall& call, std::size_t operand) {
  if (operand < call.inputs.size() && call.inputs[operand].data != nullptr) return {};
  return error(Errc::kInternal, std::string(name_of(call.op->kind)) + ": operand " + std::to_string(operand) +
                                    " of a step has no memory");
}

}  // namespace tilewise::cuda
