// Memory of a client that workers of its host map: one slab a buffer. A slab that has been announced stays with the peers until the
// client goes, so what is let go is kept, and used again. Thread-safe. Buffers may outlive whoever took them.
#pragma once
#include <tilewise/client/endpoint.h>
#include <tilewise/device/device.h>

#include <functional>
#include <mutex>
#include <vector>

namespace tilewise::remote {

class SharedBuffers : public std::enable_shared_from_this<SharedBuffers> {
 public:
  static constexpr std::size_t kMaxSlabs = 1'024;  // more would be ordinary memory

  ~SharedBuffers();
  // Zeroed. `announce(number, slab)` is called for a new slab, before anything there is given away. kOutOfMemory.
  Result<std::shared_ptr<std::byte>> take(
      std::int64_t bytes, const std::function<void(std::uint32_t, const device::Slab&)>& announce);
  // Where these lie, if in one of the slabs.
  std::optional<client::Endpoint::Place> find(std::span<const std::byte> bytes) const;

 private:
  struct Buffer {
    device::Slab slab;
    bool taken = false;
  };
  std::shared_ptr<std::byte> give(std::size_t number);

  mutable std::mutex mutex_;
  std::vector<Buffer> buffers_;  // by number
};

}  // namespace tilewise::remote
