// Sizes of this machine's caches, as its system tells them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace tilewise::kernels {

// Of the third-level cache that the first processor has, in bytes; 32 MiB where none is told of.
inline std::int64_t last_cache_bytes() {
  static const std::int64_t bytes = [] {
    std::int64_t most = 0;
    for (int index = 0;; ++index) {
      const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
      int level = 0;
      if (!(std::ifstream(folder + "/level") >> level)) break;
      if (level < 3) continue;
      std::ifstream file(folder + "/size");
      std::int64_t size = 0;
      char unit = 0;
      if (!(file >> size)) break;
      if (file >> unit) size <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
      most = std::max(most, size);
    }
    return most > 0 ? most : std::int64_t{32} << 20;
  }();
  return bytes;
}

}  // namespace tilewise::kernels
