// Streams and events of the emulated driver: a queue with a thread of its own each, so that what is enqueued runs later, and
// on another thread than the one that enqueued it, as on a GPU.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tilewise::emulated {

// The GPUs of this process answer every call with CUDA_ERROR_ILLEGAL_ADDRESS from now on, and nothing runs on them any more.
// `hangs`: who waits for them waits for ever.
inline std::atomic<bool> broken{false}, hangs{false};

// One record of an event: later ones do not change what earlier waits are for.
class Mark {
 public:
  bool set() const { return set_.load(std::memory_order_acquire); }
  void fire();
  void wait();

 private:
  std::atomic<bool> set_{false};
  std::mutex mutex_;
  std::condition_variable fired_;
};

class Queue {
 public:
  Queue() : thread_([this] { run(); }) {}
  ~Queue();  // after what is queued
  void push(std::function<void()> work);
  void synchronize();
  bool idle();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace tilewise::emulated
