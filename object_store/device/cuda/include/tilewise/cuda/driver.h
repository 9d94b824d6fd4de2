// The CUDA driver as a table of functions, opened at run time. Types come from <cuda.h>; nothing is linked, so a
// program with the CUDA module in it starts where there is no driver. For the CUDA halves of other parts (kernels).
#pragma once
#include <cuda.h>
#include <tilewise/device/device.h>

#include <string>

namespace tilewise::cuda {

// Every driver function Tilewise uses. cuda.h renames some to versioned symbols (cuMemAlloc -> cuMemAlloc_v2); the
// table looks up the renamed symbol, so that type and function always match.
// clang-format off
#define TW_CUDA_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) \
  X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) \
  X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuMemGetInfo) X(cuDeviceCanAccessPeer) \
  X(cuDeviceGetP2PAttribute) X(cuCtxEnablePeerAccess) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) \
  X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemcpyAsync) X(cuMemsetD8Async) \
  X(cuPointerGetAttribute) X(cuMemGetAddressRange) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) \
  X(cuStreamWaitValue64) X(cuStreamWriteValue64) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) \
  X(cuEventSynchronize) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel)
// clang-format on

struct Driver {
#define TW_CUDA_MEMBER(name) decltype(&::name) name##_ = nullptr;
  TW_CUDA_FUNCTIONS(TW_CUDA_MEMBER)
#undef TW_CUDA_MEMBER
  int version = 0;  // 13000 for CUDA 13.0
};

// Opens the driver and calls cuInit, once per process: a driver cannot be opened twice or closed, so this is the one
// thing of its kind that is process-wide. kUnavailable says what is missing. Any thread.
Result<const Driver*> driver();

// "cuMemcpyAsync on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)". kOutOfMemory for
// the driver's own, else kDeviceError.
Error cuda_error(const Driver& driver, CUresult code, std::string_view doing);

// One GPU's primary context, as the kernels need it.
struct Context {
  const Driver* driver = nullptr;
  CUcontext context = nullptr;
  CUdevice device = 0;
  int ordinal = 0;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;

  // Driver calls act on the calling thread's current context. 50 ns; called by every entry point of the module.
  Status make_current() const;
};

// The context of a device made by make_cuda_device; kInvalidArgument for others. Lives as long as the device.
Result<const Context*> context_of(device::Device& device);

}  // namespace tilewise::cuda

// Calls a driver function through table `drv`; returns the error from the enclosing Status or Result function.
#define TW_CUDA_TRY(drv, function, doing, ...) \
  do { \
    const CUresult tw_code = (drv).function##_(__VA_ARGS__); \
    if (tw_code != CUDA_SUCCESS) [[unlikely]] \
      return ::tilewise::cuda::cuda_error((drv), tw_code, (doing)); \
  } while (false)
