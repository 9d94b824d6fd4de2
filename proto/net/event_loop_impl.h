// Private: what the few sources that use Asio share.
#pragma once
#include <tilewise/net/event_loop.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

namespace tilewise::net {

struct Lookups;  // lookup.cc

struct EventLoop::Impl {
  explicit Impl(EventLoopOptions o) : options(o), io(1), guard(io.get_executor()) {}

  bool turn();  // one batch, the hook, the deferred; true if anything was done
  bool run_posted();
  bool run_deferred();
  bool run_pollers();
  void park();
  template <class Done> void run_while_not(const Done& done);
  void await_signal();

  struct Timer {
    Timer(boost::asio::io_context& io, Fn f) : timer(io), fn(std::move(f)) {}
    boost::asio::steady_timer timer;
    Fn fn;
  };

  EventLoopOptions options;
  boost::asio::io_context io;  // first: whatever owns sockets or timers dies before it
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard;
  std::unordered_map<TimerId, std::unique_ptr<Timer>> timers;
  TimerId last_timer = 0;
  std::unique_ptr<boost::asio::signal_set> signals;
  std::function<void(int)> on_signal;
  std::function<bool()> hook;
  std::vector<Fn> deferred, deferred_running;
  std::vector<std::shared_ptr<Poller>> pollers;  // null: removed, and to be taken out
  bool pollers_removed = false;
  std::shared_ptr<Lookups> lookups;  // from the first name on

  // Shared with other threads.
  std::atomic<bool> stopping = false;
  std::atomic<bool> parked = false;
  std::atomic<bool> has_posted = false;
  std::mutex mutex;
  std::vector<Fn> posted;
  std::vector<Fn> posted_running;  // this loop's thread only
};

}  // namespace tilewise::net
