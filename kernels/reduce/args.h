// argmin and argmax of a block. Outputs: [0] the value, [1] int64: its C-order position among the reduced axes of the
// op's whole space (all axes: the flattened index; one axis: the index along it). Ties: the lowest. The first NaN wins.
#pragma once
#include <tilewise/ir/verify.h>
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::reduce {

Status arg_blocks(const KernelCall& call);

}  // namespace tilewise::kernels::reduce
