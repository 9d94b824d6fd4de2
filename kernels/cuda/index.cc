// Built-in kernels whose reads or results depend on data. As kernels/index, which says more.
#include <tilewise/ir/builtin.h>

#include <algorithm>

#include "call.h"

namespace tilewise::cuda {
namespace {

// As device/index.cuh.
struct TakeParams {
  Walk walk;
  Place place[3];
  std::int64_t extent = 0, lo = 0, count = 0, stride = 0, axis = 0;
  FaultTo fault;
  std::int32_t check = 0, unused = 0;
};
struct PutParams {
  Walk walk;
  Place place[4];
  std::int64_t extent = 0, lo = 0, count = 0, stride = 0, axis = 0;
  std::int64_t winner = 0, index = 0, indices = 0, index_stride = 0;
  FaultTo fault;
};
struct PutAddParams {
  Walk lines;
  Place place[2];
  std::int64_t extent = 0, lo = 0, count = 0, stride = 0, values_stride = 0, axis = 0;
  std::int64_t index = 0, indices = 0, index_stride = 0;
  FaultTo fault;
  std::int32_t kind = 0, unused = 0;
};
struct SelectParams {
  Walk slab;
  Place place[2];
  std::int64_t mask = 0, mask_stride = 0, length = 0, chunk = 0, lo = 0, out_row = 0, row = 0;
  std::int64_t starts = 0, kept = 0;
  FaultTo fault;
  std::int32_t chunks = 1, positions = 0;
};

constexpr std::int64_t kMostChunks = 1024;  // of a mask
constexpr std::int64_t kLeastChunk = 8 * kThreads;

constexpr std::int64_t kAddedPositions = 16 * kThreads;  // as device/index.cuh

constexpr const char* kOutside = "index %lld is out of bounds for axis %lld with size %lld";
constexpr const char* kMiscounted = "%lld are true, and %lld were counted";

FaultTo fault_to(DataFault* fault, const char* format, Errc code) {
  return {address(fault), address(format), static_cast<std::int32_t>(code), 0};
}

// Steps along one axis alone.
Strided along(const void* data, std::size_t rank, std::size_t axis, std::int64_t stride) {
  Strided place{address(data), ir::Strides(rank, 0)};
  if (axis < rank) place.strides[axis] = stride;
  return place;
}

// How a mask is cut is a function of its length.
void cut(SelectParams& p, std::int64_t length) {
  const std::int64_t chunks =
      std::clamp<std::int64_t>((length + kLeastChunk - 1) / kLeastChunk, 1, kMostChunks);
  p.length = length;
  p.chunk = ((length + chunks - 1) / chunks + kThreads - 1) / kThreads * kThreads;
  p.chunks = static_cast<std::int32_t>(
      std::max<std::int64_t>(1, p.chunk == 0 ? 1 : (length + p.chunk - 1) / p.chunk));
}

Status scratch_there(const KernelCall& call) {
  if (call.scratch != nullptr) return {};
  return error(Errc::kInternal, call.op->get<ir::CallAttrs>().kernel + " without scratch memory");
}

}  // namespace

namespace {

// Where a step of take or take_along_axis writes, and what it reads.
struct TakePlaces {
  Strided out, x, index;
  bool fits = false;       // indices and result
  bool fits_data = false;  // array and result
};

TakePlaces along_places(const TensorView& index, const TensorView& x, const TensorView& out,
                        std::size_t axis) {
  TakePlaces p{contiguous(out.data, out.shape), along(nullptr, out.shape.size(), axis, 0), {}};
  p.fits = axis < out.shape.size() && same_lines(index, out, axis) && index.shape[axis] == out.shape[axis];
  if (!p.fits) return p;
  p.index = strided(index, out.shape);
  p.fits_data = x.data != nullptr && same_lines(x, out, axis);
  if (p.fits_data) p.x = strided(x, out.shape), p.x.strides[axis] = 0;
  return p;
}

// The dimensions of the indices stand where the array has the axis.
TakePlaces take_places(const TensorView& index, const TensorView& x, const TensorView& out,
                       std::size_t axis) {
  const std::size_t rank = out.shape.size(), dims = index.shape.size();
  TakePlaces p{contiguous(out.data, out.shape), along(nullptr, rank, 0, 0), along(index.data, rank, 0, 0)};
  p.fits = axis + dims <= rank;
  for (std::size_t d = 0; p.fits && d < dims; ++d) {
    p.fits = index.shape[d] == out.shape[axis + d];
    p.index.strides[axis + d] = index.strides[d];
  }
  if (!p.fits || x.data == nullptr || x.shape.size() + dims != rank + 1) return p;
  p.fits_data = true;
  p.x.base = address(x.data);
  for (std::size_t d = 0; d < rank; ++d) {
    if (d >= axis && d < axis + dims) continue;
    const std::size_t from = d < axis ? d : d + 1 - dims;
    p.fits_data &= x.shape[from] == out.shape[d];
    p.x.strides[d] = x.strides[from];
  }
  return p;
}

}  // namespace

Status launch_take(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault) {
  ir::builtin::Take p;  // as TakeAlong
  TW_TRY(read_params(call, p));
  const TensorView &index = call.inputs[0], &x = call.inputs[1], &out = call.outputs[0];
  const auto axis = static_cast<std::size_t>(p.axis);
  const bool lines = call.op->get<ir::CallAttrs>().kernel == ir::builtin::TakeAlong::kName;
  if (index.data == nullptr) return {};
  const TakePlaces at = p.axis < 0 ? TakePlaces{}
                        : lines    ? along_places(index, x, out, axis)
                                   : take_places(index, x, out, axis);
  if (!at.fits || index.dtype != ir::DType::kInt64)
    return refuse(call, "wants int64 indices, one a result along axis " + std::to_string(p.axis));
  const bool read = x.data != nullptr;
  if (read && (!at.fits_data || x.dtype != out.dtype))
    return refuse(call, "the array and the result differ in dtype or extents");
  const Strided places[3] = {at.out, at.x, at.index};
  TakeParams params;
  if (read) {
    params.lo = call.input_boxes[1].lo[axis];
    params.count = x.shape[axis];
    params.stride = x.strides[axis];
  }
  params.walk = merge(out.shape, places, params.place);
  if (params.walk.count == 0) return {};
  params.extent = p.extent;
  params.axis = p.axis;
  params.fault = fault_to(fault, kOutside, Errc::kOutOfRange);
  params.check = call.step == 0;
  TW_ASSIGN(const Program program, env.programs.index(ir::size_of(out.dtype)));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[0], blocks_for(params.walk.count), 1, &params, stream);
}

