// The plain versions: the elements of a line, each with its number, ordered by the C++ library's stable sort and a
// comparison that says what the order is.
#include <algorithm>
#include <vector>

#include "call/builtin.h"
#include "call/plain.h"
#include "sort/sort.h"

namespace tilewise::kernels::sort::reference {
namespace {

using builtin::kFailed;
using builtin::read_params;
using builtin::refuse;
using namespace plain;

template <class T> struct Numbered {
  T value;
  std::int64_t number;
};

// Does a come before b? NaN last, whichever way the order goes. `zeros`: -0 is smaller than +0.
template <class T> bool before(T a, T b, bool descending, bool zeros) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
    if (zeros && a == 0 && b == 0) {
      const bool negative = std::signbit(a), other = std::signbit(b);
      return descending ? !negative && other : negative && !other;
    }
  }
  return descending ? b < a : a < b;
}

// Elements with numbers: equal ones in the order of these.
template <class T> void put_in_order(std::vector<Numbered<T>>& line, bool descending, bool numbered) {
  std::stable_sort(line.begin(), line.end(), [&](const Numbered<T>& a, const Numbered<T>& b) {
    if (before(a.value, b.value, descending, !numbered)) return true;
    if (before(b.value, a.value, descending, !numbered)) return false;
    return numbered && a.number < b.number;
  });
}

// visit(index) of the first element of each line along `axis`.
template <class Visit> void for_each_line(const tilewise_view_v1& view, int axis, Visit&& visit) {
  for_each(replaced(extents(view), axis, 1), visit);
}

// The line that begins at `start`, behind what is there.
template <class T>
void append(std::vector<Numbered<T>>& line, const tilewise_view_v1& x, const tilewise_view_v1* numbers,
            int axis, const ir::Index& start) {
  for (std::int64_t i = 0; i < x.shape[axis]; ++i) {
    const ir::Index at = replaced(start, axis, i);
    line.push_back(
        {element<T>(x, at), numbers == nullptr ? x.lo[axis] + i : element<std::int64_t>(*numbers, at)});
  }
}

// Elements from `first` on, as many as the output has.
template <class T>
void write(const std::vector<Numbered<T>>& line, std::int64_t first, const tilewise_call_v1* call, int axis,
           const ir::Index& start) {
  for (std::int64_t i = 0; i < call->outputs[0].shape[axis]; ++i) {
    const Numbered<T>& x = line[static_cast<std::size_t>(first + i)];
    const ir::Index at = replaced(start, axis, i);
    element<T>(call->outputs[0], at) = x.value;
    if (call->output_count > 1) element<std::int64_t>(call->outputs[1], at) = x.number;
  }
}

bool same_but_along(const tilewise_view_v1& a, const tilewise_view_v1& b, int axis) {
  return a.rank == b.rank && replaced(extents(a), axis, 0) == replaced(extents(b), axis, 0);
}

}  // namespace

int sort_block(const tilewise_call_v1* call) {
  ir::builtin::SortBlock p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (call->input_count < 1 || p.axis < 0 || p.axis >= x.rank || !same_but_along(x, out, axis) ||
      x.dtype != out.dtype || out.shape[axis] > x.shape[axis])
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  for (int i = 1; i < call->input_count; ++i)
    if (call->inputs[i].dtype != TILEWISE_INT64 || extents(call->inputs[i]) != extents(x))
      return refuse(call, kFailed, "wants an int64 number for each element");
  for (int i = 1; i < call->output_count; ++i)
    if (call->outputs[i].dtype != TILEWISE_INT64 || extents(call->outputs[i]) != extents(out))
      return refuse(call, kFailed, "gives an int64 number for each element");
  const bool known = with_comparable(x.dtype, [&]<class T>(T) {
    for_each_line(x, axis, [&](const ir::Index& start) {
      std::vector<Numbered<T>> line;
      append(line, x, call->input_count > 1 ? &call->inputs[1] : nullptr, axis, start);
      put_in_order(line, p.descending != 0, call->output_count > 1);
      write(line, 0, call, axis, start);
    });
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", x.dtype);
}

int merge_split(const tilewise_call_v1* call) {
  ir::builtin::MergeSplit p;
  if (!read_params(call, p)) return kFailed;
  const int arrays = call->output_count, blocks = arrays == 0 ? 0 : call->input_count / arrays;
  const int axis = static_cast<int>(p.axis);
  bool good = (arrays == 1 || arrays == 2) && (blocks == 1 || blocks == 2) &&
              call->input_count == arrays * blocks && p.axis >= 0 && p.axis < call->outputs[0].rank;
  for (int i = 0; good && i < call->input_count; ++i) {
    const tilewise_view_v1 &in = call->inputs[i], &out = call->outputs[i / blocks];
    good = in.dtype == out.dtype && same_but_along(in, out, axis) &&
           (i < blocks || in.shape[axis] == call->inputs[i - blocks].shape[axis]);
  }
  if (good && arrays == 2)
    good = call->outputs[1].dtype == TILEWISE_INT64 && extents(call->outputs[1]) == extents(call->outputs[0]);
  if (good && blocks == 2)
    good = call->outputs[0].shape[axis] <= call->inputs[0].shape[axis] + call->inputs[1].shape[axis];
  if (!good) return refuse(call, kFailed, "wants one or two blocks of an array, and of its numbers");
  if (blocks == 1) {
    for (int i = 0; i < arrays; ++i) {
      if (extents(call->inputs[i]) != extents(call->outputs[i]))
        return refuse(call, kFailed, "a block alone is as long as its result");
      for_each(extents(call->outputs[i]),
               [&](const ir::Index& at) { copy_element(call->outputs[i], at, call->inputs[i], at); });
    }
    return 0;
  }
  const tilewise_view_v1 &x = call->inputs[0], &y = call->inputs[1], &out = call->outputs[0];
  const bool low = call->box_lo[axis] == x.lo[axis];
  const bool known = with_comparable(out.dtype, [&]<class T>(T) {
    for_each_line(out, axis, [&](const ir::Index& start) {
      std::vector<Numbered<T>> line;
      append(line, x, arrays == 2 ? &call->inputs[2] : nullptr, axis, start);
      append(line, y, arrays == 2 ? &call->inputs[3] : nullptr, axis, start);
      put_in_order(line, p.descending != 0, arrays == 2);
      write(line, low ? 0 : static_cast<std::int64_t>(line.size()) - out.shape[axis], call, axis, start);
    });
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", out.dtype);
}

}  // namespace tilewise::kernels::sort::reference
