// Sizes of this machine's caches, as its system tells them.
#pragma once
#include <cstdint>
#include <filesystem>

namespace tilewise::kernels {

// Of the third-level cache that the first processor has, in bytes; 32 MiB where none is told of. At most 8 MiB for each of the
// processors that share it: virtual machines are told of the whole cache of a socket whose other processors are not theirs.
std::int64_t last_cache_bytes();
// The same as told by this folder, `/sys/devices/system/cpu/cpu0/cache` or its like. Once a call.
std::int64_t last_cache_bytes(const std::filesystem::path& folder);

}  // namespace tilewise::kernels
