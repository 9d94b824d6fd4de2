// A range of NVTX, which Nsight Systems and others show beside what the GPU does: from here to the end of the scope, named
// by the op that is being enqueued. Costs some nanoseconds where no tool listens, and nothing where the toolkit has no
// header for it.
#pragma once
#include <tilewise/ir/op.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TILEWISE_NVTX 1
#endif

namespace tilewise::cuda {

class NvtxRange {
 public:
#ifdef TILEWISE_NVTX
  // Both live as long as the range, and end with a zero: labels are strings, names of kinds are literals.
  explicit NvtxRange(const ir::Op& op) {
    nvtxRangePushA(op.label.empty() ? ir::name_of(op.kind).data() : op.label.c_str());
  }
  ~NvtxRange() { nvtxRangePop(); }
#else
  explicit NvtxRange(const ir::Op&) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace tilewise::cuda
