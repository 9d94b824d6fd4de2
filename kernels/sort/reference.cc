// The plain versions: the elements of a line, each with its number, ordered by the C++ library's stable sort and a
// comparison that says what the order is. Shares nothing with the fast ones but what is refused (sort/arguments.h).
#include <algorithm>
#include <limits>
#include <vector>

#include "call/builtin.h"
#include "call/plain.h"
#include "sort/arguments.h"
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

// What no element comes after, and its number.
template <class T> T last(bool descending) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_floating_point_v<T>) return Limits::quiet_NaN();
  return descending ? Limits::lowest() : Limits::max();
}
constexpr std::int64_t kLastNumber = std::numeric_limits<std::int64_t>::max();

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

}  // namespace

int sort_block(const tilewise_call_v1* call) {
  ir::builtin::SortBlock p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  const tilewise_view_v1& x = call->inputs[0];
  const int axis = static_cast<int>(p.axis);
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

int deal_sorted(const tilewise_call_v1* call) {
  ir::builtin::DealSorted p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  const bool numbered = call->output_count > 1;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  const std::int64_t all = out.shape[out.rank - 1], length = all / p.columns;
  const bool known = with_comparable(x.dtype, [&]<class T>(T) {
    for_each_line(x, axis, [&](const ir::Index& start) {
      std::vector<Numbered<T>> line;
      for (int i = 0; i < (numbered ? 1 : call->input_count); ++i)
        append(line, call->inputs[i], numbered && call->input_count > 1 ? &call->inputs[1] : nullptr, axis,
               start);
      put_in_order(line, p.descending != 0, numbered);
      line.resize(static_cast<std::size_t>(all), {last<T>(p.descending != 0), kLastNumber});
      ir::Index at = start;
      at.erase(at.begin() + axis);
      at.push_back(0);
      at.push_back(0);
      for (std::int64_t i = 0; i < all; ++i) {
        const std::int64_t card = i / p.card;
        at.back() = card % p.columns * length + card / p.columns * p.card + i % p.card;
        element<T>(out, at) = line[static_cast<std::size_t>(i)].value;
        if (numbered) element<std::int64_t>(call->outputs[1], at) = line[static_cast<std::size_t>(i)].number;
      }
    });
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", x.dtype);
}

namespace {

// The lines of all pieces that belong to the result's line that begins at `at`, an index of their other dimensions.
template <class T> std::vector<std::vector<Numbered<T>>> pieces(const tilewise_call_v1* call, ir::Index at) {
  const std::size_t others = at.size();
  const int count = call->input_count / call->output_count;
  std::vector<std::vector<Numbered<T>>> lines;
  at.push_back(0);
  at.push_back(0);
  for (int b = 0; b < count; ++b)
    for (at[others] = 0; at[others] < call->inputs[b].shape[others]; ++at[others])
      append(lines.emplace_back(), call->inputs[b],
             call->output_count == 2 ? &call->inputs[count + b] : nullptr, static_cast<int>(others) + 1, at);
  return lines;
}

}  // namespace

// Of runs in their order, each element that is of the ranks.
int split_runs(const tilewise_call_v1* call) {
  ir::builtin::SplitRuns p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  const tilewise_view_v1& out = call->outputs[0];
  const int axis = out.rank - 1;
  const bool numbered = call->output_count == 2, descending = p.descending != 0;
  const bool known = with_comparable(out.dtype, [&]<class T>(T) {
    for_each_line(out, axis, [&](const ir::Index& start) {
      ir::Index others = start;
      others.resize(start.size() - 2);
      struct Ranked {
        Numbered<T> x;
        std::size_t place;
      };
      std::vector<Ranked> all;
      for (const std::vector<Numbered<T>>& run : pieces<T>(call, others))
        for (const Numbered<T>& x : run) all.push_back({x, all.size()});
      // Of equal ones the first: so a window's elements are found, though not in which run each of several equal ones.
      std::stable_sort(all.begin(), all.end(), [&](const Ranked& a, const Ranked& b) {
        if (before(a.x.value, b.x.value, descending, !numbered)) return true;
        if (before(b.x.value, a.x.value, descending, !numbered)) return false;
        return numbered && a.x.number < b.x.number;
      });
      const std::int64_t lo = p.windows.lo(out.lo[axis] / p.windows.width);
      std::vector<Ranked> wanted(all.begin() + lo, all.begin() + lo + out.shape[axis]);
      std::ranges::sort(wanted, {}, &Ranked::place);
      std::vector<Numbered<T>> line;
      for (const Ranked& each : wanted) line.push_back(each.x);
      write(line, 0, call, axis, start);
    });
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", out.dtype);
}

int merge_runs(const tilewise_call_v1* call) {
  ir::builtin::MergeRuns p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  const int axis = static_cast<int>(p.axis);
  const tilewise_view_v1& out = call->outputs[0];
  const bool known = with_comparable(out.dtype, [&]<class T>(T) {
    for_each_line(out, axis, [&](const ir::Index& start) {
      ir::Index others = start;
      others.erase(others.begin() + axis);
      std::vector<Numbered<T>> line;
      for (const std::vector<Numbered<T>>& piece : pieces<T>(call, others))
        line.insert(line.end(), piece.begin(), piece.end());
      put_in_order(line, p.descending != 0, call->output_count == 2);
      write(line, p.skipped(out.lo[axis]), call, axis, start);
    });
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", out.dtype);
}

}  // namespace tilewise::kernels::sort::reference
