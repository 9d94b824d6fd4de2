// See README.md of this folder's parent for the families, and families.h for the meaning of the three functions.
#pragma once
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin_abi.h>

namespace tilewise::kernels::call {

Status supports(const ir::Op& op, const PluginTable* plugins);
Status host(const KernelCall& call, const PluginTable* plugins);
Status reference(const KernelCall& call, const PluginTable* plugins);

// Memory of a region as plug-ins see it.
tilewise_view_v1 view_of(const TensorView& from, const ir::Box& box);

// The plain version of a built-in kernel; null where it has none.
tilewise_kernel_fn reference_of(const char* kernel);

}  // namespace tilewise::kernels::call
