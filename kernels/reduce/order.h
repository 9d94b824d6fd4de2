// The order of sums inside a block, as host.cc states it, beside the widths in fold.h. Moments keep to it, so that their sum is the sum.
#pragma once
#include "reduce/fold.h"
#include "reduce/layout.h"

namespace tilewise::kernels::reduce {

constexpr std::int64_t kNarrow = 32;  // rows shorter than this are folded sixteen at a time
constexpr std::int64_t kShort = 16;   // ... unless there are no more than this

inline bool folds_rows(const Layout& layout) { return layout.n < kNarrow && layout.length > kShort; }

}  // namespace tilewise::kernels::reduce
