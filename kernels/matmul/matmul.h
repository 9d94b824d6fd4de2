// See README.md of this folder's parent for the families, and families.h for the meaning of the three functions.
#pragma once
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::matmul {

Status supports(const ir::Op& op, const PluginTable* plugins);
std::int64_t scratch_bytes(const ir::Op& op);  // of the host's
Status host(const KernelCall& call, const PluginTable* plugins);
Status reference(const KernelCall& call, const PluginTable* plugins);

}  // namespace tilewise::kernels::matmul
