// Which regions lie in one part: shared by Geometry::make, which refuses the others, and lower(), which gathers them.
#pragma once
#include <tilewise/ir/op.h>
#include <tilewise/ir/walk.h>

namespace tilewise::ir {

// Does the region of every block of `space` under `map` (kSpan, with its window and scale) lie in one part of `walk`?
bool spans_aligned(const Walk& walk, const DimGrid& space, const DimMap& map);

}  // namespace tilewise::ir