Status launch_wrap_index(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault) {
  ir::builtin::WrapIndex p;
  TW_TRY(read_params(call, p));
  const TensorView &index = call.inputs[0], &out = call.outputs[0];
  if (index.dtype != ir::DType::kInt64 || out.dtype != ir::DType::kInt64 || index.shape != out.shape)
    return refuse(call, "wants int64 indices of the result's shape");
  const Strided places[3] = {contiguous(out.data, out.shape), along(nullptr, out.shape.size(), 0, 0),
                             strided(index, out.shape)};
  TakeParams params;
  params.walk = merge(out.shape, places, params.place);
  if (params.walk.count == 0) return {};
  params.extent = p.extent;
  params.axis = p.axis;
  params.fault = fault_to(fault, kOutside, Errc::kOutOfRange);
  TW_ASSIGN(const Program program, env.programs.index(ir::size_of(out.dtype)));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[6], blocks_for(params.walk.count), 1, &params, stream);
}

std::int64_t put_scratch_bytes(const ir::Op& op) {
  ir::builtin::Put p;
  const std::string& params = op.get<ir::CallAttrs>().params;
  const ir::Shape largest = op.space.max_block_shape();
  if (!ir::builtin::read(p, params.data(), params.size()) || p.axis < 0 ||
      static_cast<std::size_t>(p.axis) >= largest.size() || p.add != 0)
    return 0;  // refused at launch, or none is needed
  return largest[static_cast<std::size_t>(p.axis)] * 8;
}

