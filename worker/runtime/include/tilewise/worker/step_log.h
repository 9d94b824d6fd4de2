// The last steps of this process's devices, and what came and what they waited for: who, where, from when to when. Written
// by the threads that run them, without locks and without ever waiting; the oldest records are overwritten. Read when somebody asks.
#pragma once
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
  StepLog();

  // From any thread.
  void add(const StepRecord& record);
  // Those that are there and whole, oldest first. From one thread at a time. `lost`: how many older ones were overwritten.
  std::vector<StepRecord> read(std::uint64_t& lost) const;

  static constexpr std::uint64_t kCapacity = 1 << 16;

 private:
  // A record as words, so that a reader may look while a writer writes; `turn` says which writing of the place is whole
  // (2 * n + 2 after the n-th), and odd numbers that one is under way: a sequence lock for each place.
  static constexpr std::size_t kWords = 9;
  struct Place {
    std::atomic<std::uint64_t> turn{0};
    std::atomic<std::uint64_t> words[kWords] = {};
  };
  std::unique_ptr<Place[]> places_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace tilewise::worker
