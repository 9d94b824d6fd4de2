// The plain versions: each element of a result looks for its own.
#include <cinttypes>

#include "call/builtin.h"
#include "call/plain.h"
#include "index/index.h"

namespace tilewise::kernels::index::reference {
namespace {

using builtin::kFailed;
using builtin::kOutOfRange;
using builtin::read_params;
using builtin::refuse;
using namespace plain;

// Counted from 0. False, and `code` set, where there is no such element.
bool wrapped(const tilewise_call_v1* call, std::int64_t& index, std::int64_t axis, std::int64_t extent,
             int& code) {
  if (index >= 0 ? index < extent : index >= -extent) {
    if (index < 0) index += extent;
    return true;
  }
  if (code == 0)
    code = refuse(call, kOutOfRange,
                  "index %" PRId64 " is out of bounds for axis %" PRId64 " with size %" PRId64, index, axis,
                  extent);
  return false;
}

ir::Shape without(ir::Shape shape, std::int64_t axis, int count) {
  shape.erase(shape.begin() + axis, shape.begin() + axis + count);
  return shape;
}

// a < b, NaN last. Zeros of either sign are equal.
template <class T> bool before(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  return a < b;
}

template <class T>
void count_before(const tilewise_view_v1& v, const tilewise_view_v1& sorted, const tilewise_view_v1& out,
                  bool right) {
  for_each(extents(v), [&](const ir::Index& at) {
    const T x = element<T>(v, at);
    for (std::int64_t i = 0; i < sorted.shape[0]; ++i) {
      const T y = element<T>(sorted, {i});
      const bool both_nan = x != x && y != y;
      element<std::int64_t>(out, at) += right ? both_nan || !before(x, y) : !both_nan && before(y, x);
    }
  });
}

// The number `at` plus the one at `i`; parts of a complex number each for itself. False for a dtype that is not added to.
bool add_element(const tilewise_view_v1& to, const ir::Index& at, const tilewise_view_v1& from,
                 const ir::Index& i) {
  const auto dtype = static_cast<ir::DType>(to.dtype);
  if (dtype == ir::DType::kBool || ir::is_half(dtype)) return false;
  if (ir::is_complex(dtype)) {
    const auto parts = [&]<class T>(T) {
      T* const sum = &element<T>(to, at);
      const T* const more = &element<T>(from, i);
      sum[0] += more[0], sum[1] += more[1];
    };
    dtype == ir::DType::kComplex64 ? parts(float{}) : parts(double{});
    return true;
  }
  return with_comparable(to.dtype, [&]<class T>(T) {
    T& sum = element<T>(to, at);
    if constexpr (std::is_floating_point_v<T>) {
      sum += element<T>(from, i);
    } else {  // modulo 2^bits
      using U = std::make_unsigned_t<T>;
      sum = static_cast<T>(static_cast<U>(static_cast<U>(sum) + static_cast<U>(element<T>(from, i))));
    }
  });
}

}  // namespace

int take(const tilewise_call_v1* call) {
  ir::builtin::Take p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &x = call->inputs[1], &out = call->outputs[0];
  const int dims = index.rank;
  const ir::Shape wanted = extents(out);
  if (index.dtype != TILEWISE_INT64 || p.axis < 0 || p.axis + dims > out.rank ||
      out.rank - dims >= TILEWISE_MAX_RANK ||
      extents(index) != ir::Shape(wanted.begin() + p.axis, wanted.begin() + p.axis + dims))
    return refuse(call, kFailed, "wants int64 indices, one a result along the dimensions from %d on",
                  static_cast<int>(p.axis));
  if (index.data == nullptr || ir::volume(extents(index)) == 0) return 0;
  if (call->output_count > 1 &&
      (call->output_count > 2 || dims != 1 || call->outputs[1].dtype != TILEWISE_INT64 ||
       ir::volume(extents(call->outputs[1])) != index.shape[0]))
    return refuse(call, kFailed, "keeps indices of one dimension, as int64");
  if (x.data != nullptr && (x.dtype != out.dtype || x.rank != out.rank - dims + 1 ||
                            without(extents(x), p.axis, 1) != without(wanted, p.axis, dims)))
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  int code = 0;
  if (call->step == 0)
    for_each(extents(index), [&](const ir::Index& at) {
      std::int64_t i = element<std::int64_t>(index, at);
      wrapped(call, i, p.axis, p.extent, code);
    });
  if (code != 0 || x.data == nullptr) return code;
  for_each(wanted, [&](const ir::Index& at) {
    std::int64_t i = element<std::int64_t>(index, {at.begin() + p.axis, at.begin() + p.axis + dims});
    if (i < 0) i += p.extent;
    i -= x.lo[p.axis];
    if (i < 0 || i >= x.shape[p.axis]) return;  // of another block
    ir::Index from(at.begin(), at.begin() + p.axis);
    from.push_back(i);
    from.insert(from.end(), at.begin() + p.axis + dims, at.end());
    copy_element(out, at, x, from);
  });
  return 0;
}

int take_along_axis(const tilewise_call_v1* call) {
  ir::builtin::TakeAlong p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &x = call->inputs[1], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (index.dtype != TILEWISE_INT64 || p.axis < 0 || p.axis >= index.rank || extents(index) != extents(out))
    return refuse(call, kFailed, "wants int64 indices of the result's shape, and axis %d", axis);
  if (index.data == nullptr) return 0;
  int code = 0;
  if (call->step == 0)
    for_each(extents(index), [&](const ir::Index& at) {
      std::int64_t i = element<std::int64_t>(index, at);
      wrapped(call, i, p.axis, p.extent, code);
    });
  if (code != 0 || x.data == nullptr) return code;
  if (x.dtype != out.dtype || x.rank != out.rank ||
      replaced(extents(x), axis, 0) != replaced(extents(out), axis, 0))
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  for_each(extents(out), [&](const ir::Index& at) {
    std::int64_t i = element<std::int64_t>(index, at);
    if (i < 0) i += p.extent;
    i -= x.lo[axis];
    if (i >= 0 && i < x.shape[axis]) copy_element(out, at, x, replaced(at, axis, i));
  });
  return 0;
}

int wrap_index(const tilewise_call_v1* call) {
  ir::builtin::WrapIndex p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &index = call->inputs[0], &out = call->outputs[0];
  if (index.dtype != TILEWISE_INT64 || out.dtype != TILEWISE_INT64 || extents(index) != extents(out))
    return refuse(call, kFailed, "wants int64 indices of the result's shape");
  int code = 0;
  for_each(extents(out), [&](const ir::Index& at) {
    std::int64_t i = element<std::int64_t>(index, at);
    if (wrapped(call, i, p.axis, p.extent, code)) element<std::int64_t>(out, at) = i;
  });
  return code;
}

int put(const tilewise_call_v1* call) {
  ir::builtin::Put p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &a = call->inputs[0], &index = call->inputs[1], &values = call->inputs[2],
                         &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (p.axis < 0 || p.axis >= out.rank || extents(a) != extents(out) || a.dtype != out.dtype ||
      values.dtype != out.dtype)
    return refuse(call, kFailed, "the array, its values and the result differ in dtype or extents");
  if (call->step == 0) for_each(extents(out), [&](const ir::Index& at) { copy_element(out, at, a, at); });
  if (index.data == nullptr || values.data == nullptr) return 0;
  if (index.dtype != TILEWISE_INT64 || index.rank != 1 ||
      extents(values) != replaced(extents(out), axis, index.shape[0]))
    return refuse(call, kFailed, "wants a vector of int64 indices, one a value along axis %d", axis);
  int code = 0;
  std::vector<std::int64_t> to;
  for (std::int64_t j = 0; j < index.shape[0]; ++j) {
    to.push_back(element<std::int64_t>(index, {j}));
    if (!wrapped(call, to.back(), p.axis, p.extent, code)) return code;
  }
  for_each(extents(values), [&](const ir::Index& at) {  // along the axis in rising order: the last stays
    const std::int64_t i =
        to[static_cast<std::size_t>(at[static_cast<std::size_t>(axis)])] - p.origin(call->box_lo[axis]);
    if (i < 0 || i >= out.shape[axis]) return;
    if (p.add == 0)
      copy_element(out, replaced(at, axis, i), values, at);
    else if (!add_element(out, replaced(at, axis, i), values, at))
      code = refuse(call, kFailed, "dtype %d is not added to", out.dtype);
  });
  return code;
}

int searchsorted(const tilewise_call_v1* call) {
  ir::builtin::SearchSorted p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &v = call->inputs[0], &sorted = call->inputs[1], &out = call->outputs[0];
  if (out.dtype != TILEWISE_INT64) return refuse(call, kFailed, "gives int64");
  if (call->step == 0)
    for_each(extents(out), [&](const ir::Index& at) { element<std::int64_t>(out, at) = 0; });
  if (v.data == nullptr || sorted.data == nullptr) return 0;
  if (sorted.rank != 1 || sorted.dtype != v.dtype || extents(v) != extents(out))
    return refuse(call, kFailed, "wants a sorted vector and values of one dtype");
  const bool known =
      with_comparable(v.dtype, [&]<class T>(T) { count_before<T>(v, sorted, out, p.right != 0); });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", v.dtype);
}

int count_true(const tilewise_call_v1* call) {
  const tilewise_view_v1 &mask = call->inputs[0], &out = call->outputs[0];
  if (mask.dtype != TILEWISE_BOOL || mask.rank != 1 || out.dtype != TILEWISE_INT64 ||
      ir::volume(extents(out)) != 1)
    return refuse(call, kFailed, "wants a vector of bool, and gives one int64 a block");
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < mask.shape[0]; ++i) n += element<std::uint8_t>(mask, {i}) != 0 ? 1 : 0;
  element<std::int64_t>(out, ir::Index(static_cast<std::size_t>(out.rank), 0)) = n;
  return 0;
}

