// A CUDA stream with numbered steps.
//
// record() puts an event behind the step and returns; events live in a ring, so that nothing is allocated per step.
// completed() is one atomic load: the device's poller thread asks the driver, in order, which events have passed.
// Invariants: 0 <= completed <= found <= passed <= recorded <= completed + kRing; slot s % kRing holds the event of step s
// while s is not completed; all but `recorded` move only under `mutex_`, so whoever holds it may use the event of such a step.
//
// A step may read what one of another stream makes. Whoever sees it completed must be able to take the failure of the other
// (Stream::take_failures), so nothing is published before *all* streams have been asked once more: poll() of several streams.
//
// Waits for host streams and copies of pageable memory are host tasks: see host_tasks.h.
#pragma once
#include <tilewise/cuda/data_fault.h>
#include <tilewise/cuda/driver.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "host_tasks.h"

namespace tilewise::cuda {

class CudaStream final : public device::Stream {
 public:
  // Called by the driving thread: after every record(), for the poller, and after every new host task; by any, maybe more
  // than once, when the context is found broken.
  struct Wakes {
    std::function<void()> poller, host_thread;
    std::function<void(const Status&)> broken;
  };
  static Result<std::unique_ptr<CudaStream>> make(const Context& context, Wakes wakes);
  ~CudaStream() override;  // the stream must be idle or its context broken

  device::Kind kind() const override { return device::Kind::kCuda; }
  void* native() const override { return stream_; }
  Status enqueue(HostWork work) override;
  bool run_now(const HostWork&) override { return false; }
  Status call(std::function<void()> fn) override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  // A host stream as `other` must live until the step is complete there. kInvalidArgument for a step of a CUDA stream
  // that is not recorded yet: a driver event has no meaning before.
  Status wait(Stream& other, std::uint64_t sequence) override;
  std::uint64_t record() override;
  std::uint64_t completed() const override { return completed_.load(std::memory_order_acquire); }
  void take_failures(std::vector<device::StepFailure>& out) override;

  // Advances completed() of all streams of a device, by one thread at a time. A step whose end is published was over before
  // the second look at the streams began, and so was all that it waited for: their failures can be taken. True if it found any
  // step over. Where the context has broken every open step is complete and failed, so that nobody waits for it.
  static bool poll(std::span<const std::unique_ptr<CudaStream>> streams);
  bool idle() const { return completed() == recorded_.load(std::memory_order_acquire); }
  HostTasks& host_tasks() { return host_tasks_; }  // for the host thread
  DataFault* fault_of_next_step() {
    return &(*faults_)[(recorded_.load(std::memory_order_relaxed) + 1) % faults_->size()];
  }
  // Blocks until all work is done, recorded or not.
  Status synchronize();
  // Whether an error that a call has returned was of that call alone (ok) or of the context: a broken one answers every
  // call with its error, so it is asked once more. The code does not tell: drivers add new ones.
  Status ask() const;

 private:
  // Deeper than the driver's own queue (about 1000 launches), so that record() practically never blocks.
  static constexpr std::uint64_t kRing = 4096;
  struct Slot {
    CUevent event = nullptr;
    bool failed = false;  // the event could not be recorded: the step fails, when its work is over
    bool late = false;    // of such a step: it was recorded behind later work, for a stream that waits
  };

  // In pinned memory, for the GPU writes there. Twice the ring: the next step's is never one that is still open.
  using Faults = std::array<DataFault, 2 * kRing>;
  CudaStream(const Context& context, CUstream stream, HostTaskWords* words, Faults* faults, Wakes wakes);
  static Result<void*> pinned(const Driver& driver, std::size_t bytes);
  bool look(bool first);
  void publish();
  void advance();
  Status broken(CUresult code) const;
  CUresult query_past(std::uint64_t sequence, std::uint64_t recorded) const;
  Status record_anew(Slot& slot);
  bool is_pageable(const void* data) const;
  Status copy_now(void* to, const void* from, std::size_t bytes);
  Status copy_pageable(std::byte* to, const std::byte* from, std::size_t bytes);
  Status stop_for(HostTasks::Ticket ticket);

  const Context& context_;
  const Driver& driver_;
  CUstream stream_;
  HostTaskWords* words_;
  Faults* faults_;
  HostTasks host_tasks_;
  Wakes wakes_;
  std::unique_ptr<std::array<Slot, kRing>> ring_;
  std::atomic<std::uint64_t> recorded_{0}, completed_{0};
  std::uint64_t passed_ = 0;  // steps that are over, their failures collected
  std::uint64_t found_ = 0;   // of these, what publish() will tell of
  std::mutex mutex_;
  std::vector<device::StepFailure> failures_;
  Error record_error_;  // of the last slot marked failed
};

}  // namespace tilewise::cuda
