// kReduceBlocks and kCombine. The split of a reduction into lanes and chunks is a function of the block's shape alone.
#include <tilewise/ir/verify.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "launch.h"

namespace tilewise::cuda {
namespace {

using ir::ReduceKind;
using ir::TapeOp;

constexpr std::size_t kMaxReducePlaces = 1 + limits::kMaxTapeLoads + limits::kMaxRank + 1;
constexpr std::int64_t kTargetBlocks = 2048;  // thread blocks that a large reduction is cut into
constexpr std::int64_t kPerLane = 16;         // elements a lane takes at least where chunks are cut
constexpr std::int64_t kMaxPartials = 32 * kTargetBlocks;
// Of a chunk's partial: five doubles of moments; else at most a value and its position.
constexpr std::int64_t partial_bytes(ReduceKind kind) { return kind == ReduceKind::kMoments ? 40 : 16; }

// As device/reduce.cuh; the two arrays of places follow each other, `n` each.
struct ReduceParams {
  Walk kept, reduced;
  std::int64_t out = 0, out_position = 0, out_shift = 0, out_squares = 0, scratch = 0, chunk = 0;
  std::int32_t chunks = 1, lanes = 1, columns = 0, unused = 0;
  Constants constants;
  Place place[2 * kMaxReducePlaces];
};

// Of each array that a kind has: where it is, then where its partials are.
template <std::size_t kParts> struct CombineParams {
  Walk walk;
  Place place[2 * kParts];
  std::int32_t initialise = 0, unused = 0;
};

// How `outputs` results of `count` elements each are shared out.
void split(ReduceParams& p, std::int64_t outputs, std::int64_t count, bool innermost_kept) {
  const auto wanted = std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, count / 4)));
  p.columns = innermost_kept && outputs > 1;
  // Columns: at least 32 neighbouring outputs per block, so that a warp reads whole lines.
  p.lanes = static_cast<std::int32_t>(std::min<std::uint64_t>(wanted, p.columns ? kThreads / 32 : kThreads));
  const std::int64_t width = kThreads / p.lanes;
  const std::int64_t blocks = (outputs + width - 1) / width;
  const std::int64_t least = p.lanes * kPerLane;
  const std::int64_t chunks =
      std::clamp<std::int64_t>((count + least - 1) / least, 1,
                               std::max<std::int64_t>(1, kTargetBlocks / std::max<std::int64_t>(1, blocks)));
  const std::int64_t step = 4 * p.lanes;
  p.chunk = std::max<std::int64_t>(1, ((count + chunks - 1) / chunks + step - 1) / step * step);
  p.chunks = static_cast<std::int32_t>(std::max<std::int64_t>(1, (count + p.chunk - 1) / p.chunk));
}

// Splits a place of the whole box into its part along kept and along reduced dimensions.
struct Halves {
  ir::Shape kept, reduced;
  boost::container::static_vector<Strided, kMaxReducePlaces> kept_places, reduced_places;
};
Halves halves_of(const ir::Shape& shape, std::uint32_t axes, std::span<const Strided> places) {
  Halves halves;
  for (std::size_t d = 0; d < shape.size(); ++d)
    (axes >> d & 1 ? halves.reduced : halves.kept).push_back(shape[d]);
  for (const Strided& place : places) {
    Strided kept{place.base, {}}, reduced{0, {}};
    for (std::size_t d = 0; d < shape.size(); ++d)
      (axes >> d & 1 ? reduced : kept).strides.push_back(place.strides[d]);
    halves.kept_places.push_back(kept);
    halves.reduced_places.push_back(reduced);
  }
  return halves;
}

// The position that argmin and argmax report: C order among the reduced dimensions of the whole space.
Strided reported_position(const KernelCall& call, std::uint32_t axes) {
  const std::size_t rank = call.space_shape.size();
  Strided place{0, ir::Strides(rank, 0)};
  std::int64_t step = 1;
  for (std::size_t d = rank; d-- > 0;) {
    if ((axes >> d & 1) == 0) continue;
    place.strides[d] = step;
    place.base += call.box.lo[d] * step;
    step *= call.space_shape[d];
  }
  return place;
}

