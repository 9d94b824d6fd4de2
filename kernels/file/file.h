// See README.md of this folder's parent for the families, and families.h for the meaning of the three functions.
#pragma once
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin_abi.h>

namespace tilewise::kernels::file {

Status supports(const ir::Op& op, const PluginTable* plugins);
Status host(const KernelCall& call, const PluginTable* plugins);
Status reference(const KernelCall& call, const PluginTable* plugins);

int commit_npy(const tilewise_call_v1* call);  // built-in kernels, see commit.cc
int discard_npy(const tilewise_call_v1* call);

}  // namespace tilewise::kernels::file
