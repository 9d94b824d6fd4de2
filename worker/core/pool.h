// Tables with stable slots, by which the core's records refer to each other.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace tilewise::worker {

using Slot = std::uint32_t;
constexpr Slot kNone = 0xFFFFFFFFu;
constexpr std::int64_t kTierPage = 4096;  // what places below memory are aligned to
constexpr std::int64_t in_tier(std::int64_t bytes) { return (bytes + kTierPage - 1) / kTierPage * kTierPage; }
constexpr std::int64_t in_arena(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// A table with stable slots and a free list. References stay valid while it grows.
template <class T> class Pool {
 public:
  Slot add() {
    if (!free_.empty()) {
      const Slot s = free_.back();
      free_.pop_back();
      std::destroy_at(&(*this)[s]);
      std::construct_at(&(*this)[s]);
      ++live_;
      return s;
    }
    if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<T[]>(kChunk));
    ++live_;
    return size_++;
  }
  void drop(Slot s) {
    free_.push_back(s);
    --live_;
  }
  T& operator[](Slot s) { return chunks_[s / kChunk][s % kChunk]; }
  const T& operator[](Slot s) const { return chunks_[s / kChunk][s % kChunk]; }
  std::int64_t live() const { return live_; }

 private:
  static constexpr Slot kChunk = 64;
  std::vector<std::unique_ptr<T[]>> chunks_;
  Slot size_ = 0;
  std::vector<Slot> free_;
  std::int64_t live_ = 0;
};

}  // namespace tilewise::worker
