// Who notices that the disk of the state does not answer. Whoever waits for it cannot: the scheduler has one thread for all that its peers see,
// and nobody sees a step before it is on record. So a thread of its own looks four times a second at what is being waited for.
#pragma once
#include <tilewise/base/time.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tilewise::scheduler {

class DiskWatch {
 public:
  struct Options {
    TimeNs warn_ns = kSecond;
    TimeNs limit_ns = 0;  // 0: none
  };
  // Called on the watch's thread, each at most once for one wait, while the caller of wait() still waits. `doing`: what was given to it.
  using Late = std::function<void(const char* doing, TimeNs waited_ns)>;

  DiskWatch(Options options, Late on_late, Late on_limit);
  ~DiskWatch();
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  class Wait {
   public:
    explicit Wait(DiskWatch* watch) : watch_(watch) {}
    Wait(Wait&& other) noexcept : watch_(std::exchange(other.watch_, nullptr)) {}
    Wait& operator=(Wait&&) = delete;
    ~Wait() {
      if (watch_ != nullptr) watch_->since_.store(0, std::memory_order_release);
    }

   private:
    DiskWatch* watch_;
  };
  // From now until the result is destroyed the disk is waited for. One wait at a time, by one thread. `doing`: a literal.
  [[nodiscard]] Wait wait(const char* doing);

 private:
  void look();

  const Options options_;
  const Late on_late_, on_limit_;
  std::atomic<const char*> doing_ = nullptr;
  std::atomic<TimeNs> since_ = 0;  // 0: nothing is waited for
  TimeNs late_ = 0, over_ = 0;     // the waits that were told of, by when they began
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tilewise::scheduler
