#include <doctest/doctest.h>
#include <stdlib.h>
#include <tilewise/cuda/driver.h>
#include <tilewise/cuda/libraries.h>
#include <tilewise/device/cuda.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "skipped.h"

using namespace tilewise;
using namespace tilewise::cuda;
namespace fs = std::filesystem;

TEST_CASE("libraries are looked for where they are told to be, then beside Python") {
  const fs::path root = fs::temp_directory_path() / ("tilewise-libraries-" + std::to_string(::getpid()));
  const fs::path wheel = root / "venv/lib/python3.12/site-packages/nvidia/cu13/lib";
  fs::create_directories(wheel);
  ::setenv("TILEWISE_TEST_PATH", (root / "one").c_str(), 1);
  const char* before = ::getenv("VIRTUAL_ENV");
  const std::string restored = before ? before : "";
  ::setenv("VIRTUAL_ENV", (root / "venv").c_str(), 1);
  const LibrarySpec spec{"tilewise-test-library", "TILEWISE_TEST_PATH", {}, {13, 12}};
  const auto folders = library_folders(spec);
  REQUIRE_FALSE(folders.empty());
  CHECK(folders.front() == (root / "one").string());
  CHECK(std::find(folders.begin(), folders.end(), wheel.string()) != folders.end());
  const auto missing = open_library(spec);
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code == Errc::kUnavailable);
  for (const std::string& named :
       {std::string("libtilewise-test-library.so.13"), wheel.string(), spec.environment})
    CHECK_MESSAGE(missing.error().message.find(named) != std::string::npos, missing.error().message);
  if (before)
    ::setenv("VIRTUAL_ENV", restored.c_str(), 1);
  else
    ::unsetenv("VIRTUAL_ENV");
  fs::remove_all(root);
}

TEST_CASE("without a driver there is a reason, and no device") {
  if (driver()) {
    testing::skipped("there is a driver");
    return;
  }
  CHECK(device::cuda_device_count() == 0);
  CHECK_FALSE(device::cuda_unavailable_reason().empty());
  const auto made = device::make_cuda_device({});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == Errc::kUnavailable);
}
