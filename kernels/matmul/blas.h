// OpenBLAS as the engine uses it: one thread a call, many calls at once.
#pragma once
#include <mutex>

namespace tilewise::kernels::matmul {

const char* blas_core();  // "SkylakeX": whose kernels OpenBLAS runs

// False for OpenBLAS's serial build, which shares buffers between calls without a lock: products of several threads would
// overwrite each other's. Which build is loaded is known only at run time (Debian chooses by alternatives).
bool blas_takes_concurrent_calls();

// Held during every call of BLAS. Costs a load where calls may run at once; otherwise calls take turns. The first one holds
// OpenBLAS to one thread, in the whole process.
class BlasTurn {
 public:
  BlasTurn();

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace tilewise::kernels::matmul
