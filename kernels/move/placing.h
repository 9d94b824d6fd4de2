// Where a step's part lies inside the task's output.
#pragma once
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::move {

// kCopy, operand `i`: the output position of the part's first element.
//
// The task's whole region of the operand is, per dimension, the map's span of the task's box: u = [floor(lo * mul / div)
// - before, ceil(hi * mul / div) + after), clipped to the operand's extent: c. A shift (concat, reblock) has as many
// positions as the output, and u.lo stands at the output's first; a window (halo) is as large as c, and c.lo stands
// there. Where nothing was clipped both say the same, and where something was the output's extent tells them apart.
// Several operands are tiles of one array, and what windows are clipped to is that array: its first index is that of the operand
// with the least `before`.
// kShapeMismatch where the part sticks out of the output.
Result<ir::Index> copy_position(const KernelCall& call, std::size_t i);

}  // namespace tilewise::kernels::move
