// What a kernel finds wrong with the numbers it is given (an index that is out of bounds): it writes so into pinned memory, and
// the stream reports it as the failure of the step that is recorded next. For the CUDA halves of other parts.
#pragma once
#include <tilewise/device/device.h>

#include <cstdint>

namespace tilewise::cuda {

// As on the device (kernels/cuda/device/fault.cuh).
struct DataFault {
  std::int32_t code = 0;  // an Errc; 0: nothing is wrong
  std::int32_t unused = 0;
  std::int64_t format =
      0;  // address of a string that lives as long as the process: up to three %lld for the values
  std::int64_t value[3] = {};
};

// Where kernels of the step that is being enqueued on a CUDA stream may write theirs. The thread that drives the device.
DataFault* data_fault_of(device::Stream& stream);

}  // namespace tilewise::cuda
