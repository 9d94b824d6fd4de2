// The last steps of this process's devices, and what came and what they waited for: who, where, from when to when. Written
// by the threads that run them, without locks and without ever waiting; the oldest records are overwritten. Read when somebody asks.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tilewise::worker {

// A step, or what else a device did (msg::TraceKind).
using StepRecord = msg::TracedStep;

class StepLog {
 public:
  static constexpr std::uint64_t kUsual = 1 << 16, kMost = 1 << 24;

  // So many records, rounded up to a power of two; 80 bytes each.
  explicit StepLog(std::uint64_t records = kUsual);

  struct Wanted {
    GraphId graph;             // given: of this one only
    TimeNs from = INT64_MIN;   // what ended then or later
    TimeNs until = INT64_MAX;  // and began then or earlier
    std::uint64_t most = UINT64_MAX;
  };
  struct Read {
    std::vector<StepRecord> records;  // those that are there and whole, oldest first
    std::uint64_t cut = 0;            // wanted too, but older than the `most` newest
    std::uint64_t lost = 0;           // overwritten; 0 where all of them ended before `from`
    TimeNs since = 0;                 // where some were lost: before this they are gone
  };

  // From any thread.
  void add(const StepRecord& record);
  // From one thread at a time. Looks at no more than was added since about `from`.
  Read read(const Wanted& wanted) const;
  std::uint64_t capacity() const { return mask_ + 1; }

 private:
  // A record as words, so that a reader may look while a writer writes; `turn` says which writing of the place is whole
  // (2 * n + 2 after the n-th), and odd numbers that one is under way: a sequence lock for each place.
  static constexpr std::size_t kWords = 9;
  struct Place {
    std::atomic<std::uint64_t> turn{0};
    std::atomic<std::uint64_t> words[kWords] = {};
  };
  bool load(std::uint64_t n, StepRecord& out) const;  // false: not whole, or not there any more

  int bits_;
  std::uint64_t mask_;
  std::unique_ptr<Place[]> places_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace tilewise::worker
