// One matrix as BLAS reads it.
#pragma once
#include "launch.h"

namespace tilewise::cuda {

struct BlasMatrix {
  const void* data = nullptr;
  std::int64_t leading = 0;
  bool transposed = false;
};

// Where one dimension of a matrix has stride one and the other does not overlap.
bool readable(const TensorView& view, BlasMatrix& matrix);
// The same question to a plan: can a region of this view be such that it is not?
bool may_need_copy(const ir::View& view);

// Scratch for one operand beside others.
inline std::int64_t align_scratch(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace tilewise::cuda
