#include "host_stream.h"

#include <pthread.h>

#include <cstring>
#include <exception>
#include <future>

namespace tilewise::device {

namespace {
constexpr TimeNs kForeignPoll = 50 * kMicrosecond;
}

HostStream::HostStream(std::string name, TimeNs spin_ns, const std::function<void()>* notify)
    : name_(std::move(name)), spin_ns_(spin_ns), notify_(notify), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

HostStream::~HostStream() {
  stop();
  thread_.join();
}

void HostStream::stop() {
  stopping_.store(true);
  parker_.wake();
}

void HostStream::push(Item&& item) {
  step_open_ = !std::holds_alternative<Record>(item);
  queue_.push(std::move(item));
  parker_.wake();
}

Status HostStream::enqueue(HostWork work) {
  if (!work) return error(Errc::kInvalidArgument, name_ + ": empty work");
  push(std::move(work));
  return {};
}

bool HostStream::run_now(const HostWork& work) {
  if (step_open_ || progress_->completed() != recorded_) return false;
  perform_guarded([&] { return work(); });
  ++recorded_;
  keep_failure();
  progress_->complete(current_++);
  return true;
}

Status HostStream::call(std::function<void()> fn) {
  return enqueue([fn = std::move(fn)]() -> Status {
    fn();
    return {};
  });
}

Status HostStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  if (to == nullptr || from == nullptr) {
    return error(Errc::kInvalidArgument,
                 name_ + ": copy of " + std::to_string(bytes) + " bytes from or to nowhere");
  }
  push(Copy{to, from, bytes});
  return {};
}

Status HostStream::wait(Stream& other, std::uint64_t sequence) {
  if (&other == this) {
    if (sequence <= recorded_) return {};  // FIFO order already says so
    return error(Errc::kInvalidArgument, name_ + " would wait for its own step " + std::to_string(sequence));
  }
  if (auto* host = dynamic_cast<HostStream*>(&other)) {
    if (host->progress_->completed() < sequence) push(WaitHost{host->progress_, sequence});
  } else if (other.completed() < sequence) {
    push(WaitForeign{&other, sequence});
  }
  return {};
}

std::uint64_t HostStream::record() {
  push(Record{});
  return ++recorded_;
}

void HostStream::take_failures(std::vector<StepFailure>& out) {
  if (!has_failures_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(failures_mutex_);
  has_failures_.store(false, std::memory_order_relaxed);
  for (StepFailure& failure : failures_) out.push_back(std::move(failure));
  failures_.clear();
}

void HostStream::synchronize() {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> reached = done->get_future();
  push(HostWork([done] {
    done->set_value();
    return Status();
  }));
  reached.wait();
}

// ---- the executor's thread ----

void HostStream::run() {
  for (;;) {
    if (!queue_.empty()) {
      execute(queue_.front());
      queue_.pop();
      continue;
    }
    if (stopping_.load()) {
      // What was pushed before stop() is visible now: the store came after it.
      if (queue_.empty()) break;
      continue;
    }
    parker_.park_until([this] { return !queue_.empty() || stopping_.load(); }, spin_ns_);
  }
  progress_->close();
}

void HostStream::execute(Item& item) {
  if (std::holds_alternative<Record>(item)) return finish_step();
  perform_guarded([&] { return std::visit([this](auto& x) { return perform(x); }, item); });
  // What the work holds is released before its step is complete.
  item = Record{};
}

template <class Work> void HostStream::perform_guarded(Work&& work) {
  Status status;
  try {
    status = work();
  } catch (const std::bad_alloc&) {
    status = error(Errc::kOutOfMemory,
                   name_ + ": the process has no memory for what the work needs beside its blocks");
  } catch (const std::exception& e) {
    status = error(Errc::kInternal, name_ + ": work threw: " + e.what());
  } catch (...) {
    status = error(Errc::kInternal, name_ + ": work threw something that is no std::exception");
  }
  if (!status && !step_failed_) {
    step_failed_ = true;
    step_error_ = std::move(status).error();
  }
}

Status HostStream::perform(Record&) { return {}; }

Status HostStream::perform(HostWork& work) { return work(); }

Status HostStream::perform(Copy& copy) {
  std::memmove(copy.to, copy.from, copy.bytes);
  return {};
}

Status HostStream::perform(WaitHost& wait) {
  if (wait.progress->wait(wait.sequence, wait_parker_, spin_ns_)) return {};
  return error(Errc::kUnavailable,
               name_ + " waited for step " + std::to_string(wait.sequence) + " of a stream that has ended");
}

Status HostStream::perform(WaitForeign& wait) {
  const auto ready = [&] { return wait.stream->completed() >= wait.sequence; };
  while (!ready()) wait_parker_.park_until(ready, 0, kForeignPoll);
  return {};
}

void HostStream::keep_failure() {
  if (!step_failed_) return;
  std::lock_guard lock(failures_mutex_);
  failures_.push_back({current_, std::move(step_error_)});
  step_failed_ = false;
  has_failures_.store(true, std::memory_order_release);
}

void HostStream::finish_step() {
  keep_failure();
  if (progress_->complete(current_++) && *notify_) (*notify_)();
}

}  // namespace tilewise::device
