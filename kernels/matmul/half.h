// Products of 16-bit floats on the host: pieces of the factors are widened to float32 in scratch memory, multiplied and added up
// there. The order of k is that of pieces of 256, whatever the block.
#pragma once
#include "matmul/operand.h"

namespace tilewise::kernels::matmul {

// Of float32 products, for what their factors are the op does not say; at most 2.3 MB, each executor's own.
std::int64_t half_scratch_bytes(const ir::Op& op);
// Not of an empty product. kInternal without scratch.
Status half_product(const Product& p, std::byte* scratch);

}  // namespace tilewise::kernels::matmul
