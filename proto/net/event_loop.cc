#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include "event_loop_impl.h"
#include "os_error.h"

namespace tilewise::net {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
// A flood of events must not keep the hook (the daemon's core) and the outgoing batches waiting.
constexpr int kMaxBatch = 256;
}  // namespace

bool EventLoop::Impl::turn() {
  int handlers = 0;
  while (handlers < kMaxBatch && io.poll_one() > 0) ++handlers;
  bool worked = handlers > 0;
  worked |= run_posted();
  worked |= run_pollers();
  if (hook) worked |= hook();
  worked |= run_deferred();
  return worked;
}

bool EventLoop::Impl::run_posted() {
  if (!has_posted.load(std::memory_order_acquire)) return false;
  {
    std::lock_guard lock(mutex);
    posted_running.swap(posted);
    has_posted.store(false, std::memory_order_relaxed);
  }
  for (Fn& fn : posted_running) fn();
  posted_running.clear();
  return true;
}

bool EventLoop::Impl::run_deferred() {
  if (deferred.empty()) return false;
  deferred_running.swap(deferred);
  for (Fn& fn : deferred_running) fn();
  deferred_running.clear();
  return true;
}

bool EventLoop::Impl::run_pollers() {
  if (std::exchange(pollers_removed, false)) std::erase(pollers, nullptr);
  bool worked = false;
  for (std::size_t i = 0; i < pollers.size(); ++i) {  // it may grow meanwhile
    if (pollers[i]) worked |= pollers[i]->poll();
  }
  return worked;
}

void EventLoop::Impl::park() {
  // Either we see what another thread left before its wake(), or it sees that we are parked: both fences
  // are needed.
  parked.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool work = stopping.load() || has_posted.load() || (hook && hook()) || !deferred.empty();
  for (std::size_t i = 0; i < pollers.size() && !work; ++i) work = pollers[i] && pollers[i]->before_park();
  if (!work) io.run_one();
  parked.store(false, std::memory_order_relaxed);
  for (const auto& poller : pollers) {
    if (poller) poller->after_park();
  }
}

template <class Done> void EventLoop::Impl::run_while_not(const Done& done) {
  TimeNs last_work = options.spin_ns > 0 ? monotonic_now() : 0;  // whoever starts to wait polls first
  while (!done()) {
    if (turn()) {
      if (options.spin_ns > 0) last_work = monotonic_now();
    } else if (options.spin_ns == 0 || monotonic_now() - last_work >= options.spin_ns) {
      if (!done()) park();
    } else {
      std::this_thread::yield();  // whoever we wait for may want this very core
    }
  }
}

EventLoop::EventLoop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EventLoop::~EventLoop() {
  // What callbacks own may call back into the loop while it dies: so the tables are emptied before they go.
  auto timers = std::exchange(impl_->timers, {});
  auto deferred = std::exchange(impl_->deferred, {});
  auto posted = std::exchange(impl_->posted, {});
}

Result<std::unique_ptr<EventLoop>> EventLoop::create(EventLoopOptions options) {
  try {  // Asio makes its epoll and wake-up descriptors in constructors
    return std::unique_ptr<EventLoop>(new EventLoop(std::make_unique<Impl>(options)));
  } catch (const boost::system::system_error& e) {
    return os_error("make an event loop", e.code().value());
  }
}

void EventLoop::run() {
  impl_->run_while_not([this] { return impl_->stopping.load(std::memory_order_relaxed); });
  impl_->stopping = false;
}

bool EventLoop::run_until(const std::function<bool()>& done, TimeNs timeout_ns) {
  bool late = false;
  TimerId timer = after(timeout_ns, [&late] { late = true; });
  impl_->run_while_not([&] { return late || impl_->stopping.load(std::memory_order_relaxed) || done(); });
  cancel(timer);
  impl_->stopping = false;
  return done();
}

bool EventLoop::poll() { return impl_->turn(); }

void EventLoop::post(Fn fn) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->posted.push_back(std::move(fn));
    impl_->has_posted.store(true, std::memory_order_release);
  }
  wake();
}

void EventLoop::wake() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Whoever takes the flag down makes the system call; everybody else's wake-up is the same one.
  if (impl_->parked.load(std::memory_order_relaxed) && impl_->parked.exchange(false))
    asio::post(impl_->io, [] {});
}

