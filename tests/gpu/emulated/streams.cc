#include "streams.h"

namespace tilewise::emulated {

void Mark::fire() {
  const std::lock_guard lock(mutex_);
  set_.store(true, std::memory_order_release);
  fired_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  fired_.wait(lock, [this] { return set(); });
}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Queue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void Queue::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_.empty() && !busy_; });
}

bool Queue::idle() {
  const std::lock_guard lock(mutex_);
  return work_.empty() && !busy_;
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace tilewise::emulated
