// take, take_along_axis, wrap_index, put. Each step handles what falls into its block; the first to see an index outside says so.
#include <cinttypes>

#include "call/builtin.h"
#include "index/index.h"
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
int check_line(const tilewise_call_v1* call, const std::int64_t* index, std::int64_t stride,
               std::int64_t count, std::int64_t axis, std::int64_t extent) {
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t i = index[j * stride];
    if (i < -extent || i >= extent) return outside(call, i, axis, extent);
  }
  return 0;
}

// Where an index lies in the block that starts at `lo`; outside of it: a number >= the block's extent.
std::uint64_t local(std::int64_t index, std::int64_t extent, std::int64_t lo) {
  return static_cast<std::uint64_t>((index < 0 ? index + extent : index) - lo);
}

// A slab is better copied whole than line by line where its elements lie side by side in both memories.
bool by_slabs(const tilewise_view_v1& a, const tilewise_view_v1& b, int axis) {
  const int last = a.rank - 1;
  return axis != last && a.strides[last] == 1 && b.strides[last] == 1 && a.shape[last] > 4;
}

// to[..., at, ...] = from[..., i, ...]
struct SlabCopy {
  ir::Shape shape;
  ir::Strides to_strides, from_strides;
  std::size_t bytes;
  SlabCopy(const tilewise_view_v1& to, const tilewise_view_v1& from, int axis)
      : shape(shape_of(to)),
        to_strides(strides_of(to)),
        from_strides(strides_of(from)),
        bytes(element_bytes(to)) {
    shape[static_cast<std::size_t>(axis)] = 1;
    at_ = to_strides[static_cast<std::size_t>(axis)] * static_cast<std::int64_t>(bytes);
    i_ = from_strides[static_cast<std::size_t>(axis)] * static_cast<std::int64_t>(bytes);
  }
  void operator()(const tilewise_view_v1& to, std::int64_t at, const tilewise_view_v1& from,
                  std::int64_t i) const {
    move::strided_copy(static_cast<std::byte*>(to.data) + at * at_, to_strides,
                       static_cast<const std::byte*>(from.data) + i * i_, from_strides, shape, bytes);
  }

 private:
  std::int64_t at_ = 0, i_ = 0;
};

// x's elements at a line of indices, to `out`, which has a dimension of `count` for the axis.
void take_line(const tilewise_view_v1& out, const tilewise_view_v1& x, int axis, const std::int64_t* at,
               std::int64_t stride, std::int64_t count, std::int64_t extent) {
  const auto n = static_cast<std::uint64_t>(x.shape[axis]);
  if (by_slabs(out, x, axis)) {
    const SlabCopy copy(out, x, axis);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::uint64_t i = local(at[j * stride], extent, x.lo[axis]);
      if (i < n) copy(out, j, x, static_cast<std::int64_t>(i));
    }
    return;
  }
  with_bytes(element_bytes(x), [&]<class T>(T) {
    for_lines<2>({&out, &x}, axis, [&](const auto& start) {
      T* to = static_cast<T*>(out.data) + start[0];
      const T* from = static_cast<const T*>(x.data) + start[1];
      for (std::int64_t j = 0; j < count; ++j) {
        const std::uint64_t i = local(at[j * stride], extent, x.lo[axis]);
        if (i < n) to[j * out.strides[axis]] = from[static_cast<std::int64_t>(i) * x.strides[axis]];
      }
    });
  });
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
    const std::int64_t* const at = indices_of(index) + start[0];
    if (code == 0 && call->step == 0) code = check_line(call, at, stride, count, p.axis, p.extent);
    if (code != 0 || x.data == nullptr) return;
    tilewise_view_v1 to = line;
    to.data = static_cast<std::byte*>(out.data) + start[1] * static_cast<std::int64_t>(element_bytes(out));
    take_line(to, x, axis, at, stride, count, p.extent);
  });
  return code;
}

int wrap_index(const tilewise_call_v1* call) {
  ir::builtin::WrapIndex p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &out = call->outputs[0];
  if (!is_int64(index) || !is_int64(out) || !same_lines({&out, &index}, -1))
    return refuse(call, kFailed, "wants int64 indices of the result's shape");
  int code = 0;
  for_lines<2>({&out, &index}, -1, [&](const auto& start) {
    const std::int64_t i = indices_of(index)[start[1]];
    if (i < -p.extent || i >= p.extent) {
      if (code == 0) code = outside(call, i, p.axis, p.extent);
      return;
    }
    static_cast<std::int64_t*>(out.data)[start[0]] = i < 0 ? i + p.extent : i;
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
  const std::int64_t count = index.shape[axis], stride = index.strides[axis];
  int code = 0;
  if (call->step == 0)
    for_lines<1>({&index}, axis, [&](const auto& start) {
      if (code == 0) code = check_line(call, indices_of(index) + start[0], stride, count, p.axis, p.extent);
    });
  if (code != 0 || x.data == nullptr) return code;
  if (x.dtype != out.dtype || !same_lines({&out, &x}, axis))
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  const auto n = static_cast<std::uint64_t>(x.shape[axis]);
  return with_bytes(element_bytes(x), [&]<class T>(T) {
    for_lines<3>({&out, &x, &index}, axis, [&](const auto& start) {
      T* to = static_cast<T*>(out.data) + start[0];
      const T* from = static_cast<const T*>(x.data) + start[1];
      const std::int64_t* at = indices_of(index) + start[2];
      for (std::int64_t j = 0; j < count; ++j) {
        const std::uint64_t i = local(at[j * stride], p.extent, x.lo[axis]);
        if (i < n) to[j * out.strides[axis]] = from[static_cast<std::int64_t>(i) * x.strides[axis]];
      }
    });
    return 0;
  });
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
  if (call->step == 0)
    move::strided_copy(static_cast<std::byte*>(out.data), strides_of(out),
                       static_cast<const std::byte*>(a.data), strides_of(a), shape_of(out),
                       element_bytes(out));
  if (index.data == nullptr || values.data == nullptr) return 0;
  if (!is_int64(index) || index.rank != 1 || !same_lines({&out, &values}, axis) ||
      index.shape[0] != values.shape[axis])
    return refuse(call, kFailed, "wants a vector of int64 indices, one a value along axis %d", axis);
  const std::int64_t* at = indices_of(index);
  const std::int64_t count = index.shape[0], stride = index.strides[0], lo = call->box_lo[axis];
  if (const int code = check_line(call, at, stride, count, p.axis, p.extent)) return code;
  const auto n = static_cast<std::uint64_t>(out.shape[axis]);
  if (by_slabs(out, values, axis)) {
    const SlabCopy copy(out, values, axis);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::uint64_t i = local(at[j * stride], p.extent, lo);
      if (i < n) copy(out, static_cast<std::int64_t>(i), values, j);
    }
    return 0;
  }
  return with_bytes(element_bytes(out), [&]<class T>(T) {
    for_lines<2>({&out, &values}, axis, [&](const auto& start) {
      T* to = static_cast<T*>(out.data) + start[0];
      const T* from = static_cast<const T*>(values.data) + start[1];
      for (std::int64_t j = 0; j < count; ++j) {
        const std::uint64_t i = local(at[j * stride], p.extent, lo);
        if (i < n) to[static_cast<std::int64_t>(i) * out.strides[axis]] = from[j * values.strides[axis]];
      }
    });
    return 0;
  });
}

}  // namespace tilewise::kernels::index