int compress(const tilewise_call_v1* call) {
  const tilewise_view_v1 &mask = call->inputs[0], &out = call->outputs[0];
  const bool positions = call->input_count == 1;
  const tilewise_view_v1& x = call->inputs[positions ? 0 : 1];
  bool fits = call->input_count >= 1 && mask.dtype == TILEWISE_BOOL && mask.rank == 1 && out.rank >= 1;
  if (fits && positions) fits = out.dtype == TILEWISE_INT64 && out.rank == 1;
  if (fits && !positions)
    fits = x.dtype == out.dtype && x.rank == out.rank && x.shape[0] == mask.shape[0] &&
           replaced(extents(x), 0, 0) == replaced(extents(out), 0, 0);
  if (!fits) return refuse(call, kFailed, "wants a vector of bool, and an array that is as long");
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < mask.shape[0]; ++i)
    if (element<std::uint8_t>(mask, {i}) != 0) chosen.push_back(i);
  const auto n = static_cast<std::int64_t>(chosen.size());
  if (n > out.shape[0])
    return refuse(call, kFailed, "more are true than were counted: %" PRId64, out.shape[0]);
  if (n < out.shape[0])
    return refuse(call, kFailed, "%" PRId64 " are true, and %" PRId64 " were counted", n, out.shape[0]);
  for_each(extents(out), [&](const ir::Index& at) {
    const std::int64_t i = chosen[static_cast<std::size_t>(at[0])];
    if (positions)
      element<std::int64_t>(out, at) = mask.lo[0] + i;
    else
      copy_element(out, at, x, replaced(at, 0, i));
  });
  return 0;
}

}  // namespace tilewise::kernels::index::reference
