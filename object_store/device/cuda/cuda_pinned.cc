#include <tilewise/cuda/driver.h>
#include <tilewise/device/cuda_pinned.h>

namespace tilewise::device {

Result<std::unique_ptr<PinnedBuffer>> PinnedBuffer::make(Device& device, std::size_t bytes) {
  TW_ASSIGN(const cuda::Context* const context, cuda::context_of(device));
  TW_TRY(context->make_current());
  void* data = nullptr;
  TW_CUDA_TRY(*context->driver, cuMemHostAlloc,
              "pinning " + std::to_string(bytes) + " bytes of host memory for " + device.info().name, &data,
              bytes, CU_MEMHOSTALLOC_PORTABLE);
  return std::unique_ptr<PinnedBuffer>(new PinnedBuffer(device, static_cast<std::byte*>(data), bytes));
}

PinnedBuffer::~PinnedBuffer() {
  const auto context = cuda::context_of(*device_);
  if (context && (*context)->make_current()) (*context)->driver->cuMemFreeHost_(data_);
}

Status pin_host_memory(Device& device, void* data, std::size_t bytes) {
  TW_ASSIGN(const cuda::Context* const context, cuda::context_of(device));
  TW_TRY(context->make_current());
  TW_CUDA_TRY(*context->driver, cuMemHostRegister, "cuMemHostRegister of " + std::to_string(bytes) + " bytes",
              data, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  return {};
}

Status unpin_host_memory(Device& device, void* data) {
  TW_ASSIGN(const cuda::Context* const context, cuda::context_of(device));
  TW_TRY(context->make_current());
  TW_CUDA_TRY(*context->driver, cuMemHostUnregister, "cuMemHostUnregister", data);
  return {};
}

}  // namespace tilewise::device
