// How a block's elements map to the outputs of a reduction: a function of shape and axes only.
//
// Neighbouring dimensions that are both kept or both reduced merge, extents of one vanish. What remains alternates:
//
//     [outer groups ...] [length: reduced] [n: kept, or 1]
//
// A *unit* is one innermost matrix of `length` rows of `n` elements, contiguous in C order. Units of one output are
// visited in C order of the outer reduced groups.
#pragma once
#include <tilewise/ir/shape.h>

namespace tilewise::kernels::reduce {

struct Layout {
  std::int64_t length = 1, n = 1;
  ir::Shape kept, reduced;                    // outer groups' extents
  ir::Strides kept_strides, reduced_strides;  // in units
  std::int64_t outputs = 1;                   // product of kept: outputs are n-wide rows
  std::int64_t repeats = 1;                   // product of reduced: units per output

  std::int64_t unit_size() const { return length * n; }
  // Units of consecutive outputs are adjacent in C order.
  bool sequential() const { return repeats == 1; }
  // Number of unit `repeat` of output row `output`.
  std::int64_t unit(std::int64_t output, std::int64_t repeat) const {
    std::int64_t at = 0;
    for (std::size_t d = kept.size(); d-- > 0;) {
      at += output % kept[d] * kept_strides[d];
      output /= kept[d];
    }
    for (std::size_t d = reduced.size(); d-- > 0;) {
      at += repeat % reduced[d] * reduced_strides[d];
      repeat /= reduced[d];
    }
    return at;
  }
};

inline Layout layout_of(const ir::Shape& shape, std::uint32_t axes) {
  struct Group {
    std::int64_t extent;
    bool reduced;
  };
  boost::container::static_vector<Group, limits::kMaxRank> groups;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const bool reduced = (axes >> d & 1) != 0;
    if (!groups.empty() && groups.back().reduced == reduced)
      groups.back().extent *= shape[d];
    else
      groups.push_back({shape[d], reduced});
  }
  Layout out;
  if (!groups.empty() && !groups.back().reduced) {
    out.n = groups.back().extent;
    groups.pop_back();
  }
  if (!groups.empty()) {
    out.length = groups.back().extent;
    groups.pop_back();
  }
  ir::Strides strides;
  strides.resize(groups.size());
  std::int64_t stride = 1;
  for (std::size_t g = groups.size(); g-- > 0;) {
    strides[g] = stride;
    stride *= groups[g].extent;
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    (groups[g].reduced ? out.reduced : out.kept).push_back(groups[g].extent);
    (groups[g].reduced ? out.reduced_strides : out.kept_strides).push_back(strides[g]);
    (groups[g].reduced ? out.repeats : out.outputs) *= groups[g].extent;
  }
  return out;
}

}  // namespace tilewise::kernels::reduce
