// take, take_along_axis, wrap_index, put. Each step handles what falls into its block; the first to see an index outside says so.
#include <cinttypes>

#include "call/builtin.h"
#include "index/index.h"
#include "index/pick.h"
#include "move/strided_copy.h"

namespace tilewise::kernels::index {
namespace {

using namespace builtin;

bool is_int64(const tilewise_view_v1& view) { return view.dtype == TILEWISE_INT64; }

const std::int64_t* indices_of(const tilewise_view_v1& view) {
  return static_cast<const std::int64_t*>(view.data);
}

int outside(const tilewise_call_v1* call, std::int64_t index, std::int64_t axis, std::int64_t extent) {
  return refuse(call, kOutOfRange,
                "index %" PRId64 " is out of bounds for axis %" PRId64 " with size %" PRId64, index, axis,
                extent);
}

// 0, or what the caller returns.
int check_line(const tilewise_call_v1* call, const IndexLine& line, std::int64_t axis, std::int64_t extent) {
  const std::int64_t bad = line.first_outside(extent);
  return bad < 0 ? 0 : outside(call, line.at[bad * line.stride], axis, extent);
}

// Dimensions [first, first + count) of the view follow each other in memory as in C order.
bool joined(const tilewise_view_v1& view, int first, int count) {
  for (int d = first; d + 1 < first + count; ++d)
    if (view.strides[d] != view.strides[d + 1] * view.shape[d + 1]) return false;
  return true;
}

// The view with one dimension of `extent` and `stride` in place of dimensions [first, first + count).
tilewise_view_v1 with_one(const tilewise_view_v1& view, int first, int count, std::int64_t extent,
                          std::int64_t stride) {
  tilewise_view_v1 one = view;
  one.rank = view.rank - count + 1;
  one.shape[first] = extent;
  one.strides[first] = stride;
  for (int d = first + 1; d < one.rank; ++d) {
    one.shape[d] = view.shape[d + count - 1];
    one.strides[d] = view.strides[d + count - 1];
  }
  return one;
}

// With the second result for the indices in an order that later steps need not search.
int take_by_parts(const tilewise_call_v1* call, const ir::builtin::Take& p) {
  const tilewise_view_v1 &index = call->inputs[0], &x = call->inputs[1], &out = call->outputs[0];
  const IndexLine line{indices_of(index), index.strides[0], index.shape[0]};
  const Buckets parts(static_cast<std::int64_t*>(call->outputs[1].data), line.count, p.extent);
  const int axis = static_cast<int>(p.axis);
  if (call->step == 0) {
    if (const int code = check_line(call, line, p.axis, p.extent)) return code;
    parts.fill(line);
  }
  if (x.data == nullptr) return 0;
  if (x.dtype != out.dtype || !same_lines({&x, &out}, axis))
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  const PickedCopy copy(out, x, axis);
  parts.within(x.lo[axis], x.shape[axis],
               [&](const Picks& picks) { copy(picks.which.data(), picks.where.data(), picks.count); });
  return 0;
}

}  // namespace

int take(const tilewise_call_v1* call) {
  ir::builtin::Take p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &x = call->inputs[1], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis), dims = index.rank;
  bool fits =
      is_int64(index) && p.axis >= 0 && p.axis + dims <= out.rank && out.rank - dims < TILEWISE_MAX_RANK;
  for (int d = 0; fits && d < dims; ++d) fits = index.shape[d] == out.shape[axis + d];
  if (!fits)
    return refuse(call, kFailed, "wants int64 indices, one a result along the dimensions from %d on", axis);
  const std::int64_t all = volume(index);
  if (index.data == nullptr || all == 0) return 0;
  if (call->output_count > 1) {
    const tilewise_view_v1& parts = call->outputs[1];
    if (call->output_count > 2 || dims != 1 || !is_int64(parts) || volume(parts) != all)
      return refuse(call, kFailed, "keeps indices of one dimension, as int64");
    if (Buckets::fit(all, p.extent)) return take_by_parts(call, p);
  }
  // As lines of indices: all of them where they follow each other here and in the result, else those of the last dimension.
  const bool whole = dims == 0 || (joined(index, 0, dims) && joined(out, axis, dims));
  const std::int64_t count = whole ? all : index.shape[dims - 1];
  const std::int64_t stride = dims == 0 ? 0 : index.strides[dims - 1];
  const tilewise_view_v1 line =
      with_one(out, axis, dims, count, dims == 0 ? 0 : out.strides[axis + dims - 1]);
  if (x.data != nullptr && (x.dtype != out.dtype || !same_lines({&x, &line}, axis)))
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  tilewise_view_v1 starts = index, targets = out;  // of the lines, in the indices and in the result
  starts.rank = targets.rank = whole ? 0 : dims - 1;
  for (int d = 0; d < targets.rank; ++d)
    targets.shape[d] = index.shape[d], targets.strides[d] = out.strides[axis + d];
  int code = 0;
  for_lines<2>({&starts, &targets}, -1, [&](const auto& start) {
    const IndexLine indices{indices_of(index) + start[0], stride, count};
    if (code == 0 && call->step == 0) code = check_line(call, indices, p.axis, p.extent);
    if (code != 0 || x.data == nullptr) return;
    tilewise_view_v1 to = line;
    to.data = static_cast<std::byte*>(out.data) + start[1] * static_cast<std::int64_t>(element_bytes(out));
    const PickedCopy copy(to, x, axis);
    indices.within(p.extent, x.lo[axis], x.shape[axis],
                   [&](const Picks& picks) { copy(picks.which.data(), picks.where.data(), picks.count); });
  });
  return code;
}

