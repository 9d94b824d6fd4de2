// A CUDA stream with numbered steps.
//
// record() puts an event behind the step and returns; events live in a ring, so that nothing is allocated per step.
// completed() is one atomic load: the device's poller thread asks the driver, in order, which events have passed.
// Invariants: 0 <= completed <= recorded <= completed + kRing; slot s % kRing holds the event of step s while s is
// open; `completed` moves only under `mutex_`, so whoever holds it may use the event of an open step.
//
// What the GPU cannot do itself - wait for a host stream, copy from or to pageable host memory - is a *host task*: the
// stream announces that it has come that far, stops at a word in pinned memory, and the poller does the work and raises
// the word. (Measured on a GPU: driver callbacks mixed with copies block the caller once some 60 are queued behind a
// stopped stream, and the driver's own copies from and to pageable memory wait for the stream. Neither may happen here.)
#pragma once
#include <tilewise/cuda/driver.h>

#include <array>
#include <atomic>
#include <deque>
#include <mutex>

namespace tilewise::cuda {

class CudaStream final : public device::Stream {
 public:
  // `on_record` is called after every record(), by the same thread; it wakes the poller.
  static Result<std::unique_ptr<CudaStream>> make(const Context& context, std::function<void()> on_record);
  ~CudaStream() override;  // the stream must be idle or its context broken

  device::Kind kind() const override { return device::Kind::kCuda; }
  void* native() const override { return stream_; }
  Status enqueue(HostWork work) override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  // A host stream as `other` must live until the step is complete there. kInvalidArgument for a step of a CUDA stream
  // that is not recorded yet: a driver event has no meaning before.
  Status wait(Stream& other, std::uint64_t sequence) override;
  std::uint64_t record() override;
  std::uint64_t completed() const override { return completed_.load(std::memory_order_acquire); }
  void take_failures(std::vector<device::StepFailure>& out) override;

  // For the poller. Advances completed(); returns an error once, when the context has broken: every open step is then
  // complete and failed, so that nobody waits for it.
  Status poll();
  bool idle() const {
    return completed() == recorded_.load(std::memory_order_acquire) && host_tasks_open_.load(std::memory_order_acquire) == 0;
  }
  // Rises whenever a look has furthered a host task: the next one should come at once. For the poller.
  std::uint64_t host_progress() const { return host_progress_.load(std::memory_order_relaxed); }
  // Blocks until all work is done, recorded or not.
  Status synchronize();

 private:
  // Deeper than the driver's own queue (about 1000 launches), so that record() practically never blocks.
  static constexpr std::uint64_t kRing = 4096;
  struct Slot {
    CUevent event = nullptr;
    bool failed = false;  // the event could not be recorded: completes at once, failed
  };

  struct HostTask {
    Stream* other = nullptr;     // wait for `sequence` there; or null:
    std::uint64_t sequence = 0;  // the stream's own arrival with this number starts a copy
    std::uint64_t step = 0;      // that a failure belongs to
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0, done = 0;
  };
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // copied in one look of the poller
  // In pinned memory; written by the GPU and by the poller.
  struct Words {
    alignas(64) std::atomic<std::uint64_t> arrived;   // copies that the stream has come to
    alignas(64) std::atomic<std::uint64_t> released;  // host tasks that are done
  };

  CudaStream(const Context& context, CUstream stream, CUstream helper, Words* words, std::function<void()> on_record);
  Status poll_locked();
  bool is_pageable(const void* data) const;
  Status add_host_task(const HostTask& task);
  void run_host_tasks();
  Status copy_piece(HostTask& task);

  const Context& context_;
  const Driver& driver_;
  CUstream stream_, helper_;  // helper_: the poller's, for copies of pageable memory
  Words* words_;
  std::function<void()> on_record_;
  std::unique_ptr<std::array<Slot, kRing>> ring_;
  std::atomic<std::uint64_t> recorded_{0}, completed_{0};
  std::mutex mutex_;
  std::vector<device::StepFailure> failures_;
  Error record_error_;  // of the last slot marked failed
  std::deque<HostTask> host_tasks_;
  std::uint64_t host_tasks_made_ = 0, arrivals_made_ = 0;
  std::atomic<std::uint64_t> host_progress_{0};
  std::atomic<std::size_t> host_tasks_open_{0};
};

}  // namespace tilewise::cuda
