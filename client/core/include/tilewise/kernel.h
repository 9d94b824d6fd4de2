// User kernels: functions of plug-ins that every worker has loaded, called on blocks. No code travels; a kernel is
// named, and what the scheduler must know of it is data.
#pragma once
#include <tilewise/array.h>

#include <utility>

namespace tilewise {

struct Kernel {
  std::string name;
  std::string version = {};        // empty: whatever the workers agreed on
  std::string params = {};         // opaque to all but the kernel; up to 64 KiB
  double flops_per_point = 0;      // of one call
  std::int64_t scratch_bytes = 0;  // device memory one call needs beyond its inputs and outputs
};

struct OutputLike {
  DType dtype = DType::kFloat64;
  Grid grid;
};

// Calls the kernel once for each block of `outputs[0].grid`; all outputs have the same block counts. maps[i] says what
// a call reads of arrays[i] (ir::DimMap: spans, windows, whole dimensions); empty: the block with the same place,
// which needs arrays of the outputs' extents.
std::vector<Array> map_blocks(const Kernel& kernel, std::span<const Array> arrays,
                              std::vector<ir::OperandMap> maps, const std::vector<OutputLike>& outputs);

struct BlockRef {
  Array array;             // whole, not a view
  std::int64_t block = 0;  // C-order number
};

// A graph of one's own: which blocks of an array each call reads. blocks[p] are those of the call that makes block p
// (C-order number) of the outputs; up to 64 blocks a call over all arrays.
struct BlockLists {
  Array array;  // whole, not a view
  std::vector<std::vector<std::int64_t>> blocks;
};

// One call for each block of `outputs[0].grid`, on listed blocks. The kernel's inputs are the blocks of inputs[0] in the
// order of their list, then those of inputs[1] ..., so their number may differ from call to call. kOutOfRange for blocks
// that are not there, kInvalidArgument where a list is missing, kLimitExceeded for too many.
std::vector<Array> map_blocks(const Kernel& kernel, const std::vector<BlockLists>& inputs,
                              const std::vector<OutputLike>& outputs);

// One call on any blocks of any arrays: the kernel's inputs, in this order. The output is one block. Errors as above.
Array task(const Kernel& kernel, const std::vector<BlockRef>& refs, DType dtype, const Shape& shape);

}  // namespace tilewise
