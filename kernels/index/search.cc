// searchsorted: each step adds how many elements of its block come before.
#include "call/builtin.h"
#include "index/index.h"
#include "sort/keys.h"

namespace tilewise::kernels::index {
namespace {

using namespace builtin;

// Elements of the block before `v` (right: or equal), by halving; `blocks` has NaN last.
template <class T> std::int64_t before(const tilewise_view_v1& block, T v, bool right) {
  using Order = sort::Order<T, false>;
  const T* at = static_cast<const T*>(block.data);
  const auto key = Order::equal_key(v);
  std::int64_t lo = 0, hi = block.shape[0];
  while (lo < hi) {
    const std::int64_t middle = lo + (hi - lo) / 2;
    const auto other = Order::equal_key(at[middle * block.strides[0]]);
    if (right ? other <= key : other < key)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo;
}

}  // namespace

int searchsorted(const tilewise_call_v1* call) {
  ir::builtin::SearchSorted p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &v = call->inputs[0], &sorted = call->inputs[1], &out = call->outputs[0];
  auto* counts = static_cast<std::int64_t*>(out.data);
  if (out.dtype != TILEWISE_INT64) return refuse(call, kFailed, "gives int64");
  if (call->step == 0) std::fill_n(counts, volume(out), std::int64_t{0});
  if (v.data == nullptr || sorted.data == nullptr) return 0;
  if (sorted.rank != 1 || sorted.dtype != v.dtype || !same_lines({&v, &out}, -1))
    return refuse(call, kFailed, "wants a sorted vector and values of one dtype");
  const bool known = sort::with_ordered(v.dtype, [&]<class T>(T) {
    for_lines<2>({&v, &out}, v.rank - 1, [&](const auto& start) {
      const std::int64_t n = v.rank == 0 ? 1 : v.shape[v.rank - 1],
                         step = v.rank == 0 ? 0 : v.strides[v.rank - 1];
      for (std::int64_t j = 0; j < n; ++j)
        counts[start[1] + j] +=
            before(sorted, static_cast<const T*>(v.data)[start[0] + j * step], p.right != 0);
    });
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", v.dtype);
}

}  // namespace tilewise::kernels::index
