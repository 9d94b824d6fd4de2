// How far a host stream has come, and who waits for it. Shared by the stream and the streams that wait for it, so that
// either may be destroyed first.
#pragma once
#include "parker.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

namespace tilewise::device {

class Progress {
 public:
  // ---- the executor ----
  // Publishes a step and wakes whoever waits for it. True when nobody has looked at observe() since the last true:
  // then the owner must be told.
  bool complete(std::uint64_t sequence);
  // The stream ends: nothing will complete any more. Wakes everyone.
  void close();

  // ---- anyone ----
  std::uint64_t completed() const { return completed_.load(); }
  // The owner's look: the next complete() will tell it again.
  std::uint64_t observe() {
    if (announced_.load(std::memory_order_relaxed)) announced_.store(false);
    return completed_.load();
  }
  bool closed() const { return closed_.load(); }
  bool reached(std::uint64_t sequence) const { return completed() >= sequence || closed(); }

  // Parks the calling thread on `parker` until `sequence` is complete (true) or the stream has ended before (false).
  bool wait(std::uint64_t sequence, Parker& parker, TimeNs spin_ns);

 private:
  static constexpr std::uint64_t kNobody = std::numeric_limits<std::uint64_t>::max();
  struct Waiter {
    std::uint64_t sequence;
    Parker* parker;
  };
  void wake_waiters();

  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> wanted_{kNobody};  // the smallest sequence of a waiter
  std::atomic<bool> announced_{false};
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::vector<Waiter> waiters_;
};

}  // namespace tilewise::device
