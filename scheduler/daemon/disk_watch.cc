#include "disk_watch.h"

#include <algorithm>
#include <chrono>

namespace tilewise::scheduler {

DiskWatch::DiskWatch(Options options, Late on_late, Late on_limit)
    : options_(options), on_late_(std::move(on_late)), on_limit_(std::move(on_limit)) {
  thread_ = std::thread([this] {
    const TimeNs first =
        options_.limit_ns > 0 ? std::min(options_.warn_ns, options_.limit_ns) : options_.warn_ns;
    const auto pause = std::chrono::nanoseconds(std::clamp(first / 4, kMillisecond, kSecond / 4));
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, pause, [this] { return stop_; })) look();
  });
}

DiskWatch::~DiskWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

DiskWatch::Wait DiskWatch::wait(const char* doing) {
  doing_.store(doing, std::memory_order_relaxed);
  since_.store(std::max<TimeNs>(monotonic_now(), 1), std::memory_order_release);
  return Wait(this);
}

void DiskWatch::look() {
  const TimeNs since = since_.load(std::memory_order_acquire);
  if (since == 0) return;
  const char* const doing = doing_.load(std::memory_order_relaxed);
  const TimeNs waited = monotonic_now() - since;
  if (waited >= options_.warn_ns && std::exchange(late_, since) != since) on_late_(doing, waited);
  if (options_.limit_ns > 0 && waited >= options_.limit_ns && std::exchange(over_, since) != since)
    on_limit_(doing, waited);
}

}  // namespace tilewise::scheduler
