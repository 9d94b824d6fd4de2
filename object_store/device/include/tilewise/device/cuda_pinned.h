// Page-locked host memory: what Stream::copy needs on the host's side to be asynchronous and to run at the full speed
// of the link. Copies from and to ordinary memory are correct too, but the driver stages them and may block the caller.
#pragma once
#include <tilewise/device/device.h>

#include <cstddef>
#include <memory>

namespace tilewise::device {

class PinnedBuffer {
 public:
  // kOutOfMemory names the device and the bytes. The device outlives the buffer; all CUDA devices can use it.
  static Result<std::unique_ptr<PinnedBuffer>> make(Device& device, std::size_t bytes);
  ~PinnedBuffer();  // no step that uses it may be in flight
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  PinnedBuffer(Device& device, std::byte* data, std::size_t bytes)
      : device_(&device), data_(data), bytes_(bytes) {}
  Device* device_;
  std::byte* data_;
  std::size_t bytes_;
};

// Locks memory that exists already, e.g. a host device's slab, so that CUDA copies reach it directly.
Status pin_host_memory(Device& device, void* data, std::size_t bytes);
Status unpin_host_memory(Device& device, void* data);

}  // namespace tilewise::device