ir::Tape join_tape(ReduceKind kind, ir::DType dtype) {
  ir::Tape tape;
  tape.code.push_back({.op = TapeOp::kLoad, .dtype = dtype, .imm_i = 0});
  tape.code.push_back({.op = TapeOp::kLoad, .dtype = dtype, .imm_i = 1});
  const TapeOp op = kind == ReduceKind::kSum    ? TapeOp::kAdd
                    : kind == ReduceKind::kProd ? TapeOp::kMul
                    : kind == ReduceKind::kMin  ? TapeOp::kMinimum
                    : kind == ReduceKind::kMax  ? TapeOp::kMaximum
                    : kind == ReduceKind::kAny  ? TapeOp::kOr
                                                : TapeOp::kAnd;
  tape.code.push_back({.op = op, .dtype = dtype, .a = 0, .b = 1});
  return tape;
}

// What a reduction of nothing is.
ir::Tape nothing_tape(ReduceKind kind, ir::DType dtype) {
  ir::TapeInstr in{.op = TapeOp::kConst, .dtype = dtype};
  const bool wide = dtype == ir::DType::kInt64, natural = dtype == ir::DType::kUInt64;
  const std::int64_t highest = natural ? -1
                               : wide  ? std::numeric_limits<std::int64_t>::max()
                                       : std::numeric_limits<std::int32_t>::max();
  switch (kind) {
    case ReduceKind::kProd:
    case ReduceKind::kAll:
      in.imm_f = 1;
      in.imm_i = ir::is_complex(dtype) ? 0 : 1;
      break;
    case ReduceKind::kMin:
      in.imm_f = std::numeric_limits<double>::infinity();
      in.imm_i = highest;
      break;
    case ReduceKind::kMax:
      in.imm_f = -std::numeric_limits<double>::infinity();
      in.imm_i = -highest - 1;
      break;
    default: break;
  }
  return {{in}};
}

// Which array has the dtype of what is reduced.
std::size_t value_part(ReduceKind kind) { return kind == ReduceKind::kMoments ? ir::kMomentSum : 0; }

template <std::size_t kParts>
Status combine_parts(const Environment& env, const KernelCall& call, CUstream stream) {
  const ReduceKind kind = call.op->get<ir::CombineAttrs>().kind;
  const TensorView& out = call.outputs[value_part(kind)];
  Strided places[2 * kParts];
  for (std::size_t i = 0; i < kParts; ++i) {
    TW_TRY(null_operand(call, i));
    places[i] = contiguous(call.outputs[i].data, out.shape);
    places[kParts + i] = strided(call.inputs[i], out.shape);
  }
  CombineParams<kParts> params;
  params.walk = merge(out.shape, places, params.place);
  params.initialise = call.step == 0;
  if (params.walk.count == 0) return {};
  TW_ASSIGN(const Program program, env.programs.reduce(copy_tape(out.dtype), kind));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[2], blocks_for(params.walk.count), 1, &params, stream);
}

}  // namespace

std::int64_t reduce_scratch_bytes(const ir::Op& op) {
  const auto& attrs = op.get<ir::ReduceAttrs>();
  const ir::Shape largest = op.space.max_block_shape();
  std::int64_t kept = 1, reduced = 1;
  for (std::size_t d = 0; d < largest.size(); ++d) (attrs.axes >> d & 1 ? reduced : kept) *= largest[d];
  // Chunks are cut where a lane of eight or more has kPerLane elements and fewer than kTargetBlocks blocks are busy.
  const std::int64_t chunks = std::min(kTargetBlocks, reduced / (8 * kPerLane) + 1);
  if (chunks == 1) return 0;
  return std::min(kMaxPartials, std::min(kept, kMaxPartials) * chunks) * partial_bytes(attrs.kind);
}

