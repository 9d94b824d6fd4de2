// Counting what is true: an integer sum of booleans, in bytes. Such a sum does not depend on its order.
#pragma once
#include <tilewise/kernels/kernels.h>

#include <optional>

namespace tilewise::kernels::reduce {

// The tape without its last instruction, where the reduction is a sum into int64 and that instruction casts a bool; else nothing.
std::optional<ir::Tape> counted_tape(const ir::ReduceAttrs& attrs, ir::DType out);

// The sums of a tape that gives bool.
Status count_blocks(const KernelCall& call, const ir::Tape& tape);

}  // namespace tilewise::kernels::reduce
