// A peer's host slab in our address space: read in place, never written, no copy.
#pragma once
#include <tilewise/base/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tilewise::transfer {

class MappedSlab {
 public:
  // Maps what the peer announced as `bytes` behind `memfd`; the descriptor stays the caller's and may be
  // closed afterwards. The announcement is not trusted: kOutOfRange for a size that cannot be, kCorruptData
  // where the descriptor is no memfd of exactly that size or could still shrink (a reader would die of
  // SIGBUS), kOutOfMemory where address space is short.
  static Result<MappedSlab> import(int memfd, std::int64_t bytes);

  MappedSlab() = default;
  MappedSlab(MappedSlab&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  MappedSlab& operator=(MappedSlab&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~MappedSlab();  // nobody may be reading

  std::span<const std::byte> bytes() const { return memory_; }

 private:
  explicit MappedSlab(std::span<const std::byte> memory) : memory_(memory) {}
  std::span<const std::byte> memory_;
};

}  // namespace tilewise::transfer
