// kReduceBlocks of moments. Outputs: ir::MomentPart.
#pragma once
#include <tilewise/kernels/kernels.h>

#include "reduce/moments_fold.h"

namespace tilewise::kernels::reduce {

Status moment_blocks(const KernelCall& call);

}  // namespace tilewise::kernels::reduce
