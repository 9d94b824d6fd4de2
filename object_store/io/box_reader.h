// Reads a box with few and large system calls.
#pragma once
#include <tilewise/base/file.h>
#include "file_box.h"

namespace tilewise::io {

struct ReadTuning {
  // Elements nearer than this in the file are read together and the gap thrown away: about what a system call costs.
  std::int64_t max_gap_bytes = 8 << 10;
  // The memory for reading together.
  std::int64_t staging_bytes = 4 << 20;
  // Contiguous runs from this size on go straight to the block.
  std::int64_t direct_bytes = 64 << 10;
};

// Returns the number of reads, for tests.
Result<std::int64_t> read_box(const File& file, const FileBox& box, std::byte* block,
                              const ReadTuning& tuning);

// Bytes of a file as bools: a C++ bool that is neither 0 nor 1 would make kernels misbehave.
void normalise_bools(void* block, std::int64_t elements);

}  // namespace tilewise::io
