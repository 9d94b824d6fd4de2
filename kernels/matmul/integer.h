#pragma once
#include "matmul/operand.h"

namespace tilewise::kernels::matmul {

// int32 and int64 (wrapping), bool (or of ands). b: rows of n elements in a piece, `ldb` elements apart.
void integer_product(const Product& p, const void* b, std::int64_t ldb);

}  // namespace tilewise::kernels::matmul