namespace {

// What remains of a step of put once its operands have been looked at.
Status add_values(const Environment& env, const KernelCall& call, const ir::builtin::Put& p, CUstream stream,
                  DataFault* fault) {
  const TensorView &index = call.inputs[1], &values = call.inputs[2], &out = call.outputs[0];
  const auto axis = static_cast<std::size_t>(p.axis);
  const Strided places[2] = {contiguous(out.data, out.shape), strided(values, values.shape)};
  ir::Shape beside = out.shape;
  beside[axis] = 1;
  PutAddParams params;
  params.lines = merge(beside, places, params.place);
  params.extent = p.extent;
  params.lo = p.origin(call.box.lo[axis]);
  params.count = out.shape[axis];
  params.stride = places[0].strides[axis];
  params.values_stride = places[1].strides[axis];
  params.axis = p.axis;
  params.index = address(index.data);
  params.indices = index.shape[0];
  params.index_stride = index.strides[0];
  params.fault = fault_to(fault, kOutside, Errc::kOutOfRange);
  params.kind = ir::is_complex(out.dtype) ? 2 : ir::is_floating(out.dtype) ? 1 : 0;
  if (params.indices == 0) return {};
  TW_ASSIGN(const Program program, env.programs.index(ir::size_of(out.dtype)));
  TW_TRY(env.context.make_current());
  const std::int64_t groups = (params.count + kAddedPositions - 1) / kAddedPositions;
  return launch_kernel(env, program.entry[7], blocks_for(params.lines.count * groups * kThreads), 1, &params,
                       stream);
}

}  // namespace

Status launch_put(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault) {
  ir::builtin::Put p;
  TW_TRY(read_params(call, p));
  const TensorView &a = call.inputs[0], &index = call.inputs[1], &values = call.inputs[2],
                   &out = call.outputs[0];
  const auto axis = static_cast<std::size_t>(p.axis);
  if (p.axis < 0 || axis >= out.shape.size()) return refuse(call, "no axis " + std::to_string(p.axis));
  if (p.add != 0 && (out.dtype == ir::DType::kBool || ir::is_half(out.dtype)))
    return refuse(call, "dtype " + std::string(name_of(out.dtype)) + " is not added to");
  const Strided target = contiguous(out.data, out.shape);
  if (call.step == 0) {
    if (a.shape != out.shape || a.dtype != out.dtype)
      return refuse(call, "the array and the result differ in dtype or extents");
    if (ir::volume(out.shape) > 0) TW_TRY(copy_region(env, a, target, stream));
  }
  if (index.data == nullptr || values.data == nullptr) return {};
  if (index.dtype != ir::DType::kInt64 || index.shape.size() != 1 || values.dtype != out.dtype ||
      !same_lines(values, out, axis) || index.shape[0] != values.shape[axis])
    return refuse(call, "wants a vector of int64 indices, one a value along axis " + std::to_string(p.axis));
  if (p.add != 0) return add_values(env, call, p, stream, fault);
  const std::size_t rank = out.shape.size();
  Strided places[4] = {target, strided(values, values.shape), along(index.data, rank, axis, index.strides[0]),
                       along(nullptr, rank, axis, 1)};
  places[0].strides[axis] = 0;
  PutParams params;
  params.walk = merge(values.shape, places, params.place);
  params.extent = p.extent;
  params.lo = p.origin(call.box.lo[axis]);
  params.count = out.shape[axis];
  params.stride = target.strides[axis];
  params.axis = p.axis;
  params.index = address(index.data);
  params.indices = index.shape[0];
  params.index_stride = index.strides[0];
  params.fault = fault_to(fault, kOutside, Errc::kOutOfRange);
  if (params.indices == 0) return {};
  TW_TRY(scratch_there(call));
  params.winner = address(call.scratch);
  TW_ASSIGN(const Program program, env.programs.index(ir::size_of(out.dtype)));
  TW_TRY(env.context.make_current());
  if (params.count > 0)
    TW_CUDA_TRY(*env.context.driver, cuMemsetD8Async, "cuMemsetD8Async",
                reinterpret_cast<CUdeviceptr>(call.scratch), 0xFF, static_cast<std::size_t>(params.count) * 8,
                stream);
  TW_TRY(launch_kernel(env, program.entry[1], blocks_for(params.indices), 1, &params, stream));
  if (params.walk.count == 0) return {};
  return launch_kernel(env, program.entry[2], blocks_for(params.walk.count), 1, &params, stream);
}

