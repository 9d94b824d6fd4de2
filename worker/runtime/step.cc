#include <tilewise/worker/step.h>

#include <tilewise/base/time.h>
#include <tilewise/ir/checkpoint.h>
#include <tilewise/ir/file_info.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tilewise::worker {
namespace {

// Ends with the step, also where that throws.
struct Noted {
  Noted(BlackBox::Slot* slot, const ResolvedStep& step, DeviceId device) : slot(slot) {
    if (slot != nullptr) slot->begin(step.run.id, device, step.point);
  }
  ~Noted() {
    if (slot != nullptr) slot->end();
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;
  BlackBox::Slot* slot;
};

}  // namespace

bool can_repeat(const ResolvedStep& step) {
  const ir::Op& op = step.op->op;
  if (step.step != 0 || op.kind == ir::OpKind::kWriteNpy) return false;
  if (op.kind == ir::OpKind::kCall) {
    const std::string& kernel = op.get<ir::CallAttrs>().kernel;  // what others' do besides is not known
    if (!kernel.starts_with("tilewise.") ||
        (ir::checkpoint::is_kernel(kernel) && kernel != ir::checkpoint::kRestore) ||
        (ir::is_file_kernel(kernel) && kernel != "tilewise.read_stored"))
      return false;
  }
  return std::none_of(step.outputs.begin(), step.outputs.end(), [&](const std::byte* out) {
    return std::find(step.inputs.begin(), step.inputs.end(), out) != step.inputs.end();
  });
}

TimeNs patience(const ResolvedStep& step, int tries) {
  constexpr TimeNs kWaits[] = {1 * kMillisecond, 10 * kMillisecond, 100 * kMillisecond};
  constexpr int kShort = static_cast<int>(std::size(kWaits)), kLong = kShort + 10;
  if (tries >= (step.run.again ? kLong : kShort) || !can_repeat(step)) return 0;
  return tries < kShort ? kWaits[tries] : kSecond;
}

void sleep_for(TimeNs time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time)); }

void build_call(const ResolvedStep& step, std::vector<ir::Read>& reads, kernels::KernelCall& call) {
  const ir::Op& op = step.op->op;
  const ir::Geometry& geometry = *step.op->geometry;
  const ir::Index point = geometry.point(step.point);
  call.op = &op;
  call.box = op.space.box(point);
  call.space_shape = op.space.shape();
  call.step = step.step;
  call.steps = step.steps;
  call.inputs.clear();
  call.input_boxes.clear();
  call.outputs.clear();
  call.output_boxes.clear();

  geometry.reads(point, step.step, reads);
  // One input an operand, or, where blocks are listed, one a block.
  const bool listed = geometry.lists_blocks();
  const std::size_t inputs = listed ? reads.size() : op.operands.size();
  call.inputs.resize(inputs);
  call.input_boxes.resize(inputs);
  for (std::size_t i = 0; i < inputs; ++i) {
    call.inputs[i].data = nullptr;
    call.inputs[i].dtype = step.op->sources[listed ? reads[i].operand : i].dtype;
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const ir::Read& read = reads[i];
    const std::size_t at = listed ? i : read.operand;
    const ir::SourceArray& source = step.op->sources[read.operand];
    const ir::BlockWindow window =
        ir::window(op.operands[read.operand].view, source.grid, read.block, read.region);
    kernels::TensorView& view = call.inputs[at];
    view.data = step.inputs[i] + window.offset * static_cast<std::int64_t>(ir::size_of(source.dtype));
    view.shape = read.region.shape();
    view.strides = window.strides;
    call.input_boxes[at] = read.region;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const ir::OutputSpec& spec = op.outputs[i];
    kernels::TensorView& view = call.outputs.emplace_back();
    call.output_boxes.push_back(spec.grid.box(ir::unravel(step.point, spec.grid.counts())));
    view.data = step.outputs[i];
    view.dtype = spec.dtype;
    view.shape = call.output_boxes.back().shape();
    view.strides = ir::c_order_strides(view.shape);
  }
}

Status run_on_host(const kernels::KernelSet& kernels, kernels::KernelCall& call, const ResolvedStep& step,
                   const StepSink& sink, TimeNs* ended) {
  thread_local std::vector<std::byte> scratch;
  call.scratch = nullptr;
  if (const std::int64_t bytes = kernels.scratch_bytes(*call.op); bytes > 0) {
    scratch.resize(static_cast<std::size_t>(bytes) + 256);
    void* at = scratch.data();
    std::size_t room = scratch.size();
    call.scratch = static_cast<std::byte*>(std::align(256, static_cast<std::size_t>(bytes), at, room));
  }
  const TimeNs start = monotonic_now();
  const OpEntry& op = *step.op;
  Status done = [&] {
    const Noted noted(sink.slot, step, sink.id);
    return kernels.run(call);
  }();
  const TimeNs end = monotonic_now();
  if (ended != nullptr) *ended = end;
  sink.meter->add(op.model_ns, end - start);
  sink.busy_ns->fetch_add(end - start, std::memory_order_relaxed);
  if (step.run.busy_ns != nullptr)
    std::atomic_ref(*step.run.busy_ns).fetch_add(end - start, std::memory_order_relaxed);
  if (sink.log != nullptr)
    sink.log->add({step.run.id, step.run.graph, step.point, op.family, sink.id, sink.stream, start, end});
  return done;
}

}  // namespace tilewise::worker