int wrap_index(const tilewise_call_v1* call) {
  ir::builtin::WrapIndex p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &out = call->outputs[0];
  if (!is_int64(index) || !is_int64(out) || !same_lines({&out, &index}, -1))
    return refuse(call, kFailed, "wants int64 indices of the result's shape");
  const int last = index.rank - 1;  // -1: there is one index
  const std::int64_t count = last < 0 ? 1 : index.shape[last], stride = last < 0 ? 1 : index.strides[last],
                     step = last < 0 ? 1 : out.strides[last];
  int code = 0;
  for_lines<2>({&out, &index}, last, [&](const auto& start) {
    const IndexLine line{indices_of(index) + start[1], stride, count};
    if (code == 0) code = check_line(call, line, p.axis, p.extent);
    if (code != 0) return;
    std::int64_t* const to = static_cast<std::int64_t*>(out.data) + start[0];
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = line.at[j * stride];
      to[j * step] = i < 0 ? i + p.extent : i;
    }
  });
  return code;
}

int take_along_axis(const tilewise_call_v1* call) {
  ir::builtin::TakeAlong p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &x = call->inputs[1], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (!is_int64(index) || p.axis < 0 || !same_lines({&index, &out}, axis) ||
      index.shape[axis] != out.shape[axis])
    return refuse(call, kFailed, "wants int64 indices of the result's shape, and axis %d", axis);
  if (index.data == nullptr) return 0;
  if (x.data != nullptr && (x.dtype != out.dtype || !same_lines({&out, &x}, axis)))
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  // By lines of the last dimension, which lie side by side, whichever is the axis: at the start of a line `seen` is where x has it.
  const int last = out.rank - 1;
  const bool along = axis == last;
  tilewise_view_v1 seen = x.data != nullptr ? x : out;
  seen.shape[axis] = out.shape[axis];
  seen.strides[axis] = 0;
  const std::int64_t step = out.strides[last], beside = along ? 0 : seen.strides[last],
                     from_step = x.strides[axis];
  int code = 0;
  for_lines<3>({&out, &seen, &index}, last, [&](const auto& start) {
    const IndexLine line{indices_of(index) + start[2], index.strides[last], index.shape[last]};
    if (code == 0 && call->step == 0) code = check_line(call, line, p.axis, p.extent);
    if (code != 0 || x.data == nullptr) return;
    with_bytes(element_bytes(x), [&]<class T>(T) {
      T* const to = static_cast<T*>(out.data) + start[0];
      const T* const from = static_cast<const T*>(x.data) + start[1];
      line.within(p.extent, x.lo[axis], x.shape[axis], [&](const Picks& picks) {
        for (std::size_t k = 0; k < static_cast<std::size_t>(picks.count); ++k)
          to[picks.which[k] * step] = from[picks.which[k] * beside + picks.where[k] * from_step];
      });
    });
  });
  return code;
}

int put(const tilewise_call_v1* call) {
  ir::builtin::Put p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &a = call->inputs[0], &index = call->inputs[1], &values = call->inputs[2],
                         &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (p.axis < 0 || !same_lines({&out, &a}, axis) || a.shape[axis] != out.shape[axis] ||
      a.dtype != out.dtype || values.dtype != out.dtype)
    return refuse(call, kFailed, "the array, its values and the result differ in dtype or extents");
  const PickedAdd add = p.add != 0 ? picked_add(out.dtype) : nullptr;
  if (p.add != 0 && add == nullptr) return refuse(call, kFailed, "dtype %d is not added to", out.dtype);
  if (call->step == 0)
    move::strided_copy(static_cast<std::byte*>(out.data), strides_of(out),
                       static_cast<const std::byte*>(a.data), strides_of(a), shape_of(out),
                       element_bytes(out));
  if (index.data == nullptr || values.data == nullptr) return 0;
  if (!is_int64(index) || index.rank != 1 || !same_lines({&out, &values}, axis) ||
      index.shape[0] != values.shape[axis])
    return refuse(call, kFailed, "wants a vector of int64 indices, one a value along axis %d", axis);
  const IndexLine indices{indices_of(index), index.strides[0], index.shape[0]};
  if (const int code = check_line(call, indices, p.axis, p.extent)) return code;
  const PickedCopy copy(out, values, axis);
  indices.within(p.extent, p.origin(call->box_lo[axis]), out.shape[axis], [&](const Picks& picks) {
    if (add != nullptr)
      add(out, values, axis, picks.where.data(), picks.which.data(), picks.count);
    else
      copy(picks.where.data(), picks.which.data(), picks.count);
  });
  return 0;
}

}  // namespace tilewise::kernels::index
