// Workers that the system gives less than they ask for.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "harness.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

namespace fs = std::filesystem;

// The lowest descriptor that the process does not have: a limit of so many lets it open no other one.
std::size_t first_free_descriptor(int pid) {
  std::size_t next = 0;
  while (fs::exists(fs::symlink_status("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(next))))
    ++next;
  return next;
}

// What files without a name in `folder` take of the disk.
std::int64_t spilled_on_disk(int pid, const std::string& folder) {
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    struct stat st {};
    if (target.starts_with(folder) && ::stat(entry.path().c_str(), &st) == 0)
      bytes += std::int64_t{st.st_blocks} * 512;
  }
  return bytes;
}

}  // namespace

TEST_CASE(
    "a worker without file descriptors says so, to who computes and in its log, and goes on when it has "
    "some") {
  Cluster cluster({.workers = 1, .devices = 1, .memory = "1GiB"});
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  REQUIRE(sum(session.ones({1000})).get<double>().at(0) == 1000);  // links are made
  const int pid = working(cluster.worker(0).pid());
  rlimit before{};
  REQUIRE(prlimit(pid, RLIMIT_NOFILE, nullptr, &before) == 0);
  CHECK(before.rlim_cur == std::min<rlim_t>(before.rlim_max, 1 << 20));
  const rlimit none{first_free_descriptor(pid), before.rlim_max};
  REQUIRE(prlimit(pid, RLIMIT_NOFILE, &none, nullptr) == 0);
  const auto large = [&] {
    return session.ones({96, 1 << 20}, {.block = {1, 1 << 20}});
  };  // 768 MiB: another slab
  try {
    large().persist().wait({.timeout = kPatience});
    FAIL("it had no descriptor for more memory");
  } catch (const ArrayError& e) {
    CHECK(e.code() == Errc::kLimitExceeded);
    CHECK(std::string(e.what()).find("Too many open files") != std::string::npos);
  }
  CHECK(cluster.words().find("a device is refused memory") != std::string::npos);
  REQUIRE(prlimit(pid, RLIMIT_NOFILE, &before, nullptr) == 0);
  CHECK(sum(large()).get<double>({.timeout = kPatience}).at(0) == 96.0 * (1 << 20));
}

TEST_CASE("the disk has back what was spilled when it is of no use any more") {
  const TempFolder folder;
  Cluster cluster({.workers = 0});
  cluster.add_worker(
      {"--devices", "host:0", "--memory", "64MiB", "--spill-dir", folder.path(), "--spill-limit", "1GiB"});
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  const int pid = working(cluster.worker(0).pid());
  {
    Array held = session.ones({32, 1 << 20}, {.block = {1, 1 << 20}});  // 256 MiB
    held.persist().wait({.timeout = kPatience});
    CHECK(spilled_on_disk(pid, folder.path()) > 150 << 20);
    CHECK(sum(held).get<double>({.timeout = kPatience}).at(0) == 32.0 * (1 << 20));
  }
  bool empty = false;
  for (int tries = 0; tries < 200 && !empty; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    empty = spilled_on_disk(pid, folder.path()) < 1 << 20;
  }
  CHECK(empty);
}
