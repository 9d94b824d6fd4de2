#include "host_tasks.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tilewise::cuda {

HostTasks::Ticket HostTasks::push(Task task, std::uint64_t arrival) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  open_.store(tasks_.size(), std::memory_order_release);
  return {arrival, ++made_};
}

HostTasks::Ticket HostTasks::add_wait(device::Stream& other, std::uint64_t sequence) {
  close();
  return push({.other = &other, .sequence = sequence}, 0);
}

HostTasks::Ticket HostTasks::add_move(std::byte* to, const std::byte* from, std::size_t bytes) {
  joinable_ = to == words_->staging;
  staged_ = bytes;
  ++arrivals_;
  return push({.sequence = arrivals_, .moves = {{to, from, bytes}}}, arrivals_);
}

HostTasks::Ticket HostTasks::add_call(std::function<void()> fn) {
  close();
  ++arrivals_;
  return push({.sequence = arrivals_, .call = std::move(fn)}, arrivals_);
}

std::byte* HostTasks::join_move(const std::byte* from, std::size_t bytes) {
  const std::size_t at = (staged_ + 255) / 256 * 256;
  if (!joinable_ || at + bytes > HostTaskWords::kStagingBytes) return nullptr;
  const std::lock_guard lock(mutex_);
  if (tasks_.empty()) return nullptr;  // done meanwhile
  std::byte* const to = words_->staging + at;
  tasks_.back().moves.push_back({to, from, bytes});
  staged_ = at + bytes;
  return to;
}

bool HostTasks::run() {
  if (!open()) return false;
  const std::lock_guard lock(mutex_);
  if (tasks_.empty()) return false;
  const Task& task = tasks_.front();
  const std::uint64_t reached =
      task.other != nullptr ? task.other->completed() : words_->arrived.load(std::memory_order_acquire);
  if (reached < task.sequence) return false;
  for (const Move& move : task.moves) std::memcpy(move.to, move.from, move.bytes);
  if (task.call) task.call();
  tasks_.pop_front();
  words_->released.store(made_ - tasks_.size(), std::memory_order_release);
  open_.store(tasks_.size(), std::memory_order_release);
  return true;
}

void HostTasks::abandon() {
  const std::lock_guard lock(mutex_);
  tasks_.clear();
  open_.store(0, std::memory_order_release);
}

HostThread::HostThread(std::vector<HostTasks*> tasks)
    : tasks_(std::move(tasks)), thread_([this] { run(); }) {}

HostThread::~HostThread() {
  stopping_.store(true);
  wake();
  thread_.join();
}

void HostThread::wake() {
  work_.fetch_add(1, std::memory_order_release);
  work_.notify_one();
}

void HostThread::run() {
  using Clock = std::chrono::steady_clock;
  using std::chrono::microseconds;
  ::prctl(PR_SET_NAME, "tw-cuda-host");
  ::prctl(PR_SET_TIMERSLACK, 1000);
  auto success = Clock::now();
  while (!stopping_.load()) {
    const std::uint32_t seen = work_.load(std::memory_order_acquire);
    bool done = false, open = false;
    for (HostTasks* tasks : tasks_) {
      done |= tasks->run();
      open |= tasks->open();
    }
    if (!open && !done) work_.wait(seen, std::memory_order_acquire);
    if (!open || done) {
      success = Clock::now();
      continue;
    }
    const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - success);
    std::this_thread::sleep_for(std::clamp(waited / 8, microseconds(2), microseconds(200)));
  }
}

}  // namespace tilewise::cuda
