// Which indices fall into a block, once per Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "index/lanes_pick.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "index/pick.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::index {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<std::int64_t>;

void within(const std::int64_t* index, std::int64_t n, std::int64_t first, std::int64_t extent,
            std::int64_t lo, std::int64_t length, Picks& picks) {
  const Lanes d;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  const auto extents = hn::Set(d, extent), los = hn::Set(d, lo), ends = hn::Set(d, lo + length);
  std::int64_t j = 0, count = 0;
  for (; j + width <= n; j += width) {
    auto i = hn::LoadU(d, index + j);
    i = hn::Add(i, hn::And(hn::BroadcastSignBit(i), extents));
    const auto in = hn::AndNot(hn::Lt(i, los), hn::Lt(i, ends));
    if (hn::AllFalse(d, in)) continue;
    std::int64_t* const which = &picks.which[static_cast<std::size_t>(count)];
    std::int64_t* const where = &picks.where[static_cast<std::size_t>(count)];
    if (hn::AllTrue(d, in)) {
      hn::StoreU(hn::Iota(d, first + j), d, which);
      hn::StoreU(hn::Sub(i, los), d, where);
      count += width;
    } else {
      hn::CompressStore(hn::Iota(d, first + j), in, d, which);
      count += static_cast<std::int64_t>(hn::CompressStore(hn::Sub(i, los), in, d, where));
    }
  }
  for (; j < n; ++j) {
    const std::int64_t i = index[j] < 0 ? index[j] + extent : index[j];
    if (i < lo || i >= lo + length) continue;
    picks.which[static_cast<std::size_t>(count)] = first + j;
    picks.where[static_cast<std::size_t>(count++)] = i - lo;
  }
  picks.count = count;
}

bool all_valid(const std::int64_t* index, std::int64_t n, std::int64_t extent) {
  const Lanes d;
  const auto width = static_cast<std::int64_t>(hn::Lanes(d));
  auto least = hn::Zero(d), most = hn::Set(d, -1);
  std::int64_t j = 0;
  for (; j + width <= n; j += width) {
    const auto i = hn::LoadU(d, index + j);
    least = hn::Min(least, i);
    most = hn::Max(most, i);
  }
  bool valid =
      hn::AllFalse(d, hn::Lt(least, hn::Set(d, -extent))) && hn::AllTrue(d, hn::Lt(most, hn::Set(d, extent)));
  for (; j < n; ++j) valid &= index[j] >= -extent && index[j] < extent;
  return valid;
}

PickFns find() { return {within, all_valid}; }

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::index
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::index {
HWY_EXPORT(find);
const PickFns& pick_fns() {
  static const PickFns found = HWY_DYNAMIC_DISPATCH(find)();
  return found;
}
}  // namespace tilewise::kernels::index
#endif
