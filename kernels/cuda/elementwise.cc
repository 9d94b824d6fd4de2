#include <algorithm>
#include <cstdlib>

#include "launch.h"

namespace tilewise::cuda {
namespace {

constexpr std::size_t kMaxPlaces = limits::kMaxOutputs + limits::kMaxTapeLoads + limits::kMaxRank + 1;

struct MapParams {
  Walk walk;
  std::int64_t elements = 0;
  Constants constants;
  Place place[kMaxPlaces];  // as many as the program has are passed on
};

// Turns the walk into one over groups of neighbours, if memory allows it: outputs and operands contiguous, or constant,
// along the innermost dimension, and every group aligned.
bool form_groups(MapParams& params, const ir::Tape& tape, const TapeSources& sources) {
  const int width = group_width(tape), last = params.walk.rank - 1;
  const std::size_t outputs = tape.output_count();
  const auto grouped = [&](const Place& place, ir::DType dtype, bool may_repeat) {
    if (may_repeat && place.stride[last] == 0) return true;
    bool good =
        place.stride[last] == 1 && place.base % (width * static_cast<std::int64_t>(ir::size_of(dtype))) == 0;
    for (int d = 0; d < last; ++d) good = good && place.stride[d] % width == 0;
    return good;
  };
  if (last > 0 && (params.walk.extent[last] % width != 0 || params.walk.first != 0)) return false;
  for (std::size_t o = 0; o < outputs; ++o) {
    if (params.walk.count == 1) params.place[o].stride[last] = 1;
    if (!grouped(params.place[o], tape.result(o), false)) return false;
  }
  for (std::size_t i = 0; i < sources.loads.size(); ++i)
    if (!grouped(params.place[outputs + i], sources.loads[i].dtype, true)) return false;
  for (std::size_t s = 0; s < outputs + sources.count(); ++s) {
    params.place[s].inner = params.place[s].stride[last];
    params.place[s].stride[last] *= width;
  }
  params.elements = params.walk.count;
  params.walk.count = (params.walk.count + width - 1) / width;
  params.walk.extent[last] = (params.walk.extent[last] + width - 1) / width;
  set_divisors(params.walk);
  return true;
}

// Leaves positions [first, first + count). In one dimension by moving the places, which keeps groups possible.
void narrow(MapParams& params, const Elementwise& work, const TapeSources& sources) {
  if (work.count < 0) return;
  params.walk.count = work.count;
  if (params.walk.rank > 1) {
    params.walk.first = work.first;
    return;
  }
  const std::size_t outputs = work.tape.output_count();
  for (std::size_t s = 0; s < outputs + sources.count(); ++s) {
    const std::size_t l = s - outputs;
    const std::size_t size = s < outputs                ? ir::size_of(work.tape.result(s))
                             : l < sources.loads.size() ? ir::size_of(sources.loads[l].dtype)
                                                        : 1;
    params.place[s].base += work.first * params.place[s].stride[0] * static_cast<std::int64_t>(size);
  }
}

// Two dimensions, and an operand that is contiguous along the outer one only.
bool is_transposing(const MapParams& params, std::size_t outputs, const TapeSources& sources) {
  const Walk& walk = params.walk;
  if (walk.rank != 2 || walk.first != 0 || walk.count != walk.extent[0] * walk.extent[1]) return false;
  if (walk.extent[0] < 32 || walk.extent[1] < 32) return false;
  for (std::size_t i = 0; i < sources.loads.size(); ++i) {
    const Place& place = params.place[outputs + i];
    if (std::abs(place.stride[0]) == 1 && std::abs(place.stride[1]) > 1) return true;
  }
  return false;
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
  places.insert(places.end(), work.further.begin(), work.further.end());
  for (const auto& load : sources.loads) {
    if (load.operand >= work.inputs.size() || work.inputs[load.operand].data == nullptr)
      return error(Errc::kInternal, "operand " + std::to_string(load.operand) + " of a step has no memory");
    places.push_back(strided(work.inputs[load.operand], work.shape));
  }
  for (const auto& which : sources.positions)
    places.push_back(position_place(which, *work.box, *work.space_shape));
  MapParams params;
  params.walk = merge(work.shape, places, params.place);
  narrow(params, work, sources);
  if (params.walk.count == 0) return {};
  params.constants = constants_of(work.tape);
  TW_ASSIGN(const Program program, env.programs.map(work.tape));
  TW_TRY(env.context.make_current());
  if (form_groups(params, work.tape, sources))
    return launch_kernel(env, program.entry[0], blocks_for(params.walk.count), 1, &params, stream);
  if (is_transposing(params, work.tape.output_count(), sources)) {
    const std::int64_t squares = ((params.walk.extent[0] + 31) / 32) * ((params.walk.extent[1] + 31) / 32);
    return launch_kernel(env, program.entry[2], squares, 1, &params, stream);
  }
  return launch_kernel(env, program.entry[1], blocks_for(params.walk.count), 1, &params, stream);
}

ir::Tape copy_tape(ir::DType dtype) { return {{ir::TapeInstr{.op = ir::TapeOp::kLoad, .dtype = dtype}}}; }

Status copy_region(const Environment& env, const TensorView& from, const Strided& to, CUstream stream) {
  return elementwise(env, {copy_tape(from.dtype), from.shape, to, {&from, 1}}, stream);
}

Status launch_map(const Environment& env, const KernelCall& call, CUstream stream) {
  const ir::Shape shape = call.box.shape();
  boost::container::static_vector<Strided, limits::kMaxOutputs> outs;
  for (const TensorView& out : call.outputs) outs.push_back(contiguous(out.data, shape));
  Elementwise work{call.op->get<ir::MapAttrs>().tape,        shape,     outs[0],
                   {call.inputs.data(), call.inputs.size()}, &call.box, &call.space_shape};
  work.further = {outs.data() + 1, outs.size() - 1};
  return elementwise(env, work, stream);
}

Status clear(const Environment& env, const TensorView& out, CUstream stream) {
  const auto bytes = static_cast<std::size_t>(ir::volume(out.shape)) * ir::size_of(out.dtype);
  if (bytes == 0) return {};
  TW_TRY(env.context.make_current());
  TW_CUDA_TRY(*env.context.driver, cuMemsetD8Async, "cuMemsetD8Async",
              reinterpret_cast<CUdeviceptr>(out.data), 0, bytes, stream);
  return {};
}

// Element x of a shifted operand is element x + before of the space (verify.cc); the output of a window is what is left
// of it when it is clipped to the operand, or to the array that several operands tile.
Status launch_copy(const Environment& env, const KernelCall& call, CUstream stream) {
  const auto& maps = call.op->get<ir::CopyAttrs>().maps;
  const TensorView& out = call.outputs[0];
  const Strided block = contiguous(out.data, out.shape);
  const auto read = [](const TensorView& in) { return in.data != nullptr; };
  if (call.step == 0 && std::none_of(call.inputs.begin(), call.inputs.end(), read))
    return clear(env, out, stream);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorView& in = call.inputs[i];
    if (in.data == nullptr || ir::volume(in.shape) == 0) continue;
    Strided part = block;
    for (std::size_t d = 0; d < in.shape.size(); ++d) {
      std::int64_t begin = call.box.lo[d] - maps[i][d].before;
      if (maps[i][d].before + maps[i][d].after != 0) {
        std::int64_t least = maps[i][d].before;
        for (const ir::OperandMap& other : maps) least = std::min(least, other[d].before);
        begin = std::max(begin, least - maps[i][d].before);
      }
      part.base += (call.input_boxes[i].lo[d] - begin) * block.strides[d] *
                   static_cast<std::int64_t>(ir::size_of(out.dtype));
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
  if (in.data == nullptr) return call.step == 0 ? clear(env, out, stream) : Status{};
  if (in_count == 0 || out_count == 0) return {};
  // Both are runs of C order.
  const std::int64_t from = ir::ravel(call.input_boxes[0].lo, call.op->operands[0].view.shape);
  const std::int64_t to = ir::ravel(call.output_boxes[0].lo, call.space_shape);
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
