// Gamma numbers, as kernels/draw.
#include <tilewise/ir/builtin.h>

#include <bit>

#include "launch.h"

namespace tilewise::cuda {
namespace {

// As device/gamma.cuh.
struct GammaParams {
  Walk walk;
  Place place[2];
  std::uint64_t key = 0;
  double alpha = 0, scale = 0;
};

}  // namespace

Status launch_gamma(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::Gamma p;
  const std::string& bytes = call.op->get<ir::CallAttrs>().params;
  const TensorView& out = call.outputs[0];
  if (!ir::builtin::read(p, bytes.data(), bytes.size()) ||
      (out.dtype != ir::DType::kFloat32 && out.dtype != ir::DType::kFloat64))
    return error(Errc::kTaskFailed,
                 "tilewise.gamma: draws float32 and float64 only, from its own parameters");
  const Strided places[2] = {contiguous(out.data, out.shape),
                             position_place({.whole = true}, call.box, call.space_shape)};
  GammaParams params;
  params.walk = merge(out.shape, places, params.place);
  if (params.walk.count == 0) return {};
  params.key = static_cast<std::uint64_t>(p.key);
  params.alpha = std::bit_cast<double>(p.alpha_bits);
  params.scale = std::bit_cast<double>(p.scale_bits);
  TW_ASSIGN(const Program program, env.programs.gamma(out.dtype));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[0], blocks_for(params.walk.count), 1, &params, stream);
}

}  // namespace tilewise::cuda
