// The threads of a grid, one after the other. Where a program has barriers, each thread of a block is a fiber that runs to
// the next one; blocks, and threads between barriers, take turns in an order that changes from launch to launch, so
// that a missing barrier, or a block that counts on another, shows.
#pragma once
#include "entry.h"

#include <cstdint>

namespace tilewise::emulated {

struct Grid {
  unsigned blocks[3] = {1, 1, 1};
  unsigned threads[3] = {1, 1, 1};  // 1024 in all
};

// Runs one kernel to its end; callers take turns.
void run_grid(const EmulatedEntry& entry, bool has_barriers, const void* parameters, const Grid& grid);

constexpr unsigned kMostThreads = 1024;

}  // namespace tilewise::emulated
