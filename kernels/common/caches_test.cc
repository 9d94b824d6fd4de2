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
  {
    Folder none;
    CHECK(last_cache_bytes(none.at) == 32 * kMiB);
    none.add("2", "2048K", "0");
    CHECK(last_cache_bytes(none.at) == 32 * kMiB);
  }
  struct Case {
    const char *what, *size, *sharing;
    std::int64_t mib;
  };
  const Case cases[] = {{"of a whole machine", "36864K", "0-7,16-23", 36},
                        {"of a virtual machine's host", "491520K", "0-1", 16},
                        {"who shares it is not told", "64M", "", 64},
                        {"what cannot be read", "much", "0-1", 32}};
  for (const Case& one : cases) {
    CAPTURE(one.what);
    Folder machine;
    machine.add("1", "48K", "0");
    machine.add("3", one.size, one.sharing);
    CHECK(last_cache_bytes(machine.at) == one.mib * kMiB);
  }
}

}  // namespace
}  // namespace tilewise::kernels
