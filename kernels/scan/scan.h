// See README.md of this folder's parent for the families, and families.h for the meaning of the three functions.
//
// The order of a scan, of the elements x0, x1, ... of one line of a block, is fixed:
//   kInclusive, kTotal   groups of four, counted from the line's start in the block. With p = x0 + x1 the four local sums
//                        are x0, p, p + x2 and p + (x2 + x3); `run`, the last sum of the group before, is added to each of
//                        them; then the carry to that. The carry never enters `run`, so a total does not depend on it.
//   kExclusive           one after the other from the carry on. So (but for more than 65,536 blocks along the axis) a block's
//                        carry is the last sum of the block before, and sums of positive numbers never fall.
#pragma once
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::scan {

Status supports(const ir::Op& op, const PluginTable* plugins);
Status host(const KernelCall& call, const PluginTable* plugins);
Status reference(const KernelCall& call, const PluginTable* plugins);

// The carry of element `line` (its index with the axis at zero), or null where there is none.
inline const TensorView* carry_of(const KernelCall& call) {
  return call.inputs.size() > 1 && call.inputs[1].data != nullptr ? &call.inputs[1] : nullptr;
}

}  // namespace tilewise::kernels::scan
