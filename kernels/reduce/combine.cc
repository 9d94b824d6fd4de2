#include "reduce/combine.h"

#include <tilewise/ir/verify.h>

#include <cstring>

#include "common/strided.h"
#include "map/evaluator_memory.h"
#include "reduce/args.h"
#include "reduce/fold.h"
#include "reduce/moments_fold.h"

namespace tilewise::kernels::reduce {
namespace {

constexpr std::int64_t kTile = 2048;

// One slice of an operand along the combined axis, in C order of what remains.
struct Slice {
  Collapsed where;
  const std::byte* data = nullptr;
  std::int64_t size = 0;

  // Elements [begin, begin + n): in place if contiguous, else gathered into `buffer`.
  const std::byte* read(std::int64_t begin, std::int64_t n, std::byte* buffer) const {
    if (where.is_flat() && where.stride() == 1) return data + begin * size;
    std::int64_t done = 0;
    for_runs(where, begin, n, [&](std::int64_t offset, std::int64_t count) {
      map::gather(buffer + done * size, data + offset * size, size, where.stride(), count);
      done += count;
    });
    return buffer;
  }
};

Slice slice_of(const TensorView& view, int axis, std::int64_t at) {
  ir::Shape shape;
  ir::Strides strides;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    if (static_cast<int>(d) == axis) continue;
    shape.push_back(view.shape[d]);
    strides.push_back(view.strides[d]);
  }
  const auto size = static_cast<std::int64_t>(ir::size_of(view.dtype));
  const std::int64_t offset = at * view.strides[static_cast<std::size_t>(axis)];
  return {collapse(shape, strides), static_cast<const std::byte*>(view.data) + offset * size, size};
}

// Every part of the step's operands in order; `first` where the output holds nothing yet.
template <class Fold> void each_tile(const KernelCall& call, int axis, std::int64_t total, Fold&& fold) {
  const TensorView& in = call.inputs[0];
  const std::int64_t parts = in.shape[static_cast<std::size_t>(axis)];
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t begin = 0; begin < total; begin += kTile) {
      fold(part, begin, std::min(kTile, total - begin), call.step == 0 && part == 0);
    }
  }
}

void combine_values(const KernelCall& call, int axis, const FoldFns& folds) {
  const TensorView& out = call.outputs[0];
  const auto size = static_cast<std::int64_t>(ir::size_of(out.dtype));
  alignas(64) std::byte buffer[kTile * 16];
  each_tile(call, axis, ir::volume(out.shape),
            [&](std::int64_t part, std::int64_t begin, std::int64_t n, bool first) {
              const std::byte* x = slice_of(call.inputs[0], axis, part).read(begin, n, buffer);
              std::byte* to = static_cast<std::byte*>(out.data) + begin * size;
              if (!first)
                folds.rows(to, x, n, 1, n);
              else if (to != x)
                std::memcpy(to, x, static_cast<std::size_t>(n * size));  // equal where the input was donated
            });
}

void combine_args(const KernelCall& call, int axis, const ArgFns& args) {
  const TensorView& out = call.outputs[0];
  const auto size = static_cast<std::int64_t>(ir::size_of(out.dtype));
  alignas(64) std::byte buffer[kTile * 8], index_buffer[kTile * 8];
  each_tile(call, axis, ir::volume(out.shape),
            [&](std::int64_t part, std::int64_t begin, std::int64_t n, bool first) {
              const std::byte* x = slice_of(call.inputs[0], axis, part).read(begin, n, buffer);
              const std::byte* i = slice_of(call.inputs[1], axis, part).read(begin, n, index_buffer);
              std::byte* to = static_cast<std::byte*>(out.data) + begin * size;
              auto* to_index = static_cast<std::int64_t*>(call.outputs[1].data) + begin;
              if (first) {
                std::memmove(to, x, static_cast<std::size_t>(n * size));
                std::memmove(to_index, i, static_cast<std::size_t>(n) * 8);
              } else {
                args.merge(x, reinterpret_cast<const std::int64_t*>(i), n, to, to_index);
              }
            });
}

