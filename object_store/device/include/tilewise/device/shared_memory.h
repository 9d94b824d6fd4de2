// Host memory that other processes of the host can map: a sealed memfd.
#pragma once
#include <tilewise/device/device.h>

#include <string>

namespace tilewise::device {

// `name` is what /proc shows. `huge_pages`: where the system allows. kOutOfMemory, or kLimitExceeded for want of a file
// descriptor, naming the call that failed.
Result<Slab> map_shared(const std::string& name, std::int64_t bytes, bool huge_pages);
void unmap_shared(const Slab& slab);

}  // namespace tilewise::device
