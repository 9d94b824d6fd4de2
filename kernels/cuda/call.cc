// kCall: plug-ins' own CUDA launches, and CUDA halves of the built-in kernels that need none of their own.
#include <tilewise/kernels/plugin_call.h>

#include "launch.h"

namespace tilewise::cuda {
namespace {

// tilewise.noop and tilewise.zero: driver calls only, so they are here and not behind the plug-in interface.
enum class Builtin { kNone, kNoop, kZero };
Builtin builtin(const ir::Op& op) {
  const std::string& name = op.get<ir::CallAttrs>().kernel;
  return name == "tilewise.noop" ? Builtin::kNoop : name == "tilewise.zero" ? Builtin::kZero : Builtin::kNone;
}

Status zero(const Environment& env, const KernelCall& call, CUstream stream) {
  if (call.step > 0) return {};
  for (const TensorView& out : call.outputs) TW_TRY(clear(env, out, stream));
  return {};
}

}  // namespace

Status call_supports(const Environment& env, const ir::Op& op) {
  if (builtin(op) != Builtin::kNone) return {};
  TW_TRY(kernels::plugin_kernel(op, env.plugins, kernels::PluginTarget::kCuda));
  return {};
}

Status launch_call(const Environment& env, const KernelCall& call, CUstream stream) {
  TW_TRY(env.context.make_current());
  switch (builtin(*call.op)) {
    case Builtin::kNoop: return {};
    case Builtin::kZero: return zero(env, call, stream);
    case Builtin::kNone: break;
  }
  return kernels::run_plugin(call, env.plugins, kernels::PluginTarget::kCuda, stream);
}

}  // namespace tilewise::cuda
