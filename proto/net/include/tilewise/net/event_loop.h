// One thread's events: sockets, timers, descriptors, signals, and work posted by other threads.
//
// Everything happens on the thread that calls run(); only post(), wake() and stop() may be called from
// others. All objects made on a loop are destroyed before it. Callbacks must not throw.
//
// One turn of the loop: ready events and posted functions (a bounded batch), then the batch hook, then what
// was deferred. So a daemon feeds events to its core in callbacks, steps the core once per batch in the
// hook, and its links write their batches afterwards with one system call each. When nothing was done for
// `spin_ns` the thread parks in the kernel: a wake-up costs 20-30 us, a poll well under one.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace tilewise::net {

struct EventLoopOptions {
  TimeNs spin_ns = 0;  // how long to poll after the last work before parking; 0 where cores are few
};

using TimerId = std::uint64_t;  // 0 is none

// Readability of a descriptor that somebody else owns (UCX's event descriptor): never closed here.
class FdWatch {
 public:
  ~FdWatch();  // no callback afterwards; allowed inside its own callback
  // Ask for one callback when the descriptor is readable (now or later). Does nothing while one is
  // outstanding.
  void arm();

 private:
  friend class EventLoop;
  struct State;
  explicit FdWatch(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Something that no descriptor tells of: memory that another process writes. Called by the loop's thread.
class Poller {
 public:
  virtual ~Poller() = default;
  // Every turn: calls whoever waits for what has come. True if it did.
  virtual bool poll() = 0;
  // The thread is about to sleep: from now on whoever writes has to wake it, through a descriptor. True if
  // there is something after all; then it does not sleep. after_park() follows in either case.
  virtual bool before_park() = 0;
  virtual void after_park() = 0;
};

class EventLoop {
 public:
  using Fn = std::function<void()>;

  static Result<std::unique_ptr<EventLoop>> create(EventLoopOptions options = {});
  ~EventLoop();  // posted and deferred functions that did not run are dropped

  // Until stop(). A stop() that came before run() ends it at once; afterwards run() may be called again.
  void run();
  // Until done() is true (asked after each turn), the time is over, or stop(). Returns done().
  bool run_until(const std::function<bool()>& done, TimeNs timeout_ns);
  // One turn without waiting; true if anything was done.
  bool poll();

  // From any thread. Functions run in the order posted by one thread. Only a parked loop costs a system call.
  void post(Fn fn);
  // From any thread: one more turn, so that the hook looks at its mailboxes again. Free while the loop is
  // awake.
  void wake();
  // From any thread; not from a signal handler (see on_signals).
  void stop();

  // Runs at the end of this turn, after the hook; never inside the call.
  void defer(Fn fn);
  // Changes EventLoopOptions::spin_ns; from the loop's thread.
  void set_spin(TimeNs spin_ns);
  // Called after each batch and once more before parking; true if it did work (then the loop does not park).
  void set_batch_hook(std::function<bool()> hook);

  // Looked at in every turn, before the hook. May be removed at any time, in its own calls too.
  void add_poller(std::shared_ptr<Poller> poller);
  void remove_poller(const Poller* poller);

  // One call of fn in delay_ns or a little later. cancel() of a timer that has fired does nothing; after
  // cancel() fn is not called.
  TimerId after(TimeNs delay_ns, Fn fn);
  void cancel(TimerId id);

  // kIo for what epoll cannot watch, or watches here already.
  Result<std::unique_ptr<FdWatch>> watch_fd(int fd, Fn on_readable);
  // SIGTERM, SIGINT and SIGHUP come here instead of ending the process. One loop of a process may ask for this, in
  // main().
  Status on_signals(std::function<void(int signal)> fn);

  struct Impl;  // Asio, in event_loop_impl.h
  Impl& impl() { return *impl_; }

 private:
  explicit EventLoop(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewise::net
