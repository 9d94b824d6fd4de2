#include "nvtx_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace tilewise::cuda {

bool NvtxRange::built_in() { return true; }

// Both names end with a zero: labels are strings, names of kinds are literals.
NvtxRange::NvtxRange(const ir::Op& op) {
  nvtxRangePushA(op.label.empty() ? ir::name_of(op.kind).data() : op.label.c_str());
}
NvtxRange::~NvtxRange() { nvtxRangePop(); }

}  // namespace tilewise::cuda

#else

namespace tilewise::cuda {

bool NvtxRange::built_in() { return false; }
NvtxRange::NvtxRange(const ir::Op&) {}
NvtxRange::~NvtxRange() = default;

}  // namespace tilewise::cuda

#endif
