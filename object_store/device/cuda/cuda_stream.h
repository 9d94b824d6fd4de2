// A CUDA stream with numbered steps.
//
// record() puts an event behind the step and returns; events live in a ring, so that nothing is allocated per step.
// completed() is one atomic load: the device's poller thread asks the driver, in order, which events have passed.
// Invariants: 0 <= completed <= recorded <= completed + kRing; slot s % kRing holds the event of step s while s is
// open; `completed` moves only under `mutex_`, so whoever holds it may use the event of an open step.
//
// A wait for a host stream is a number in pinned memory that the GPU waits for and the poller raises: a driver callback
// that blocks would hold up the callbacks of all streams. Pageable host memory goes through a small pinned buffer of the
// stream, in stream order: the driver's own way of copying it blocks the caller until earlier work is done.
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
    return completed() == recorded_.load(std::memory_order_acquire) && host_waits_open_.load(std::memory_order_acquire) == 0;
  }
  // Blocks until all work is done, recorded or not.
  Status synchronize();

 private:
  // Deeper than the driver's own queue (about 1000 launches), so that record() practically never blocks.
  static constexpr std::uint64_t kRing = 4096;
  struct Slot {
    CUevent event = nullptr;
    bool failed = false;  // the event could not be recorded: completes at once, failed
  };

  struct HostWait {
    Stream* other;
    std::uint64_t sequence;
  };
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 20;
  // Pinned, one per stream.
  struct Shared {
    alignas(64) std::atomic<std::uint64_t> gate;  // host waits released so far
    alignas(4096) std::byte staging[kStagingBytes];
  };

  CudaStream(const Context& context, CUstream stream, Shared* shared, std::function<void()> on_record);
  Status poll_locked();
  Status wait_for_host(Stream& other, std::uint64_t sequence);
  void release_host_waits();
  bool is_pageable(const void* data, bool& on_device) const;
  Status copy_pinned(void* to, const void* from, std::size_t bytes);
  Status copy_by_host(void* to, const void* from, std::size_t bytes);

  const Context& context_;
  const Driver& driver_;
  CUstream stream_;
  Shared* shared_;
  std::function<void()> on_record_;
  std::unique_ptr<std::array<Slot, kRing>> ring_;
  std::atomic<std::uint64_t> recorded_{0}, completed_{0};
  std::mutex mutex_;
  std::vector<device::StepFailure> failures_;
  Error record_error_;  // of the last slot marked failed
  std::deque<HostWait> host_waits_;
  std::uint64_t host_waits_made_ = 0;
  std::atomic<std::size_t> host_waits_open_{0};
};

}  // namespace tilewise::cuda
