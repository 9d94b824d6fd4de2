#include <algorithm>

#include "launch.h"

namespace tilewise::cuda {
namespace {

constexpr std::size_t kMaxPlaces = 1 + limits::kMaxTapeLoads + limits::kMaxRank + 1;

struct MapParams {
  Walk walk;
  Place place[kMaxPlaces];  // as many as the program has are passed on
};

// The flat kernel: one dimension, output contiguous, operands contiguous or constant, all aligned to a group.
bool is_flat(const MapParams& params, const ir::Tape& tape, const TapeSources& sources) {
  if (params.walk.rank != 1 || (params.place[0].stride[0] != 1 && params.walk.count != 1)) return false;
  const int width = group_width(tape);
  const auto aligned = [&](const Place& place, ir::DType dtype) {
    return place.base % (width * static_cast<std::int64_t>(ir::size_of(dtype))) == 0;
  };
  if (!aligned(params.place[0], tape.result())) return false;
  for (std::size_t i = 0; i < sources.loads.size(); ++i) {
    const Place& place = params.place[1 + i];
    if (place.stride[0] == 0) continue;
    if (place.stride[0] != 1 || !aligned(place, sources.loads[i].dtype)) return false;
  }
  return true;
}

// Leaves positions [first, first + count). In one dimension by moving the places, which keeps the flat kernel possible.
void narrow(MapParams& params, const Elementwise& work, const TapeSources& sources) {
  if (work.count < 0) return;
  params.walk.count = work.count;
  if (params.walk.rank > 1) {
    params.walk.first = work.first;
    return;
  }
  for (std::size_t s = 0; s <= sources.count(); ++s) {
    const bool load = s >= 1 && s <= sources.loads.size();
    const ir::DType dtype = load ? sources.loads[s - 1].dtype : work.tape.result();
    const std::size_t size = load || s == 0 ? ir::size_of(dtype) : 1;
    params.place[s].base += work.first * params.place[s].stride[0] * static_cast<std::int64_t>(size);
  }
}

}  // namespace

Strided position_place(const TapeSources::Position& which, const ir::Box& box, const ir::Shape& space_shape) {
  const std::size_t rank = box.lo.size();
  Strided place{0, ir::Strides(rank, 0)};
  if (!which.whole) {
    place.base = box.lo[which.dim];
    place.strides[which.dim] = 1;
    return place;
  }
  std::int64_t step = 1;
  for (std::size_t d = rank; d-- > 0;) {
    place.strides[d] = step;
    place.base += box.lo[d] * step;
    step *= space_shape[d];
  }
  return place;
}

Status elementwise(const Environment& env, const Elementwise& work, CUstream stream) {
  const TapeSources sources = sources_of(work.tape);
  boost::container::static_vector<Strided, kMaxPlaces> places;
  places.push_back(work.out);
  for (const auto& load : sources.loads) {
    if (load.operand >= work.inputs.size() || work.inputs[load.operand].data == nullptr)
      return error(Errc::kInternal, "operand " + std::to_string(load.operand) + " of a step has no memory");
    places.push_back(strided(work.inputs[load.operand], work.shape));
  }
  for (const auto& which : sources.positions) places.push_back(position_place(which, *work.box, *work.space_shape));
  MapParams params;
  params.walk = merge(work.shape, places, params.place);
  narrow(params, work, sources);
  if (params.walk.count == 0) return {};
  TW_ASSIGN(const Program program, env.programs.map(work.tape));
  TW_TRY(env.context.make_current());
  if (is_flat(params, work.tape, sources)) {
    const std::int64_t groups = (params.walk.count + group_width(work.tape) - 1) / group_width(work.tape);
    return launch_kernel(env, program.entry[0], (groups + kThreads - 1) / kThreads, 1, &params, stream);
  }
  return launch_kernel(env, program.entry[1], blocks_for(params.walk.count), 1, &params, stream);
}

ir::Tape copy_tape(ir::DType dtype) { return {{ir::TapeInstr{.op = ir::TapeOp::kLoad, .dtype = dtype}}}; }

Status copy_region(const Environment& env, const TensorView& from, const Strided& to, CUstream stream) {
  return elementwise(env, {copy_tape(from.dtype), from.shape, to, {&from, 1}}, stream);
}

Status launch_map(const Environment& env, const KernelCall& call, CUstream stream) {
  const ir::Shape shape = call.box.shape();
  return elementwise(env, {call.op->get<ir::MapAttrs>().tape, shape, contiguous(call.outputs[0].data, shape),
                           {call.inputs.data(), call.inputs.size()}, &call.box, &call.space_shape}, stream);
}

// Element x of an operand is element x + before of the space (verify.cc). Where one operand is read through a window,
// the output block is what is left of the window when it is clipped to the operand.
Status launch_copy(const Environment& env, const KernelCall& call, CUstream stream) {
  const auto& maps = call.op->get<ir::CopyAttrs>().maps;
  const TensorView& out = call.outputs[0];
  const Strided block = contiguous(out.data, out.shape);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorView& in = call.inputs[i];
    if (in.data == nullptr || ir::volume(in.shape) == 0) continue;
    Strided part = block;
    for (std::size_t d = 0; d < in.shape.size(); ++d) {
      std::int64_t begin = call.box.lo[d] - maps[i][d].before;
      if (call.inputs.size() == 1) begin = std::max<std::int64_t>(begin, 0);
      part.base += (call.input_boxes[i].lo[d] - begin) * block.strides[d] * static_cast<std::int64_t>(ir::size_of(out.dtype));
    }
    TW_TRY(copy_region(env, in, part, stream));
  }
  return {};
}

// C order is kept: the region is a run of elements of the operand, the block one of the output. Rows that lie in two
// output blocks are read by both, so the runs may only overlap.
Status launch_reshape(const Environment& env, const KernelCall& call, CUstream stream) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  const std::int64_t in_count = ir::volume(in.shape), out_count = ir::volume(out.shape);
  if (in.data == nullptr || in_count == 0 || out_count == 0) return {};
  const auto start = [](const ir::Box& box, const ir::Shape& shape, std::int64_t count) {
    return shape.empty() ? 0 : box.lo[0] * (count / shape[0]);
  };
  const std::int64_t from = start(call.input_boxes[0], in.shape, in_count);
  const std::int64_t to = start(call.output_boxes[0], out.shape, out_count);
  const std::int64_t begin = std::max(from, to), end = std::min(from + in_count, to + out_count);
  if (begin >= end) return {};
  const auto size = static_cast<std::int64_t>(ir::size_of(out.dtype));
  Strided target = contiguous(out.data, in.shape);
  target.base += (from - to) * size;  // may lie before the block; only [begin, end) is written
  Elementwise work{copy_tape(in.dtype), in.shape, target, {&in, 1}};
  work.first = begin - from;
  work.count = end - begin;
  return elementwise(env, work, stream);
}

}  // namespace tilewise::cuda
