#include <tilewise/kernels/host_info.h>

#include "map/lanes.h"
#include "matmul/blas.h"

namespace tilewise::kernels {

std::string host_numeric_class() {
  return std::string(map::lane_target()) + ", openblas " + matmul::blas_core();
}

std::string host_warning() {
  if (matmul::blas_takes_concurrent_calls()) return {};
  return "OpenBLAS is a serial build, which does not bear calls from several threads: products take turns. "
         "Install a threaded one (Debian: libopenblas0-pthread)";
}

}  // namespace tilewise::kernels
