// Allocators that fail on request: memory of devices (memfds, emulated GPUs' too), of the host (operator new, and what C libraries
// ask for, while a step runs), pinned memory of emulated GPUs, room on disks (for bytes, reservations, sizes, files, folders, names,
// and for what is made durable) and reads from them (the files opened for that too). Linked into a test program, this replaces the C
// library's and C++'s own. Loaded into another program before everything else (LD_PRELOAD), it does so there, and the file that
// $REFUSALS names is what the two share.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tilewise {

// kDiskAsItIs: kDisk, where no file system can reserve room beforehand. kBlock: memory of the host of exactly kBlockBytes, where no
// step runs and not on the process's first thread. kThread: memory of the host for the thread `thread`.
enum class Allocator { kDevice, kHost, kDisk, kDiskAsItIs, kRead, kLibrary, kGpu, kPinned, kBlock, kThread };

constexpr std::size_t kBlockBytes = 33'000;  // nothing else is so large

struct Refusals {
  std::atomic<int> armed{-1};         // an Allocator, or none
  std::atomic<std::int64_t> left{0};  // requests until the one that fails
  std::atomic<std::int64_t> seen{0};
  std::atomic<int> thread{0};  // a process's first has the process's number

  // From now on the k-th request fails (the first is 1), the others go through.
  void refuse(Allocator which, std::int64_t k) {
    left = k;
    seen = 0;
    armed = static_cast<int>(which);
  }
  // None fails any more. How many there were.
  std::int64_t allow() {
    armed = -1;
    return seen;
  }
};

// This process's.
void refuse(Allocator which, std::int64_t k);
std::int64_t allow();

}  // namespace tilewise
