#pragma once

namespace tilewise::kernels::matmul {
const char* blas_core();  // "SkylakeX": whose kernels OpenBLAS runs
}
