// Workers on GPUs that are emulated (tests/gpu/emulated).
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "harness.h"

namespace tilewise::testing {

inline const std::string kEmulatedLibraries = TILEWISE_EMULATED_LIBRARIES;

// A worker on these of two GPUs, "cuda:0,cuda:1" say; `more` of the emulation's settings.
inline void add_gpu_worker(Cluster& cluster, const std::string& devices,
                           const std::vector<std::string>& arguments = {}, const Environment& more = {}) {
  std::vector<std::string> all{"--devices", devices};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Environment environment{{"LD_LIBRARY_PATH", kEmulatedLibraries},
                          {"TILEWISE_NVRTC_PATH", kEmulatedLibraries},
                          {"TILEWISE_CUBLAS_PATH", kEmulatedLibraries},
                          {"TILEWISE_CUSOLVER_PATH", kEmulatedLibraries},
                          {"TILEWISE_KERNEL_CACHE", "off"},
                          {"TILEWISE_EMULATED_GPUS", "2"},
                          {"OPENBLAS_NUM_THREADS", "1"}};
  environment.insert(more.begin(), more.end());
  cluster.add_worker(all, {}, environment);
}

}  // namespace tilewise::testing
