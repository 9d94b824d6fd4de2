// Steps of a GPU that have no kernel there: files, products of bools, plug-in kernels for the host only. Inputs come to
// host memory, the host's kernel runs, outputs go back, all in the order of the GPU's stream. As slow as the ways there
// and back.
#pragma once
#include <tilewise/device/device.h>
#include <tilewise/kernels/kernels.h>
#include <tilewise/worker/step.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace tilewise::worker {

// The runtime's thread. Destroyed before its device; waits for its own thread.
class HostFallback {
 public:
  HostFallback(device::Device& device, std::unique_ptr<kernels::KernelSet> kernels);

  Status supports(const ir::Op& op) const { return kernels_->supports(op); }
  // Appends the step to its stream; what the launch waits for has been appended already, and the caller records. Host
  // memory of the step's blocks is held until the step is complete.
  Status launch(const Launch& launch, const ResolvedStep& step, const StepSink& sink);
  // Failures of steps of `stream`, appended, as soon as the host has told of them; frees what steps up to `completed` held. To be
  // called for all streams when completed() of one has moved.
  void settle(std::uint8_t stream, std::uint64_t completed, std::vector<device::StepFailure>& failures);

 private:
  struct Held {
    std::uint8_t stream = 0;
    std::uint64_t sequence = 0, host_sequence = 0;
    std::vector<std::unique_ptr<std::byte[]>> buffers;
    std::optional<Error> failed = {};  // until it is told
  };

  device::Device& device_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::vector<ir::Read> reads_;  // scratch
  std::deque<Held> held_;        // host_sequence rises
  std::unique_ptr<device::Device>
      host_;  // for its stream: it holds no blocks. Ends before what its work uses
};

}  // namespace tilewise::worker
