// From a KernelCall to the plug-in ABI and back, for the host and for CUDA.
#pragma once
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

}  // namespace tilewise::kernels
