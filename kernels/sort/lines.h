// Lines of values, and of their numbers, in the views of a call.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "call/builtin.h"
#include "sort/keys.h"

namespace tilewise::kernels::sort {

template <class T> struct Line {
  using Number = std::conditional_t<std::is_const_v<T>, const std::int64_t, std::int64_t>;
  T* at = nullptr;
  std::int64_t count = 0, stride = 1;
  Number* numbers = nullptr;  // null: positions from `first` on, or none are wanted
  std::int64_t numbers_stride = 1, first = 0;

  T operator[](std::int64_t i) const { return at[i * stride]; }
  std::int64_t number(std::int64_t i) const {
    return numbers == nullptr ? first + i : numbers[i * numbers_stride];
  }
  template <class By> typename By::Key key(std::int64_t i) const {
    return By::key((*this)[i], By::kNumbered ? number(i) : 0);
  }
  Line part(std::int64_t begin, std::int64_t end) const {
    Line some = *this;
    some.at += begin * stride;
    if (numbers != nullptr) some.numbers += begin * numbers_stride;
    some.first += begin;
    some.count = end - begin;
    return some;
  }
  // The first of [from, to) that is not before the key, or `to`; of a line that is not sorted, some element.
  template <class By, class Before>
  std::int64_t first_not(std::int64_t from, std::int64_t to, const typename By::Key& of,
                         Before before) const {
    while (from < to) {
      const std::int64_t middle = from + (to - from) / 2;
      if (before(key<By>(middle), of))
        from = middle + 1;
      else
        to = middle;
    }
    return from;
  }
  // Where the run ends that begins there.
  template <class By> std::int64_t sorted_until(std::int64_t begin) const {
    if constexpr (!By::kNumbered)
      if (stride == 1) return begin + By::sorted_until(at + begin, count - begin);
    for (std::int64_t i = begin + 1; i < count; ++i)
      if (less(key<By>(i), key<By>(i - 1))) return i;
    return count;
  }
  // Keys of elements [begin, end), and back.
  template <class By> void keys(std::int64_t begin, std::int64_t end, typename By::Key* to) const {
    if constexpr (!By::kNumbered)
      if (stride == 1) return By::keys(at + begin, to, end - begin);
    for (std::int64_t i = begin; i < end; ++i) *to++ = By::key((*this)[i], By::kNumbered ? number(i) : 0);
  }
  template <class By> void set(std::int64_t begin, std::int64_t end, const typename By::Key* from) const {
    if constexpr (!By::kNumbered)
      if (stride == 1) return By::values(from, at + begin, end - begin);
    for (std::int64_t i = begin; i < end; ++i, ++from) {
      at[i * stride] = By::value(*from);
      if constexpr (By::kNumbered) numbers[i * numbers_stride] = By::number(*from);
    }
  }
  // Elements [begin, begin + n) of another line to `to` on.
  void copy(std::int64_t to, const Line<const T>& from, std::int64_t begin, std::int64_t n) const {
    if (stride == 1 && from.stride == 1)
      std::copy_n(from.at + begin, n, at + to);
    else
      for (std::int64_t i = 0; i < n; ++i) at[(to + i) * stride] = from[begin + i];
    if (numbers != nullptr)
      for (std::int64_t i = 0; i < n; ++i) numbers[(to + i) * numbers_stride] = from.number(begin + i);
  }
};

// Line `offset` elements into a view along its dimension `axis`, with its numbers in another view, if any.
template <class T>
Line<T> line_of(const tilewise_view_v1& values, std::int64_t offset, const tilewise_view_v1* numbers,
                std::int64_t numbers_offset, int axis) {
  Line<T> line{static_cast<T*>(values.data) + offset, values.shape[axis], values.strides[axis]};
  line.first = values.lo[axis];
  if (numbers != nullptr) {
    line.numbers = static_cast<typename Line<T>::Number*>(numbers->data) + numbers_offset;
    line.numbers_stride = numbers->strides[axis];
  }
  return line;
}

// The first `others` dimensions of a view, with its dimension `line` among them at `axis`.
inline tilewise_view_v1 with_line(const tilewise_view_v1& view, int others, int line, int axis) {
  tilewise_view_v1 seen = view;
  seen.rank = others + 1;
  const auto take = [&](int to, int from) {
    seen.shape[to] = view.shape[from];
    seen.strides[to] = view.strides[from];
    seen.lo[to] = view.lo[from];
  };
  for (int d = 0; d < others; ++d) take(d < axis ? d : d + 1, d);
  take(axis, line);
  return seen;
}

// visit(lines of all pieces, line) for each line along `axis` of a result that is made of pieces: those lines of their last dimensions
// that stand at the same place of the other dimensions. Views of the result have these and the axis.
template <class By, class T, class Visit>
void each_result(const tilewise_call_v1* call, int axis, const tilewise_view_v1& out,
                 const tilewise_view_v1& out_numbers, Visit&& visit) {
  const int others = out.rank - 1, count = call->input_count / call->output_count;
  std::vector<Line<const T>> lines;
  std::array<std::int64_t, TILEWISE_MAX_RANK> index{};
  const auto start = [&](const tilewise_view_v1& v, std::int64_t row) {
    std::int64_t at = row * v.strides[others];
    for (int d = 0; d < others; ++d) at += index[static_cast<std::size_t>(d)] * v.strides[d];
    return at;
  };
  builtin::for_lines<2>({&out, &out_numbers}, axis, [&](const auto& at) {
    lines.clear();
    for (int b = 0; b < count; ++b) {
      const tilewise_view_v1 &values = call->inputs[b],
                             *numbers = By::kNumbered ? &call->inputs[count + b] : nullptr;
      for (std::int64_t r = 0; r < values.shape[others]; ++r)
        lines.push_back(line_of<const T>(values, start(values, r), numbers,
                                         numbers == nullptr ? 0 : start(*numbers, r), others + 1));
    }
    visit(lines, line_of<T>(out, at[0], By::kNumbered ? &out_numbers : nullptr, at[1], axis));
    for (int d = others - 1; d >= 0; --d) {
      std::int64_t& i = index[static_cast<std::size_t>(d)];
      if (++i < out.shape[d < axis ? d : d + 1]) break;
      i = 0;
    }
  });
}

// run<By, T>() for a call's dtype and what it sorts by; an error for a dtype that has no order.
template <class Run> int with_order(const tilewise_call_v1* call, bool descending, Run&& run) {
  const std::int32_t dtype = call->outputs[0].dtype;
  const bool known = with_ordered(dtype, [&]<class T>(T) {
    if (call->output_count == 1)
      descending ? run.template operator()<Values<T, true>, T>()
                 : run.template operator()<Values<T, false>, T>();
    else
      descending ? run.template operator()<NumberedValues<T, true>, T>()
                 : run.template operator()<NumberedValues<T, false>, T>();
  });
  return known ? 0 : builtin::refuse(call, builtin::kFailed, "dtype %d has no order", dtype);
}

}  // namespace tilewise::kernels::sort
