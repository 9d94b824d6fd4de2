// take, take_along_axis, put. Each step handles what falls into its block; the first to see an index outside says so.
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

}  // namespace

int take(const tilewise_call_v1* call) {
  ir::builtin::Take p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &x = call->inputs[1], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (!is_int64(index) || index.rank != 1 || p.axis < 0 || p.axis >= out.rank ||
      index.shape[0] != out.shape[axis])
    return refuse(call, kFailed, "wants a vector of int64 indices, one a result along axis %d", axis);
  if (index.data == nullptr) return 0;
  const std::int64_t* at = indices_of(index);
  const std::int64_t count = index.shape[0], stride = index.strides[0];
  if (call->step == 0)
    if (const int code = check_line(call, at, stride, count, p.axis, p.extent)) return code;
  if (x.data == nullptr) return 0;
  if (x.dtype != out.dtype || !same_lines({&x, &out}, axis))
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  const auto n = static_cast<std::uint64_t>(x.shape[axis]);
  if (by_slabs(out, x, axis)) {
    const SlabCopy copy(out, x, axis);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::uint64_t i = local(at[j * stride], p.extent, x.lo[axis]);
      if (i < n) copy(out, j, x, static_cast<std::int64_t>(i));
    }
    return 0;
  }
  return with_bytes(element_bytes(x), [&]<class T>(T) {
    for_lines<2>({&out, &x}, axis, [&](const auto& start) {
      T* to = static_cast<T*>(out.data) + start[0];
      const T* from = static_cast<const T*>(x.data) + start[1];
      for (std::int64_t j = 0; j < count; ++j) {
        const std::uint64_t i = local(at[j * stride], p.extent, x.lo[axis]);
        if (i < n) to[j * out.strides[axis]] = from[static_cast<std::int64_t>(i) * x.strides[axis]];
      }
    });
    return 0;
  });
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