void EventLoop::stop() {
  impl_->stopping = true;
  wake();
}

void EventLoop::defer(Fn fn) { impl_->deferred.push_back(std::move(fn)); }

void EventLoop::set_spin(TimeNs spin_ns) { impl_->options.spin_ns = spin_ns; }

void EventLoop::set_batch_hook(std::function<bool()> hook) { impl_->hook = std::move(hook); }

void EventLoop::add_poller(std::shared_ptr<Poller> poller) { impl_->pollers.push_back(std::move(poller)); }

void EventLoop::remove_poller(const Poller* poller) {
  for (auto& each : impl_->pollers) {
    if (each.get() != poller) continue;
    each.reset();
    impl_->pollers_removed = true;
    return;
  }
}

TimerId EventLoop::after(TimeNs delay_ns, Fn fn) {
  TimerId id = ++impl_->last_timer;
  auto timer = std::make_unique<Impl::Timer>(impl_->io, std::move(fn));
  timer->timer.expires_after(std::chrono::nanoseconds(delay_ns));
  // Found by id, not by pointer: a timer that expired and was then cancelled is in Asio's queue already.
  timer->timer.async_wait([impl = impl_.get(), id](error_code ec) {
    auto found = ec ? impl->timers.end() : impl->timers.find(id);
    if (found == impl->timers.end()) return;
    std::unique_ptr<Impl::Timer> fired = std::move(found->second);
    impl->timers.erase(found);
    fired->fn();
  });
  impl_->timers.emplace(id, std::move(timer));
  return id;
}

void EventLoop::cancel(TimerId id) {
  auto found = impl_->timers.find(id);
  if (found == impl_->timers.end()) return;
  // Erased first, destroyed after: the function's captures may own objects that cancel timers themselves.
  std::unique_ptr<Impl::Timer> timer = std::move(found->second);
  impl_->timers.erase(found);
}

// ---- descriptors ----

struct FdWatch::State : std::enable_shared_from_this<FdWatch::State> {
  State(asio::io_context& io, EventLoop::Fn f) : descriptor(io), fn(std::move(f)) {}
  ~State() { release(); }
  void release() {
    if (descriptor.is_open()) descriptor.release();
  }
  asio::posix::stream_descriptor descriptor;
  EventLoop::Fn fn;
  bool armed = false;
};

FdWatch::FdWatch(std::shared_ptr<State> state) : state_(std::move(state)) {}

FdWatch::~FdWatch() { state_->release(); }

void FdWatch::arm() {
  if (state_->armed) return;
  state_->armed = true;
  state_->descriptor.async_wait(asio::posix::stream_descriptor::wait_read, [state = state_](error_code) {
    state->armed = false;
    if (state->descriptor.is_open()) state->fn();  // also after an error: reading will say which
  });
}

Result<std::unique_ptr<FdWatch>> EventLoop::watch_fd(int fd, Fn on_readable) {
  // Asio accepts a file, which epoll does not, and then never calls.
  struct stat info {};
  if (::fstat(fd, &info) != 0) return os_error("watch a descriptor", errno);
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return error(Errc::kIo, "a file cannot be watched");
  auto state = std::make_shared<FdWatch::State>(impl_->io, std::move(on_readable));
  error_code ec;
  state->descriptor.assign(fd, ec);
  if (ec) return error(Errc::kIo, "watch descriptor " + std::to_string(fd) + ": " + ec.message());
  return std::unique_ptr<FdWatch>(new FdWatch(std::move(state)));
}

// ---- signals ----

void EventLoop::Impl::await_signal() {
  signals->async_wait([this](error_code ec, int signal) {
    if (ec) return;
    on_signal(signal);
    await_signal();
  });
}

Status EventLoop::on_signals(std::function<void(int)> fn) {
  if (impl_->signals) return error(Errc::kAlreadyExists, "signals are handled by this loop already");
  auto signals = std::make_unique<asio::signal_set>(impl_->io);
  error_code ec;
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) {  // in place of UCX's handler of the last
    signals->add(signal, ec);
    if (ec) return error(Errc::kIo, "handle signals: " + ec.message());
  }
  impl_->signals = std::move(signals);
  impl_->on_signal = std::move(fn);
  impl_->await_signal();
  return {};
}

}  // namespace tilewise::net
