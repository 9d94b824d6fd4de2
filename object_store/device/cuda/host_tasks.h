// What the GPU cannot do itself, done by a thread of the host at its place in a stream: waiting for a host stream,
// moving bytes between pageable memory and a pinned buffer, calling functions.
//
// A stream stops at a word in pinned memory (cuStreamWaitValue64) until the task with that number is done; for a move or
// a call it first announces that it has come there (cuStreamWriteValue64). Tasks of a stream are done in order. The thread makes no
// driver call and takes no lock that is held during one: the driver waits for the whole GPU, with its own lock held, when
// it loads a kernel or allocates, and a stream that then waits for a thread that wants that lock never goes on.
//
// Measured on an H200 with driver 580: driver callbacks (cuLaunchHostFunc) in turn with copies block the caller once
// some 60 pairs are queued behind a stopped stream; hence no callbacks, and neighbouring moves share one stop.
#pragma once
#include <tilewise/device/device.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tilewise::cuda {

// The part in pinned memory, one per stream.
struct HostTaskWords {
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 20;
  alignas(64) std::atomic<std::uint64_t> arrived;  // moves that the stream has come to; written by the GPU
  alignas(
      64) std::atomic<std::uint64_t> released;  // tasks done; written by the thread, waited for by the GPU
  alignas(4096) std::byte staging[kStagingBytes];
};

// The tasks of one stream. add_* are called by the thread that drives the device, run() by the host thread.
class HostTasks {
 public:
  explicit HostTasks(HostTaskWords* words) : words_(words) {}

  struct Ticket {
    std::uint64_t arrival = 0;  // to be written to `arrived` by the stream; 0: nothing to announce
    std::uint64_t release = 0;  // to be waited for in `released`
  };
  Ticket add_wait(device::Stream& other, std::uint64_t sequence);
  // Copies `bytes` <= kStagingBytes when the stream has arrived. Stream order alone protects the staging buffer.
  Ticket add_move(std::byte* to, const std::byte* from, std::size_t bytes);
  // Calls `fn` when the stream has arrived. It must not block: other streams wait meanwhile.
  Ticket add_call(std::function<void()> fn);
  // Adds a move into staging to the last task, if that is an unfinished one of the kind and has room: its place there.
  std::byte* join_move(const std::byte* from, std::size_t bytes);
  // The next move starts a task of its own: something lies between that it may depend on.
  void close() { joinable_ = false; }

  bool run();  // true if a task was done
  bool open() const { return open_.load(std::memory_order_acquire) > 0; }
  void abandon();  // the context is broken: nothing will arrive any more

 private:
  struct Move {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  struct Task {
    device::Stream* other = nullptr;
    std::uint64_t sequence = 0;  // of `other`, or the arrival
    std::vector<Move> moves;
    std::function<void()> call;
  };
  Ticket push(Task task, std::uint64_t arrival);

  HostTaskWords* words_;
  std::mutex mutex_;
  std::deque<Task> tasks_;
  std::uint64_t made_ = 0, arrivals_ = 0;
  std::size_t staged_ = 0;  // bytes of staging that the last task fills
  bool joinable_ = false;   // driving thread only
  std::atomic<std::size_t> open_{0};
};

// The thread, one per device. Parks while no stream has tasks; else looks at intervals of an eighth of the time since the
// last success, 2 to 200 us.
class HostThread {
 public:
  explicit HostThread(std::vector<HostTasks*> tasks);
  ~HostThread();  // no task may be open
  void wake();

 private:
  void run();
  std::vector<HostTasks*> tasks_;
  std::atomic<std::uint32_t> work_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tilewise::cuda
