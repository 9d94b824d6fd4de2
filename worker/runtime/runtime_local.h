// Private: a device of a runtime, and what runs on it.
#pragma once
#include <tilewise/worker/runtime.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "host_fallback.h"
#include "observed_steps.h"

namespace tilewise::worker {

struct Runtime::Local {
  // Of host kernels, by family; added on the runtime's thread only. Outlive the threads that write to them.
  std::deque<Meter> meters;
  std::array<std::atomic<std::int64_t>, kMaxStreams> busy_ns{};  // of host steps, per compute stream
  std::array<std::int64_t, kMaxStreams> charged_ns{};            // of that, what the core knows of
  std::vector<std::int64_t> told;                                // steps of each that the scheduler knows of
  std::unique_ptr<device::Device> device;
  std::unique_ptr<kernels::KernelSet> kernels;
  std::unique_ptr<HostFallback> fallback;  // of CUDA devices
  DeviceId id;
  std::vector<device::Slab> slabs;
  std::vector<std::uint64_t> seen;      // completed() last told to the core, per compute stream
  std::vector<std::uint64_t> enqueued;  // the last step that went to the executor, likewise
  // Launches that could not even be enqueued, until the core has been told.
  std::vector<StepFailed> refused;
  std::vector<ObservedSteps> observed;  // per compute stream: steps of GPUs, which nobody times
  std::vector<device::Slab> scratch;    // per compute stream: its steps run one after another and share it

  Meter& meter(const OpEntry& op) {
    while (meters.size() <= op.family) meters.emplace_back();
    return meters[op.family];
  }
};

}  // namespace tilewise::worker
