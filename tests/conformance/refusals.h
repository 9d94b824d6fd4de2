// Allocators of this process that fail on request: memory of devices (memfds), of the host (operator new, while a step runs), room
// on disks (pwrite) and reads from them. Linked into a test program, this replaces the C library's and C++'s own.
#pragma once
#include <atomic>
#include <cstdint>

namespace tilewise {

enum class Allocator { kDevice, kHost, kDisk, kRead };

// From now on the k-th request fails (the first is 1), the others go through.
void refuse(Allocator which, std::int64_t k);
// None fails any more. How many there were.
std::int64_t allow();

}  // namespace tilewise
