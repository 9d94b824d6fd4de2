#include "progress.h"

#include <algorithm>

namespace tilewise::device {

bool Progress::complete(std::uint64_t sequence) {
  completed_.store(sequence);
  if (sequence >= wanted_.load()) wake_waiters();
  return !announced_.load() && !announced_.exchange(true);
}

void Progress::close() {
  closed_.store(true);
  wake_waiters();
}

// A woken waiter removes itself under the mutex, so its parker lives as long as we hold it.
void Progress::wake_waiters() {
  std::lock_guard lock(mutex_);
  for (const Waiter& waiter : waiters_) {
    if (reached(waiter.sequence)) waiter.parker->wake();
  }
}

bool Progress::wait(std::uint64_t sequence, Parker& parker, TimeNs spin_ns) {
  if (!reached(sequence)) {
    {
      std::lock_guard lock(mutex_);
      waiters_.push_back({sequence, &parker});
      wanted_.store(std::min(wanted_.load(), sequence));
    }
    parker.park_until([&] { return reached(sequence); }, spin_ns);
    std::lock_guard lock(mutex_);
    waiters_.erase(
        std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.parker == &parker; }));
    std::uint64_t wanted = kNobody;
    for (const Waiter& waiter : waiters_) wanted = std::min(wanted, waiter.sequence);
    wanted_.store(wanted);
  }
  return completed() >= sequence;
}

}  // namespace tilewise::device
