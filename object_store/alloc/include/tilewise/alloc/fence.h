// A fence says when memory may be touched again: after each named stream has completed the given step.
#pragma once
#include <algorithm>
#include <cstdint>

namespace tilewise::alloc {

// A small map stream -> sequence, sorted by stream. Merging takes the maximum per stream. A value: cheap to copy.
// Stream numbers are the owner's (one number space per arena); sequences are those of device::Stream::record().
class Fence {
 public:
  static constexpr int kMaxStreams = 8;
  struct Point {
    std::uint8_t stream = 0;
    std::uint64_t sequence = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };

  Fence() = default;
  Fence(std::uint8_t stream, std::uint64_t sequence) : count_(1) {
    streams_[0] = stream;
    sequences_[0] = sequence;
  }

  bool empty() const { return count_ == 0; }
  int size() const { return count_; }
  Point operator[](int i) const { return {streams_[i], sequences_[i]}; }
  // The step to wait for on `stream`; 0 for none.
  std::uint64_t at(std::uint8_t stream) const {
    const int i = position(stream);
    return i < count_ && streams_[i] == stream ? sequences_[i] : 0;
  }

  // False, and unchanged, when that would name more than kMaxStreams streams: the caller then drops the points that
  // are complete, or keeps the memory until some are.
  [[nodiscard]] bool add(std::uint8_t stream, std::uint64_t sequence) {
    const int i = position(stream);
    if (i < count_ && streams_[i] == stream) {
      sequences_[i] = std::max(sequences_[i], sequence);
      return true;
    }
    if (count_ == kMaxStreams) return false;
    for (int j = count_; j > i; --j) {
      streams_[j] = streams_[j - 1];
      sequences_[j] = sequences_[j - 1];
    }
    streams_[i] = stream;
    sequences_[i] = sequence;
    ++count_;
    return true;
  }
  [[nodiscard]] bool merge(const Fence& other) {
    Fence merged = *this;
    for (int i = 0; i < other.count_; ++i) {
      if (!merged.add(other.streams_[i], other.sequences_[i])) return false;
    }
    *this = merged;
    return true;
  }
  // Keeps the points for which `keep(Point)` holds.
  template <class Keep> void keep_if(Keep keep) {
    std::uint8_t kept = 0;
    for (int i = 0; i < count_; ++i) {
      if (!keep((*this)[i])) continue;
      streams_[kept] = streams_[i];
      sequences_[kept++] = sequences_[i];
    }
    count_ = kept;
  }

  friend bool operator==(const Fence& a, const Fence& b) {
    return a.count_ == b.count_ && std::equal(a.streams_, a.streams_ + a.count_, b.streams_) &&
           std::equal(a.sequences_, a.sequences_ + a.count_, b.sequences_);
  }

 private:
  int position(std::uint8_t stream) const {
    int i = 0;
    while (i < count_ && streams_[i] < stream) ++i;
    return i;
  }

  std::uint64_t sequences_[kMaxStreams] = {};
  std::uint8_t streams_[kMaxStreams] = {};
  std::uint8_t count_ = 0;
};

}  // namespace tilewise::alloc