std::int64_t select_scratch_bytes() { return kMostChunks * 8; }

Status launch_count_true(const Environment& env, const KernelCall& call, CUstream stream) {
  const TensorView &mask = call.inputs[0], &out = call.outputs[0];
  if (mask.dtype != ir::DType::kBool || mask.shape.size() != 1 || out.dtype != ir::DType::kInt64 ||
      ir::volume(out.shape) != 1)
    return refuse(call, "wants a vector of bool, and gives one int64 a block");
  TW_TRY(scratch_there(call));
  SelectParams params;
  cut(params, mask.shape[0]);
  params.mask = address(mask.data);
  params.mask_stride = mask.strides[0];
  params.starts = address(call.scratch);
  params.kept = -1;
  params.place[0].base = address(out.data);
  TW_ASSIGN(const Program program, env.programs.index(8));
  TW_TRY(env.context.make_current());
  TW_TRY(launch_kernel(env, program.entry[3], params.chunks, 1, &params, stream));
  return launch_kernel(env, program.entry[4], 1, 1, &params, stream);
}

Status launch_compress(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault) {
  const TensorView& out = call.outputs[0];
  const bool positions = call.inputs.size() == 1;
  const bool fits = !call.inputs.empty() && call.inputs[0].dtype == ir::DType::kBool &&
                    call.inputs[0].shape.size() == 1 && !out.shape.empty() &&
                    (positions ? out.dtype == ir::DType::kInt64 && out.shape.size() == 1
                               : call.inputs[1].dtype == out.dtype && same_lines(call.inputs[1], out, 0) &&
                                     call.inputs[1].shape[0] == call.inputs[0].shape[0]);
  if (!fits) return refuse(call, "wants a vector of bool, and an array that is as long");
  TW_TRY(scratch_there(call));
  const TensorView& mask = call.inputs[0];
  SelectParams params;
  cut(params, mask.shape[0]);
  params.mask = address(mask.data);
  params.mask_stride = mask.strides[0];
  params.lo = call.input_boxes[0].lo[0];
  const Strided target = contiguous(out.data, out.shape);
  Strided places[2] = {target, target};
  if (!positions) places[1] = strided(call.inputs[1], call.inputs[1].shape);
  ir::Shape slab = out.shape;
  slab[0] = 1;
  params.slab = merge(slab, places, params.place);
  params.out_row = target.strides[0];
  params.row = positions ? 0 : call.inputs[1].strides[0];
  params.starts = address(call.scratch);
  params.kept = out.shape[0];
  params.fault = fault_to(fault, kMiscounted, Errc::kTaskFailed);
  params.positions = positions;
  TW_ASSIGN(const Program program, env.programs.index(ir::size_of(out.dtype)));
  TW_TRY(env.context.make_current());
  TW_TRY(launch_kernel(env, program.entry[3], params.chunks, 1, &params, stream));
  TW_TRY(launch_kernel(env, program.entry[4], 1, 1, &params, stream));
  if (params.slab.count == 0) return {};
  return launch_kernel(env, program.entry[5], params.chunks, 1, &params, stream);
}

}  // namespace tilewise::cuda
