#include "alignment.h"

#include <tilewise/ir/geometry.h>

#include <algorithm>

namespace tilewise::ir {

bool spans_aligned(const Walk& walk, const DimGrid& space, const DimMap& map) {
  if (walk.count() <= 1 || space.count() == 0) return true;
  if (map.mul == map.div && map.before == 0 && map.after == 0 && space.extent() == walk.extent())
    return aligned(walk, space);
  const bool listable = std::min(space.count(), walk.count()) <= limits::kMaxExplicitCuts;
  if (!listable) return false;  // windows that overlap meet every cut; shifts of so many blocks are gathered
  const auto clipped = [&](std::int64_t i) {
    std::int64_t lo = space.begin(i), hi = space.end(i);
    apply_span(map, lo, hi);
    return std::pair(std::max<std::int64_t>(lo, 0), std::min(hi, walk.extent()));
  };
  if (space.count() <= limits::kMaxExplicitCuts) {
    for (std::int64_t i = 0; i < space.count(); ++i) {
      const auto [lo, hi] = clipped(i);
      if (lo < hi && walk.part_of(lo) != walk.part_of(hi - 1)) return false;
    }
    return true;
  }
  // Regions move up with their points: those that meet a cut are found by bisection.
  for (std::int64_t p = 1; p < walk.count(); ++p) {
    const std::int64_t cut = walk.begin(p);
    std::int64_t lo = 0, hi = space.count();  // first point whose region ends behind the cut
    while (lo < hi) {
      const std::int64_t mid = lo + (hi - lo) / 2;
      if (clipped(mid).second > cut)
        hi = mid;
      else
        lo = mid + 1;
    }
    if (lo < space.count() && clipped(lo).first < cut) return false;
  }
  return true;
}

}  // namespace tilewise::ir
