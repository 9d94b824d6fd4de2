// sort_block and deal_sorted: the lines of one block, as keys (sort/keys.h).
#include <algorithm>
#include <cstddef>
#include <vector>

#include "call/builtin.h"
#include "sort/arguments.h"
#include "sort/lines.h"
#include "sort/sort.h"

namespace tilewise::kernels::sort {
namespace {

using namespace builtin;

// Where more than one in so many of a line is kept, it is sorted whole.
constexpr std::int64_t kMostSelected = 8;

// The line of each block of an array, one behind the other, as keys that are sorted; their number.
template <class By, class T>
std::int64_t sort_line(const std::vector<Line<const T>>& parts, typename By::Key* keys) {
  std::int64_t n = 0;
  for (const Line<const T>& part : parts) {
    part.template keys<By>(0, part.count, keys + n);
    n += part.count;
  }
  sort_keys(keys, n);
  return n;
}

// visit(line, sorted) for each line along `axis` of the array, which is in so many blocks, and of the result, whose views are
// given as of one rank.
template <class By, class T, class Visit>
void each_line(const tilewise_call_v1* call, int blocks, int axis, const tilewise_view_v1& out,
               const tilewise_view_v1& out_numbers, Visit&& visit) {
  const tilewise_view_v1* listed = By::kNumbered && call->input_count > 1 ? &call->inputs[1] : nullptr;
  std::vector<Line<const T>> parts(static_cast<std::size_t>(blocks));
  std::array<std::int64_t, TILEWISE_MAX_RANK> index{};
  const auto start = [&](const tilewise_view_v1& v) {
    std::int64_t at = 0;
    for (int d = 0; d < v.rank; ++d) at += index[static_cast<std::size_t>(d)] * v.strides[d];
    return at;
  };
  for_lines<2>({&out, &out_numbers}, axis, [&](const auto& at) {
    for (std::size_t b = 0; b < parts.size(); ++b) {
      const tilewise_view_v1& x = call->inputs[b];
      parts[b] = line_of<const T>(x, start(x), listed, listed == nullptr ? 0 : start(*listed), axis);
    }
    visit(parts, line_of<T>(out, at[0], By::kNumbered ? &out_numbers : nullptr, at[1], axis));
    for (int d = out.rank - 1; d >= 0; --d) {
      if (d == axis) continue;
      std::int64_t& i = index[static_cast<std::size_t>(d)];
      if (++i < out.shape[d]) break;
      i = 0;
    }
  });
}

// Room for keys: a thread's own, kept from call to call, since pages that are new each time cost a fifth of the sort; of large blocks the
// call's own.
template <class Key> class Room {
 public:
  explicit Room(std::int64_t count) {
    static_assert(alignof(Key) <= alignof(std::max_align_t));
    constexpr std::size_t kMostKept = (std::size_t{64} << 20) / sizeof(std::max_align_t);
    thread_local std::vector<std::max_align_t> kept;
    const std::size_t wanted = static_cast<std::size_t>(count) * sizeof(Key) / sizeof(std::max_align_t) + 1;
    std::vector<std::max_align_t>& memory = wanted > kMostKept ? own_ : kept;
    if (memory.size() < wanted) memory = std::vector<std::max_align_t>(wanted);
    keys_ = reinterpret_cast<Key*>(memory.data());
  }
  Key* keys() const { return keys_; }

 private:
  std::vector<std::max_align_t> own_;
  Key* keys_;
};

// Keys that select() wants room for.
constexpr std::int64_t room_to_select(std::int64_t kept) { return 2 * kept + 2 * kSkipped; }

// The first `kept` of a line in order, as keys. Only what may be among them is looked at more than once: most of a long line that is in no
// order is read at the speed of memory.
template <class By, class T>
void select(const Line<const T>& line, std::int64_t kept, typename By::Key* keys) {
  using Key = typename By::Key;
  const std::int64_t room = room_to_select(kept);
  std::int64_t count = 0;
  bool full = false;  // so many have been seen; others come before keys[kept - 1] or not at all
  const auto cut = [&] {
    sort_keys(keys, count);
    full = count >= kept;
    count = std::min(count, kept);
  };
  for (std::int64_t i = 0; i < line.count;) {
    const Key bar = full ? keys[kept - 1] : By::kLast;
    if (full && line.stride == 1)
      i += By::not_before(line.at + i, line.count - i, bar, line.numbers != nullptr);
    for (const std::int64_t end = std::min(line.count, i + kSkipped); i < end; ++i)
      if (const Key key = line.template key<By>(i); !full || less(key, bar)) keys[count++] = key;
    if (count > room - kSkipped) cut();
  }
  cut();
}

template <class By, class T> void sort_lines(const tilewise_call_v1* call, int axis) {
  using Key = typename By::Key;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const std::int64_t n = x.shape[axis], kept = out.shape[axis];
  const bool in_place = !By::kNumbered && n == kept && (out.strides[axis] == 1 || n == 1);
  const bool selects = By::kNumbered && kept > 0 && kept <= n / kMostSelected;
  const Room<Key> room(in_place ? 0 : selects ? room_to_select(kept) : n);
  each_line<By, T>(call, 1, axis, out, call->outputs[By::kNumbered ? 1 : 0],
                   [&](const std::vector<Line<const T>>& from, const Line<T>& to) {
                     Key* const keys = in_place ? reinterpret_cast<Key*>(to.at) : room.keys();
                     if constexpr (By::kNumbered) {
                       if (selects)
                         select<By>(from[0], kept, keys);
                       else
                         sort_line<By>(from, keys);
                     } else {
                       sort_line<By>(from, keys);
                     }
                     to.template set<By>(0, kept, keys);
                   });
}

template <class By, class T> void deal_lines(const tilewise_call_v1* call, const ir::builtin::DealSorted& p) {
  using Key = typename By::Key;
  const int axis = static_cast<int>(p.axis), others = call->inputs[0].rank - 1;
  const auto lines_of = [&](const tilewise_view_v1& v) { return with_line(v, others, others + 1, axis); };
  const tilewise_view_v1 out = lines_of(call->outputs[0]),
                         numbers = lines_of(call->outputs[By::kNumbered ? 1 : 0]);
  const std::int64_t all = out.shape[axis], length = all / p.columns;
  const Room<Key> room(all);
  Key* const keys = room.keys();
  each_line<By, T>(call, By::kNumbered ? 1 : call->input_count, axis, out, numbers,
                   [&](const std::vector<Line<const T>>& from, const Line<T>& to) {
                     const std::int64_t n = sort_line<By>(from, keys);
                     std::fill(keys + n, keys + all, By::kLast);
                     const Key* next = keys;
                     for (std::int64_t row = 0; row < length; row += p.card)
                       for (std::int64_t column = 0; column < p.columns; ++column, next += p.card)
                         to.template set<By>(column * length + row, column * length + row + p.card, next);
                   });
}

}  // namespace

int sort_block(const tilewise_call_v1* call) {
  ir::builtin::SortBlock p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  return with_order(call, p.descending != 0,
                    [&]<class By, class T>() { sort_lines<By, T>(call, static_cast<int>(p.axis)); });
}

int deal_sorted(const tilewise_call_v1* call) {
  ir::builtin::DealSorted p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  return with_order(call, p.descending != 0, [&]<class By, class T>() { deal_lines<By, T>(call, p); });
}

}  // namespace tilewise::kernels::sort
