// The kernel families, and which of them computes an op kind: the only place where kinds are told apart.
#pragma once
#include <tilewise/kernels/kernels.h>

#include <span>

namespace tilewise::kernels {

// One folder. `host` and `reference` run one step to its end on memory the CPU can address; several threads may run
// different steps at once. They trust the shapes that ir::Geometry has checked, and answer with an error otherwise.
struct Family {
  std::string_view name;
  std::span<const ir::OpKind> ops;
  Status (*supports)(const ir::Op& op, const PluginTable* plugins);
  Status (*host)(const KernelCall& call, const PluginTable* plugins);
  Status (*reference)(const KernelCall& call, const PluginTable* plugins);
  std::int64_t (*scratch_bytes)(const ir::Op& op) = nullptr;  // of `host`; none where null
};

std::span<const Family> families();
// Null for kinds without a kernel (lowered away before execution, or done by the data service).
const Family* family_of(ir::OpKind kind);

}  // namespace tilewise::kernels