void combine_moments(const KernelCall& call, int axis, const MomentFns& fns) {
  constexpr std::int64_t kSum = ir::kMomentSum;
  const auto size = static_cast<std::int64_t>(ir::size_of(call.outputs[kSum].dtype));
  alignas(64) std::byte buffers[ir::kMomentParts][kTile * 8];
  const auto row = [](std::byte* const(&at)[ir::kMomentParts]) {
    return MomentRow{reinterpret_cast<double*>(at[ir::kMomentCount]), at[kSum],
                     reinterpret_cast<double*>(at[ir::kMomentShift]),
                     reinterpret_cast<double*>(at[ir::kMomentSquares])};
  };
  each_tile(call, axis, ir::volume(call.outputs[0].shape),
            [&](std::int64_t part, std::int64_t begin, std::int64_t n, bool first) {
              std::byte *to[ir::kMomentParts], *from[ir::kMomentParts];
              for (std::size_t i = 0; i < ir::kMomentParts; ++i) {
                const std::int64_t bytes = i == kSum ? size : 8;
                to[i] = static_cast<std::byte*>(call.outputs[i].data) + begin * bytes;
                from[i] =
                    const_cast<std::byte*>(slice_of(call.inputs[i], axis, part).read(begin, n, buffers[i]));
                if (first) std::memmove(to[i], from[i], static_cast<std::size_t>(n * bytes));
              }
              if (!first) fns.join(row(to), row(from), n);
            });
}

// As many arrays as the kind has, alike in shape.
Status check_parts(const KernelCall& call, ir::ReduceKind kind) {
  const std::size_t parts = ir::parts_of(kind);
  bool fits = call.inputs.size() >= parts && call.outputs.size() >= parts;
  if (fits) {
    const std::vector<ir::DType> dtypes =
        ir::part_dtypes(kind, call.outputs[kind == ir::ReduceKind::kMoments ? ir::kMomentSum : 0].dtype);
    for (std::size_t i = 0; i < parts; ++i)
      fits = fits && call.inputs[i].dtype == dtypes[i] && call.outputs[i].dtype == dtypes[i] &&
             call.inputs[i].shape == call.inputs[0].shape;
  }
  if (fits) return {};
  return error(Errc::kShapeMismatch, "combining " + std::string(ir::name_of(kind)) + " wants " +
                                         std::to_string(parts) + " arrays of one shape");
}

}  // namespace

Status clear_output(ir::ReduceKind kind, const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  if (kind == ir::ReduceKind::kMoments) {
    for (const TensorView& part : call.outputs)
      std::memset(part.data, 0, static_cast<std::size_t>(ir::volume(part.shape)) * ir::size_of(part.dtype));
    return {};
  }
  const FoldFns folds = find_folds(kind, out.dtype);
  if (!folds) return error(Errc::kInvalidArgument, std::string(ir::name_of(kind)) + " of nothing");
  const std::int64_t n = ir::volume(out.shape);
  if (kind == ir::ReduceKind::kSum)
    std::memset(out.data, 0, static_cast<std::size_t>(n) * ir::size_of(out.dtype));
  else
    folds.clear(out.data, n);
  return {};
}

Status combine(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::CombineAttrs>();
  const TensorView& out = call.outputs[0];
  const std::int64_t total = ir::volume(out.shape);
  if (total == 0) return {};
  if (call.inputs.empty() || call.inputs[0].data == nullptr) {
    return call.step == 0 ? clear_output(attrs.kind, call) : Status{};
  }
  const TensorView& in = call.inputs[0];
  const int axis = attrs.axis;
  const bool shaped = axis >= 0 && axis < static_cast<int>(in.shape.size()) && in.dtype == out.dtype &&
                      ir::volume(in.shape) == total * in.shape[static_cast<std::size_t>(axis)];
  if (!shaped) {
    return error(Errc::kShapeMismatch, "combining " + std::string(ir::name_of(in.dtype)) +
                                           ir::to_string(in.shape) + " into " +
                                           std::string(ir::name_of(out.dtype)) + ir::to_string(out.shape));
  }
  if (ir::is_arg(attrs.kind)) {
    TW_TRY(check_parts(call, attrs.kind));
    combine_args(call, axis, find_args(attrs.kind == ir::ReduceKind::kArgMin, out.dtype));
    return {};
  }
  if (attrs.kind == ir::ReduceKind::kMoments) {
    TW_TRY(check_parts(call, attrs.kind));
    combine_moments(call, axis, find_moments(call.outputs[ir::kMomentSum].dtype));
    return {};
  }
  const FoldFns folds = find_folds(attrs.kind, out.dtype);
  if (!folds)
    return error(Errc::kUnsupported,
                 std::string(ir::name_of(attrs.kind)) + " of " + std::string(ir::name_of(out.dtype)));
  combine_values(call, axis, folds);
  return {};
}

}  // namespace tilewise::kernels::reduce
