#include "host_fallback.h"

#include <algorithm>
#include <future>
#include <new>
#include <utility>

namespace tilewise::worker {

HostFallback::HostFallback(device::Device& device, std::unique_ptr<kernels::KernelSet> kernels)
    : device_(device),
      kernels_(std::move(kernels)),
      host_(device::make_host_device(
          {.ordinal = 900 + device.info().ordinal, .memory_bytes = 1, .spin_ns = 0})) {}

// The stream calls when the inputs have come, rather than the host waiting for one of its steps: only the driver could tell
// of those, and the driver may be waiting for this very stream (host_tasks.h).
Status HostFallback::launch(const Launch& launch, const ResolvedStep& step, const StepSink& sink) {
  device::Stream& stream = device_.compute_stream(launch.stream);
  device::Stream& host = host_->compute_stream(0);
  const OpEntry& entry = *step.op;
  // Held from the first copy on, also if a later one is refused.
  Held& held = held_.emplace_back(Held{launch.stream, launch.sequence, 0, {}});
  const auto size_of = [](const ir::Grid& grid, std::int64_t block, ir::DType dtype) {
    return grid.box(ir::unravel(block, grid.counts())).volume() *
           static_cast<std::int64_t>(ir::size_of(dtype));
  };
  const auto buffer = [&](std::int64_t bytes) -> Result<std::byte*> {
    held.buffers.emplace_back(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
    if (held.buffers.back() == nullptr) {
      return error(Errc::kOutOfMemory, std::to_string(bytes) + " bytes of host memory for a " +
                                           std::string(ir::name_of(entry.op.kind)) + " that " +
                                           device_.info().name + " has no kernel for");
    }
    return held.buffers.back().get();
  };

  ResolvedStep here = step;
  entry.geometry->reads(entry.geometry->point(step.point), step.step, reads_);
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const ir::SourceArray& source = entry.sources[reads_[i].operand];
    const std::int64_t bytes = size_of(source.grid, reads_[i].block, source.dtype);
    TW_ASSIGN(here.inputs[i], buffer(bytes));
    TW_TRY(stream.copy(here.inputs[i], step.inputs[i], static_cast<std::size_t>(bytes)));
  }
  std::vector<std::int64_t> output_bytes;
  for (std::size_t o = 0; o < step.outputs.size(); ++o) {
    const ir::OutputSpec& output = entry.op.outputs[o];
    output_bytes.push_back(size_of(output.grid, step.point, output.dtype));
    TW_ASSIGN(here.outputs[o], buffer(output_bytes[o]));
    if (step.step > 0)  // it goes on with what earlier steps left
      TW_TRY(stream.copy(here.outputs[o], step.outputs[o], static_cast<std::size_t>(output_bytes[o])));
  }
  const auto came = std::make_shared<std::promise<void>>();
  std::shared_future<void> inputs = came->get_future().share();
  TW_TRY(stream.call([came] { came->set_value(); }));

  TW_TRY(host.enqueue([here, inputs, kernels = kernels_.get(), sink]() -> Status {
    try {
      inputs.get();
    } catch (const std::future_error&) {  // the stream broke, and the call was destroyed
      return error(Errc::kDeviceError, "the GPU failed before this step's inputs came");
    }
    std::vector<ir::Read> reads;
    kernels::KernelCall call;
    return run_patiently(here, [&] {
      build_call(here, reads, call);
      return run_on_host(*kernels, call, here, sink);
    });
  }));
  held.host_sequence = host.record();

  TW_TRY(stream.wait(host, held.host_sequence));
  for (std::size_t o = 0; o < step.outputs.size(); ++o) {
    TW_TRY(stream.copy(step.outputs[o], here.outputs[o], static_cast<std::size_t>(output_bytes[o])));
  }
  return {};
}

void HostFallback::settle(std::uint8_t stream, std::uint64_t completed,
                          std::vector<device::StepFailure>& failures) {
  if (held_.empty()) return;
  // A broken GPU completes everything at once: what the host does for it must come to rest first.
  device::Stream& host = host_->compute_stream(0);
  for (const Held& held : held_) {
    if (held.stream == stream && held.sequence <= completed && host.completed() < held.host_sequence) {
      host_->synchronize();
      break;
    }
  }
  std::vector<device::StepFailure> failed;  // of any GPU stream: kept with their step until its turn
  host.take_failures(failed);
  for (device::StepFailure& f : failed) {
    for (Held& held : held_) {
      if (held.host_sequence == f.sequence) held.failed = std::move(f.error);
    }
  }
  std::erase_if(held_, [&](Held& held) {
    if (held.stream != stream) return false;
    if (held.failed) failures.push_back({held.sequence, *std::exchange(held.failed, std::nullopt)});
    return held.sequence <= completed;
  });
}

}  // namespace tilewise::worker
