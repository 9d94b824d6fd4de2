// Workers that the system gives less than they ask for.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <filesystem>

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
