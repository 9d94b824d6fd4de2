// Who runs an event loop: a thread of its own, or whichever user's thread waits for what it brings.
//
// A user's thread that waits is woken twice for an answer if another thread reads the socket: that one, then itself.
// So it takes the loop over while it waits, and gives it back. The background thread does not take it at once, since
// whoever has waited once is likely to wait again: the role stays free for kLeaseNs, during which nothing is read.
//
// Any thread. The loop is run by whoever holds the role and by nobody else.
#pragma once
#include <tilewise/net/event_loop.h>

#include <condition_variable>
#include <mutex>

namespace tilewise::remote {

class LoopRole {
 public:
  static constexpr TimeNs kLeaseNs = 2 * kMillisecond;

  explicit LoopRole(net::EventLoop& loop, TimeNs lease_ns = kLeaseNs) : loop_(loop), lease_ns_(lease_ns) {}

  // The background thread's body, until stop().
  void serve();
  void stop();

  // For a thread that waits, until the monotonic clock says `until`: false if another user's thread has the role, or
  // the background thread does not let go in time. Never from within the loop.
  bool take(TimeNs until);
  // Only if it is free.
  bool take_free();
  void release();
  // Work has come that only the loop can do: the background thread is to take a free role now.
  void hurry();

 private:
  enum class Holder : std::uint8_t { kBackground, kUser, kFree };

  net::EventLoop& loop_;
  const TimeNs lease_ns_;
  std::mutex mutex_;
  std::condition_variable background_, user_;
  Holder holder_ = Holder::kBackground;
  TimeNs lease_until_ = 0;
  bool wanted_ = false;   // a user's thread waits for the background thread to let go
  bool others_ = false;   // more threads wait than the one that runs the loop
  bool urgent_ = false;   // the lease is over
  bool resting_ = false;  // the background thread sleeps until somebody tells it
  bool stopping_ = false;
};

}  // namespace tilewise::remote
