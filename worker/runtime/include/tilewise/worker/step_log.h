// The last steps that ran on this process's host devices: who, where, from when to when. Written by the threads that run
// them, without locks and without ever waiting; the oldest records are overwritten. Read when somebody asks.
#pragma once
#include <tilewise/base/id.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tilewise::worker {

struct StepRecord {
  OpId op;
  GraphId graph;
  std::int64_t point = 0;  // C-order number in the op's space
  std::uint32_t family = 0;
  std::uint16_t device = 0;  // position in the worker
  std::uint8_t stream = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // monotonic clock of this host
};

class StepLog {
 public:
  StepLog();

  // From any thread.
  void add(const StepRecord& record);
  // Those that are there and whole, oldest first. From one thread at a time. `lost`: how many older ones were overwritten.
  std::vector<StepRecord> read(std::uint64_t& lost) const;

  static constexpr std::uint64_t kCapacity = 1 << 16;

 private:
  // A record as words, so that a reader may look while a writer writes; `turn` says which writing of the place is whole
  // (2 * n + 2 after the n-th), and odd numbers that one is under way: a sequence lock for each place.
  static constexpr std::size_t kWords = 6;
  struct Place {
    std::atomic<std::uint64_t> turn{0};
    std::atomic<std::uint64_t> words[kWords] = {};
  };
  std::unique_ptr<Place[]> places_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace tilewise::worker
