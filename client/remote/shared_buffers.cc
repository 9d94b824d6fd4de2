#include "shared_buffers.h"

#include <tilewise/device/shared_memory.h>

#include <cstring>

namespace tilewise::remote {

SharedBuffers::~SharedBuffers() {
  for (const Buffer& buffer : buffers_) device::unmap_shared(buffer.slab);
}

std::shared_ptr<std::byte> SharedBuffers::give(std::size_t number) {
  buffers_[number].taken = true;
  return {buffers_[number].slab.data, [self = shared_from_this(), number](std::byte*) {
            const std::scoped_lock lock(self->mutex_);
            self->buffers_[number].taken = false;
          }};
}

// The smallest that is free and large enough, unless it is more than twice what is wanted.
Result<std::shared_ptr<std::byte>> SharedBuffers::take(
    std::int64_t bytes, const std::function<void(std::uint32_t, const device::Slab&)>& announce) {
  if (bytes < 1) return client::allocate_plain(bytes);
  const std::scoped_lock lock(mutex_);
  std::size_t best = buffers_.size();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer& buffer = buffers_[i];
    if (buffer.taken || buffer.slab.bytes < bytes || buffer.slab.bytes / 2 > bytes) continue;
    if (best == buffers_.size() || buffer.slab.bytes < buffers_[best].slab.bytes) best = i;
  }
  if (best < buffers_.size()) {
    std::memset(buffers_[best].slab.data, 0, static_cast<std::size_t>(bytes));
    return give(best);
  }
  if (buffers_.size() == kMaxSlabs) return client::allocate_plain(bytes);
  TW_ASSIGN(const device::Slab slab, device::map_shared("client", bytes, true));
  buffers_.push_back({slab, false});
  announce(static_cast<std::uint32_t>(best), slab);
  return give(best);
}

std::optional<client::Endpoint::Place> SharedBuffers::find(std::span<const std::byte> bytes) const {
  const std::scoped_lock lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const device::Slab& slab = buffers_[i].slab;
    const auto first = reinterpret_cast<std::uintptr_t>(slab.data);
    const auto size = static_cast<std::size_t>(slab.bytes);
    if (at < first || at - first > size || bytes.size() > size - (at - first)) continue;
    return client::Endpoint::Place{static_cast<std::uint32_t>(i), static_cast<std::int64_t>(at - first)};
  }
  return std::nullopt;
}

}  // namespace tilewise::remote
