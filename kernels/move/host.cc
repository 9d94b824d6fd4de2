// kCopy and kReshape on the host: each step copies its part to its place.
#include <algorithm>
#include <cstring>

#include "common/strided.h"
#include "map/evaluator_memory.h"
#include "move/move.h"
#include "move/placing.h"
#include "move/strided_copy.h"

namespace tilewise::kernels::move {
namespace {

bool reads_nothing(const KernelCall& call) {
  return std::all_of(call.inputs.begin(), call.inputs.end(),
                     [](const TensorView& v) { return v.data == nullptr; });
}

Status same_dtype(const TensorView& in, const TensorView& out) {
  if (in.dtype == out.dtype) return {};
  return error(Errc::kShapeMismatch, "a copy from " + std::string(ir::name_of(in.dtype)) + " to " +
                                         std::string(ir::name_of(out.dtype)));
}

Status copy(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const auto size = static_cast<std::int64_t>(ir::size_of(out.dtype));
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorView& in = call.inputs[i];
    if (in.data == nullptr) continue;
    TW_TRY(same_dtype(in, out));
    TW_ASSIGN(const ir::Index position, copy_position(call, i));
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < position.size(); ++d) offset += position[d] * out.strides[d];
    strided_copy(static_cast<std::byte*>(out.data) + offset * size, out.strides,
                 static_cast<const std::byte*>(in.data), in.strides, in.shape,
                 static_cast<std::size_t>(size));
  }
  return {};
}

// Positions of a run in C order of the whole array.
struct Range {
  std::int64_t begin, end;
};
Range positions(const ir::Box& run, const ir::Shape& whole) {
  const std::int64_t begin = ir::ravel(run.lo, whole);
  return {begin, begin + run.volume()};
}

Status reshape(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const TensorView& in = call.inputs[0];
  TW_TRY(same_dtype(in, out));
  const Range from = positions(call.input_boxes[0], call.op->operands[0].view.shape);
  const Range to = positions(call.output_boxes[0], call.space_shape);
  const std::int64_t begin = std::max(from.begin, to.begin), end = std::min(from.end, to.end);
  const auto size = static_cast<std::int64_t>(ir::size_of(out.dtype));
  auto* target = static_cast<std::byte*>(out.data) + (begin - to.begin) * size;
  const Collapsed where = collapse(in.shape, in.strides);
  const auto* const data = static_cast<const std::byte*>(in.data);
  const auto by_runs = [&](std::int64_t at, std::int64_t n) {
    for_runs(where, at, n, [&](std::int64_t offset, std::int64_t count) {
      map::gather(target, data + offset * size, size, where.stride(), count);
      target += count * size;
    });
  };
  // What is whole along the first dimension is an array of its own, whatever the length of its runs.
  const std::int64_t first = begin - from.begin, last = end - from.begin;
  const std::int64_t slice =
      std::max<std::int64_t>(1, ir::volume(where.shape) / std::max<std::int64_t>(1, where.shape[0]));
  const std::int64_t low = (first + slice - 1) / slice, high = last / slice;
  if (where.shape.size() == 1 || low >= high) {
    by_runs(first, last - first);
    return {};
  }
  by_runs(first, low * slice - first);
  ir::Shape whole = where.shape;
  whole[0] = high - low;
  strided_copy(target, ir::c_order_strides(whole), data + low * where.strides[0] * size, where.strides, whole,
               static_cast<std::size_t>(size));
  target += (high - low) * slice * size;
  by_runs(high * slice, last - high * slice);
  return {};
}

}  // namespace

Status supports(const ir::Op&, const PluginTable*) { return {}; }

Status host(const KernelCall& call, const PluginTable*) {
  const TensorView& out = call.outputs[0];
  if (reads_nothing(call)) {
    if (call.step == 0)
      std::memset(out.data, 0, static_cast<std::size_t>(ir::volume(out.shape)) * ir::size_of(out.dtype));
    return {};
  }
  return call.op->kind == ir::OpKind::kReshape ? reshape(call) : copy(call);
}

}  // namespace tilewise::kernels::move
