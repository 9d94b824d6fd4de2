// A range of NVTX, which Nsight Systems and others show beside what the GPU does: from here to the end of the scope, named
// by the op that is being enqueued. Costs some nanoseconds where no tool listens, and nothing is done where the toolkit has
// no header for it.
#pragma once
#include <tilewise/ir/op.h>

namespace tilewise::cuda {

class NvtxRange {
 public:
  static bool built_in();  // the toolkit had the header

  explicit NvtxRange(const ir::Op& op);  // which outlives it
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace tilewise::cuda
