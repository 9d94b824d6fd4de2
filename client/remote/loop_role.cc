#include "loop_role.h"

#include <chrono>

namespace tilewise::remote {

void LoopRole::serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    // Once let go for somebody it is his, however late he wakes up.
    if (holder_ == Holder::kUser || (holder_ == Holder::kFree && wanted_)) {
      resting_ = true;
      background_.wait(lock);
      resting_ = false;
      continue;
    }
    const TimeNs left = lease_until_ - monotonic_now();
    if (holder_ == Holder::kFree && left > 0 && !urgent_) {
      background_.wait_for(lock, std::chrono::nanoseconds(left));
      continue;
    }
    urgent_ = false;
    holder_ = Holder::kBackground;
    lock.unlock();
    loop_.run();  // until stop() or take()
    lock.lock();
    holder_ = Holder::kFree;
    lease_until_ = monotonic_now() + lease_ns_;
    user_.notify_all();
  }
}

void LoopRole::stop() {
  const std::scoped_lock lock(mutex_);
  stopping_ = true;
  loop_.stop();
  background_.notify_all();
}

bool LoopRole::take(TimeNs until) {
  std::unique_lock lock(mutex_);
  if (holder_ == Holder::kUser || wanted_ || stopping_) {
    others_ = true;
    return false;
  }
  if (holder_ == Holder::kBackground) {
    wanted_ = true;
    loop_.stop();
    user_.wait_for(lock, std::chrono::nanoseconds(until - monotonic_now()),
                   [&] { return holder_ == Holder::kFree; });
    wanted_ = false;
    if (holder_ != Holder::kFree) return false;  // it does not run again before the lease is over: no harm
  }
  holder_ = Holder::kUser;
  return true;
}

bool LoopRole::take_free() {
  const std::scoped_lock lock(mutex_);
  if (holder_ != Holder::kFree || wanted_ || stopping_) return false;
  holder_ = Holder::kUser;
  return true;
}

void LoopRole::release() {
  bool tell = false;
  {
    const std::scoped_lock lock(mutex_);
    holder_ = Holder::kFree;
    lease_until_ = monotonic_now() + lease_ns_;
    urgent_ |= std::exchange(others_, false);
    tell = resting_ || urgent_;
  }
  if (tell) background_.notify_all();
}

void LoopRole::hurry() {
  {
    const std::scoped_lock lock(mutex_);
    urgent_ = true;
  }
  background_.notify_all();
}

}  // namespace tilewise::remote
