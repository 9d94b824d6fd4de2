// What processes keep does not grow with the number of tasks that a graph has.
#include <doctest/doctest.h>
#include <atomic>
#include <fstream>
#include <thread>

#include "../sanitizers.h"
#include "harness.h"
#include "programs.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

std::int64_t resident_bytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE(
    "a million tasks, each of which makes a block that is used and freed, leave scheduler and workers as "
    "small as few do") {
  // Whose points others make late is kept till then (docs/design/rebalance.md): how much depends on the machine's other work.
  Cluster cluster({.workers = 2, .devices = 1, .memory = "256MiB", .scheduler_args = {"--no-rebalance"}});
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<int> pids{cluster.scheduler().pid(), working(cluster.worker(0).pid()),
                              working(cluster.worker(1).pid())};
  const auto total = [&](std::int64_t n) {
    return sum(session.ones({n}, {.block = {1}})).get<double>({.timeout = 2 * kPatience}).at(0);
  };
  CHECK(total(10'000) == 10'000);
  std::vector<std::int64_t> before, most(pids.size());
  for (const int pid : pids) before.push_back(resident_bytes(pid));
  std::atomic<bool> over = false;
  std::thread watch([&] {
    while (!over) {
      for (std::size_t i = 0; i < pids.size(); ++i)
        most[i] = std::max(most[i], resident_bytes(pids[i]) - before[i]);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  double sum = 0;
  try {
    sum = total(1'000'000);
  } catch (const ArrayError& e) {
    MESSAGE(std::string(e.what()));
  }
  over = true;
  watch.join();
  CHECK(sum == 1'000'000);
  for (const std::int64_t bytes : most) {
    CHECK(bytes > 0);
    CHECK(bytes < (64 << 20) + kOfSanitizers);  // a record of each task would be several times as much
  }
}
