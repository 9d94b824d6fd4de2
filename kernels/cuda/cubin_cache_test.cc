#include "cubin_cache.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temp_folder.h"

using tilewise::cuda::CubinCache;
namespace fs = std::filesystem;

TEST_CASE("what was stored is found, by its whole key") {
  const tilewise::testing::TempFolder folder;
  const CubinCache cache(folder.path() + "/a/kernels");
  REQUIRE(cache.enabled());
  CHECK_FALSE(cache.find("key"));
  const std::string code("\0\1machine\ncode\0", 15);
  cache.store("key", code);
  CHECK(cache.find("key") == code);
  CHECK_FALSE(cache.find("another key"));
  CHECK(CubinCache(folder.path() + "/a/kernels").find("key") == code);  // by the next process
  struct stat info {};
  REQUIRE(::stat((folder.path() + "/a/kernels").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
}

TEST_CASE("damaged files are misses") {
  const tilewise::testing::TempFolder folder;
  const CubinCache cache(folder.path());
  cache.store("key", std::string(1000, 'x'));
  for (const auto& entry : fs::directory_iterator(folder.path())) fs::resize_file(entry.path(), 500);
  CHECK_FALSE(cache.find("key"));
  for (const auto& entry : fs::directory_iterator(folder.path()))
    std::ofstream(entry.path()) << "tilewise-cubin-1\n99999999999999999999 -1\n";
  CHECK_FALSE(cache.find("key"));
}

TEST_CASE("a folder that others can write to is not used") {
  const tilewise::testing::TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  const CubinCache cache(folder.path());
  CHECK_FALSE(cache.enabled());
  cache.store("key", "code");
  CHECK_FALSE(cache.find("key"));
  CHECK_FALSE(CubinCache("").enabled());
}
