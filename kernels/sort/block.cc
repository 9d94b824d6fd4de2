// sort_block: the lines of one block. Keys alone, or keys with their elements' numbers as the low half of 128 bits: so
// equal elements come in the order of their numbers, which is what makes the order stable.
#include <hwy/contrib/sort/vqsort.h>

#include <algorithm>
#include <vector>

#include "call/builtin.h"
#include "sort/keys.h"
#include "sort/sort.h"

namespace tilewise::kernels::sort {
namespace {

using namespace builtin;

// Below this the vectorised sort's set-up costs more than it saves.
constexpr std::int64_t kShort = 64;

bool less(const hwy::uint128_t& a, const hwy::uint128_t& b) {
  return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}

void sort_keys(std::uint8_t* keys, std::int64_t n) {  // a histogram: there are only so many
  std::array<std::int64_t, 256> counts{};
  for (std::int64_t i = 0; i < n; ++i) ++counts[keys[i]];
  for (std::size_t k = 0; k < counts.size(); ++k)
    keys = std::fill_n(keys, counts[k], static_cast<std::uint8_t>(k));
}
template <class Key> void sort_keys(Key* keys, std::int64_t n) {
  if (n < kShort)
    std::sort(keys, keys + n);
  else
    hwy::Sorter()(keys, static_cast<std::size_t>(n), hwy::SortAscending());
}
void sort_keys(hwy::uint128_t* keys, std::int64_t n) {
  if (n < kShort)
    std::sort(keys, keys + n, less);
  else
    hwy::Sorter()(keys, static_cast<std::size_t>(n), hwy::SortAscending());
}

template <class T, bool kDescending> void values(const tilewise_call_v1* call, int axis) {
  using Order = sort::Order<T, kDescending>;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  using Key = typename Order::Key;
  const std::int64_t n = x.shape[axis], kept = out.shape[axis];
  const bool in_place = n == kept && (out.strides[axis] == 1 || n == 1);
  std::vector<Key> own(in_place ? 0 : static_cast<std::size_t>(n));
  for_lines<2>({&x, &out}, axis, [&](const auto& at) {
    const T* from = static_cast<const T*>(x.data) + at[0];
    T* to = static_cast<T*>(out.data) + at[1];
    Key* keys = in_place ? reinterpret_cast<Key*>(to) : own.data();
    for (std::int64_t i = 0; i < n; ++i) keys[i] = Order::key(from[i * x.strides[axis]]);
    sort_keys(keys, n);
    for (std::int64_t i = 0; i < kept; ++i) to[i * out.strides[axis]] = Order::value(keys[i]);
  });
}

// Numbers of the elements of a line: listed, or their positions from `first`.
struct Numbers {
  const std::int64_t* at;
  std::int64_t stride, first;
  std::int64_t operator[](std::int64_t i) const { return at == nullptr ? first + i : at[i * stride]; }
};

template <class T, bool kDescending> void numbered(const tilewise_call_v1* call, int axis) {
  using Order = sort::Order<T, kDescending>;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0], &where = call->outputs[1];
  const bool listed = call->input_count > 1;
  const tilewise_view_v1& given = call->inputs[listed ? 1 : 0];
  const std::int64_t n = x.shape[axis], kept = out.shape[axis];
  std::vector<hwy::uint128_t> pairs(static_cast<std::size_t>(n));
  for_lines<4>({&x, &out, &where, &given}, axis, [&](const auto& at) {
    const T* from = static_cast<const T*>(x.data) + at[0];
    T* to = static_cast<T*>(out.data) + at[1];
    std::int64_t* numbers = static_cast<std::int64_t*>(where.data) + at[2];
    const Numbers number{listed ? static_cast<const std::int64_t*>(given.data) + at[3] : nullptr,
                         given.strides[axis], x.lo[axis]};
    // The low half: position in the line, which keeps -0 and NaN's bits at hand; numbers rise with it, or are listed.
    if (!listed) {
      for (std::int64_t i = 0; i < n; ++i) {
        pairs[static_cast<std::size_t>(i)].hi = Order::equal_key(from[i * x.strides[axis]]);
        pairs[static_cast<std::size_t>(i)].lo = static_cast<std::uint64_t>(i);
      }
      sort_keys(pairs.data(), n);
    } else {
      for (std::int64_t i = 0; i < n; ++i)
        pairs[static_cast<std::size_t>(i)].lo = static_cast<std::uint64_t>(i);
      for (std::int64_t i = 0; i < n; ++i)
        pairs[static_cast<std::size_t>(i)].hi = Order::equal_key(from[i * x.strides[axis]]);
      std::sort(pairs.begin(), pairs.end(), [&](const hwy::uint128_t& a, const hwy::uint128_t& b) {
        if (a.hi != b.hi) return a.hi < b.hi;
        return number[static_cast<std::int64_t>(a.lo)] < number[static_cast<std::int64_t>(b.lo)];
      });
    }
    for (std::int64_t i = 0; i < kept; ++i) {
      const auto from_at = static_cast<std::int64_t>(pairs[static_cast<std::size_t>(i)].lo);
      to[i * out.strides[axis]] = from[from_at * x.strides[axis]];
      numbers[i * where.strides[axis]] = number[from_at];
    }
  });
}

}  // namespace

int sort_block(const tilewise_call_v1* call) {
  ir::builtin::SortBlock p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (call->input_count < 1 || p.axis < 0 || p.axis >= x.rank || !same_lines({&x, &out}, axis) ||
      x.dtype != out.dtype || out.shape[axis] > x.shape[axis])
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  for (int i = 1; i < call->input_count; ++i)
    if (call->inputs[i].dtype != TILEWISE_INT64 || !same_lines({&x, &call->inputs[i]}, -1))
      return refuse(call, kFailed, "wants an int64 number for each element");
  for (int i = 1; i < call->output_count; ++i)
    if (call->outputs[i].dtype != TILEWISE_INT64 || !same_lines({&out, &call->outputs[i]}, -1))
      return refuse(call, kFailed, "gives an int64 number for each element");
  const bool known = with_ordered(x.dtype, [&]<class T>(T) {
    if (call->output_count == 1)
      p.descending ? values<T, true>(call, axis) : values<T, false>(call, axis);
    else
      p.descending ? numbered<T, true>(call, axis) : numbered<T, false>(call, axis);
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", x.dtype);
}

}  // namespace tilewise::kernels::sort