Status launch_reduce(const Environment& env, const KernelCall& call, CUstream stream) {
  const auto& attrs = call.op->get<ir::ReduceAttrs>();
  const ir::Shape shape = call.box.shape();
  const TapeSources sources = sources_of(attrs.tape);
  boost::container::static_vector<Strided, kMaxReducePlaces> places;
  places.push_back(reported_position(call, attrs.axes));
  for (const auto& load : sources.loads) {
    TW_TRY(null_operand(call, load.operand));
    places.push_back(strided(call.inputs[load.operand], shape));
  }
  for (const auto& which : sources.positions)
    places.push_back(position_place(which, call.box, call.space_shape));
  const Halves halves = halves_of(shape, attrs.axes, places);
  ReduceParams params;
  const std::size_t n = places.size();
  params.kept = merge(halves.kept, halves.kept_places, {params.place, n});
  params.reduced = merge(halves.reduced, halves.reduced_places, {params.place + n, n});
  if (params.kept.count == 0) return {};
  std::size_t innermost = shape.size();
  while (innermost > 0 && shape[innermost - 1] == 1) --innermost;
  split(params, params.kept.count, params.reduced.count,
        innermost > 0 && (attrs.axes >> (innermost - 1) & 1) == 0);
  params.out = address(call.outputs[value_part(attrs.kind)].data);
  if (ir::is_arg(attrs.kind)) params.out_position = address(call.outputs[1].data);
  if (attrs.kind == ReduceKind::kMoments) {
    params.out_position = address(call.outputs[ir::kMomentCount].data);
    params.out_shift = address(call.outputs[ir::kMomentShift].data);
    params.out_squares = address(call.outputs[ir::kMomentSquares].data);
  }
  params.scratch = address(call.scratch);
  params.constants = constants_of(attrs.tape);
  if (params.chunks > 1 && call.scratch == nullptr)
    return error(Errc::kInternal, "a reduction without scratch memory");
  TW_ASSIGN(const Program program, env.programs.reduce(attrs.tape, attrs.kind));
  TW_TRY(env.context.make_current());
  const std::int64_t width = kThreads / params.lanes;
  TW_TRY(launch_kernel(env, program.entry[0], (params.kept.count + width - 1) / width, params.chunks, &params,
                       stream));
  if (params.chunks == 1) return {};
  return launch_kernel(env, program.entry[1], params.kept.count, 1, &params, stream);
}

Status launch_combine(const Environment& env, const KernelCall& call, CUstream stream) {
  const ReduceKind kind = call.op->get<ir::CombineAttrs>().kind;
  const TensorView& out = call.outputs[0];
  const Strided target = contiguous(out.data, out.shape);
  if (call.inputs.empty() || call.inputs[0].data == nullptr) {  // a level over no partials
    if (call.step != 0) return {};
    for (const TensorView& part : call.outputs)
      TW_TRY(elementwise(
          env, {nothing_tape(kind, part.dtype), part.shape, contiguous(part.data, part.shape), {}}, stream));
    return {};
  }
  if (ir::volume(call.inputs[0].shape) != ir::volume(out.shape))
    return error(Errc::kInternal, "combine: partials of shape " + ir::to_string(call.inputs[0].shape) +
                                      " into " + ir::to_string(out.shape));
  if (ir::is_arg(kind)) return combine_parts<2>(env, call, stream);
  if (kind == ReduceKind::kMoments) return combine_parts<ir::kMomentParts>(env, call, stream);
  if (call.step == 0) return copy_region(env, call.inputs[0], target, stream);
  TensorView sofar = out;
  sofar.strides = target.strides;
  const TensorView operands[2] = {sofar, call.inputs[0]};
  return elementwise(env, {join_tape(kind, out.dtype), out.shape, target, operands}, stream);
}

Status prepare_combine(const Environment& env, const ir::Op& op) {
  const ReduceKind kind = op.get<ir::CombineAttrs>().kind;
  const ir::DType dtype = op.outputs[value_part(kind)].dtype;
  if (ir::parts_of(kind) > 1) {
    TW_TRY(env.programs.reduce(copy_tape(dtype), kind));
    return {};
  }
  TW_TRY(env.programs.map(copy_tape(dtype)));
  TW_TRY(env.programs.map(join_tape(kind, dtype)));
  return {};
}

}  // namespace tilewise::cuda
