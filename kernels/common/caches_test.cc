#include "common/caches.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace tilewise::kernels {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A folder like the system's, with the caches that a test wants.
struct Folder {
  std::filesystem::path at =
      std::filesystem::temp_directory_path() / ("tilewise_caches_" + std::to_string(getpid()));
  int count = 0;

  Folder() { std::filesystem::create_directory(at); }
  ~Folder() { std::filesystem::remove_all(at); }
  void add(const std::string& level, const std::string& size, const std::string& sharing) {
    const std::filesystem::path cache = at / ("index" + std::to_string(count++));
    std::filesystem::create_directory(cache);
    std::ofstream(cache / "level") << level << '\n';
    std::ofstream(cache / "size") << size << '\n';
    if (!sharing.empty()) std::ofstream(cache / "shared_cpu_list") << sharing << '\n';
  }
};

TEST_CASE("the last cache is the third-level one, as far as it can be this machine's own") {
  Folder folder;
  CHECK(last_cache_bytes(folder.at) == 32 * kMiB);  // none
  folder.add("1", "48K", "0");
  folder.add("2", "2048K", "0");
  CHECK(last_cache_bytes(folder.at) == 32 * kMiB);
  SUBCASE("of a whole machine") {
    folder.add("3", "36864K", "0-7,16-23");
    CHECK(last_cache_bytes(folder.at) == 36 * kMiB);
  }
  SUBCASE("of a virtual machine's host") {
    folder.add("3", "491520K", "0-1");
    CHECK(last_cache_bytes(folder.at) == 16 * kMiB);
  }
  SUBCASE("who shares it is not told") {
    folder.add("3", "64M", "");
    CHECK(last_cache_bytes(folder.at) == 64 * kMiB);
  }
  SUBCASE("what cannot be read") {
    folder.add("3", "much", "0-1");
    CHECK(last_cache_bytes(folder.at) == 32 * kMiB);
  }
}

}  // namespace
}  // namespace tilewise::kernels
