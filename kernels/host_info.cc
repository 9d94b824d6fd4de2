#include <tilewise/kernels/host_info.h>

#include "map/lanes.h"
#include "matmul/blas_core.h"

namespace tilewise::kernels {

std::string host_numeric_class() {
  return std::string(map::lane_target()) + ", openblas " + matmul::blas_core();
}

}  // namespace tilewise::kernels
