#include "common/caches.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tilewise::kernels {
namespace {

constexpr std::int64_t kUnknown = std::int64_t{32} << 20;
// Servers' processors have up to 4 MiB each, and 12 where caches are stacked.
constexpr std::int64_t kMostShare = std::int64_t{8} << 20;

// "480K", "32M" or a plain number of bytes, as Linux writes them; 0 where there is no number.
std::int64_t read_size(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t size = 0;
  char unit = 0;
  if (!(file >> size)) return 0;
  if (file >> unit) size <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
  return size;
}

// How many processors a list like "0-3,8" names; 0 where there is none.
std::int64_t count_processors(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t count = 0, first = 0;
  while (file >> first) {
    std::int64_t last = first;
    if (file.peek() == '-') {
      file.get();
      file >> last;
    }
    count += std::max<std::int64_t>(0, last - first + 1);
    if (file.peek() == ',') file.get();
  }
  return count;
}

}  // namespace

std::int64_t last_cache_bytes(const std::filesystem::path& folder) {
  std::int64_t most = 0;
  for (int index = 0;; ++index) {
    const std::filesystem::path cache = folder / ("index" + std::to_string(index));
    int level = 0;
    if (!(std::ifstream(cache / "level") >> level)) break;
    if (level < 3) continue;
    std::int64_t size = read_size(cache / "size");
    if (const std::int64_t sharing = count_processors(cache / "shared_cpu_list"); sharing > 0)
      size = std::min(size, kMostShare * sharing);
    most = std::max(most, size);
  }
  return most > 0 ? most : kUnknown;
}

std::int64_t last_cache_bytes() {
  static const std::int64_t bytes = last_cache_bytes("/sys/devices/system/cpu/cpu0/cache");
  return bytes;
}

}  // namespace tilewise::kernels
