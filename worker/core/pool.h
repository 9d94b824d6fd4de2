// Tables with stable slots, by which the core's records refer to each other.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

namespace tilewise::worker {

using Slot = std::uint32_t;
constexpr Slot kNone = 0xFFFFFFFFu;
constexpr std::int64_t kTierPage = 4096;  // what places below memory are aligned to
constexpr std::int64_t in_tier(std::int64_t bytes) { return (bytes + kTierPage - 1) / kTierPage * kTierPage; }
constexpr std::int64_t in_arena(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// A table with stable slots and a free list.
template <class T> class Pool {
 public:
  Slot add() {
    if (!free_.empty()) {
      const Slot s = free_.back();
      free_.pop_back();
      items_[s] = T{};
      ++live_;
      return s;
    }
    items_.emplace_back();
    ++live_;
    return static_cast<Slot>(items_.size() - 1);
  }
  void drop(Slot s) {
    free_.push_back(s);
    --live_;
  }
  T& operator[](Slot s) { return items_[s]; }
  const T& operator[](Slot s) const { return items_[s]; }
  std::int64_t live() const { return live_; }

 private:
  std::deque<T> items_;  // references stay valid while the table grows
  std::vector<Slot> free_;
  std::int64_t live_ = 0;
};

}  // namespace tilewise::worker
