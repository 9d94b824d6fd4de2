// The CUDA module's door. Built with or without a toolkit: without one, or without a driver or GPU at run time,
// `cuda_device_count()` is 0 and `make_cuda_device` says why. The driver is opened with dlopen, never linked.
#pragma once
#include <tilewise/device/device.h>

namespace tilewise::device {

struct CudaOptions {
  int ordinal = 0;
  int compute_streams = 2;
  std::int64_t memory_bytes = 0;  // 0: 85 % of what is free at start
};

int cuda_device_count();
std::string cuda_unavailable_reason();  // empty when there is at least one usable GPU
Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options);

// Memory of a GPU beside its slabs: not counted in Info::memory_bytes, which is the arena's alone, and freed with the device.
// kOutOfMemory: the GPU has none left; kInvalidArgument: it is no GPU.
Result<Slab> add_cuda_memory(Device& device, std::int64_t bytes);

}  // namespace tilewise::device
