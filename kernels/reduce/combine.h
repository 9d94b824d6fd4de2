// kCombine: folds one part of the partials into the output, in the order of the steps.
#pragma once
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::reduce {

Status combine(const KernelCall& call);
// The value of an empty reduction: 0, 1, the infinities or ends of the dtype, false, true. Moments: zeros.
Status clear_output(ir::ReduceKind kind, const KernelCall& call);

}  // namespace tilewise::kernels::reduce
