// From a KernelCall to the plug-in ABI and back, for the host and for CUDA.
#pragma once
#include <tilewise/ir/linalg.h>
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin.h>

namespace tilewise::kernels {

// kReference: the plain version of a built-in kernel that has one, else the host's.
enum class PluginTarget : std::uint8_t { kHost, kCuda, kReference };

// The kernel that a kCall op names, with a version for that target and of the op's counts. kNotFound, kVersionMismatch,
// kUnsupported.
Result<const tilewise_kernel_v1*> plugin_kernel(const ir::Op& op, const PluginTable* plugins,
                                                PluginTarget target);
// Checks the dtypes, calls it; a failure becomes kTaskFailed (of values without a result: kSingular) with the
// kernel's message. `stream`: CUstream, or null.
Status run_plugin(const KernelCall& call, const PluginTable* plugins, PluginTarget target, void* stream);

// The parameters of a built-in kernel of linear algebra whose operands are as it wants them; the host's kernels refuse
// others in the same words (kInvalidArgument, kShapeMismatch).
Result<ir::linalg::Params> linalg_params(const KernelCall& call);

}  // namespace tilewise::kernels
