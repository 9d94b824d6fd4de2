#include "matmul/blas.h"

#include <cblas.h>

namespace tilewise::kernels::matmul {

const char* blas_core() { return openblas_get_corename(); }

bool blas_takes_concurrent_calls() { return openblas_get_parallel() != OPENBLAS_SEQUENTIAL; }

BlasTurn::BlasTurn() {
  static std::mutex one_at_a_time;
  static const bool concurrent = [] {
    openblas_set_num_threads(1);
    return blas_takes_concurrent_calls();
  }();
  if (!concurrent) lock_ = std::unique_lock(one_at_a_time);
}

}  // namespace tilewise::kernels::matmul
