// Host devices keep to their share of cores: what computes are their executors, and no library's threads beside them. By what the kernel
// has counted of each thread of this process, which is why this is a program of its own.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "clusters.h"

using namespace tilewise;

namespace {

struct Seen {
  std::string name;
  char state = 0;          // R: runs or could, S: sleeps, ...
  std::int64_t ticks = 0;  // of time on a core, of 10 ms
};

// All threads of this process by their ids. One that ends meanwhile is left out.
std::map<int, Seen> threads() {
  std::map<int, Seen> out;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    const std::size_t open = line.find('('), close = line.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    std::istringstream rest(line.substr(close + 1));
    char state = 0;
    rest >> state;
    std::string skipped;
    for (int field = 4; field < 14; ++field) rest >> skipped;
    std::int64_t user = 0, system = 0;
    rest >> user >> system;
    out[std::stoi(task.path().filename())] = {line.substr(open + 1, close - open - 1), state, user + system};
  }
  return out;
}

// What this process has run before its first cluster. OpenBLAS's threads spin for some tens of milliseconds when they were just made (its
// THREAD_TIMEOUT), more on a busy machine: seen once they sleep.
std::map<int, Seen> threads_once_asleep() {
  const int user = static_cast<int>(getpid());
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);;) {
    auto out = threads();
    const bool asleep =
        std::ranges::all_of(out, [&](const auto& t) { return t.first == user || t.second.state == 'S'; });
    if (asleep || std::chrono::steady_clock::now() > until) return out;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

bool is_executor(const std::string& name) {
  return name.starts_with("host:") && name.find("/copy") == std::string::npos;
}

// Products (BLAS), factorisations (LAPACK), fused maps, reductions, scans, sorting and Fourier transforms: some seconds of work.
double mixture(const Session& s, std::uint64_t seed) {
  const std::int64_t n = 1200;
  const Array a = s.random.normal({n, n}, {.seed = seed, .block = {400, 400}});
  const Array b = s.random.normal({n, n}, {.seed = seed + 1, .block = {400, 400}});
  Array sums = s.zeros({});
  for (int round = 0; round < 4; ++round) sums = sums + sum(matmul(a + static_cast<double>(round), b));
  const Array square = matmul(a, a.T()) + s.eye(n) * 100.0;
  const Array slabs = s.random.normal({6000, 200}, {.seed = seed + 2, .block = {1000, 200}});
  const Array line = s.random.normal({1 << 20}, {.seed = seed + 3, .block = {1 << 16}});
  return (sums + sum(cholesky(square)) + sum(solve(square, s.ones({n}))) + sum(svdvals(slabs)) +
          sum(lstsq(slabs, s.ones({6000})).x) + sum(sqrt(abs(sin(line) * exp(line)))) +
          max(cumulative_sum(line)) + sum(sort(line)) + sum(abs(fft::fft(line))))
      .item<double>();
}

}  // namespace

TEST_CASE("devices compute on as many threads as they have of the cores, and nothing computes beside them") {
  struct Shares {
    int workers, devices, cores;  // devices: of each worker
    std::size_t executors;
  };
  const auto before = threads_once_asleep();
  for (const Shares& share : {Shares{1, 1, 0, 1}, Shares{1, 3, 0, 3}, Shares{2, 2, 6, 6}}) {
    CAPTURE(share.executors);
    TestCluster cluster({"shares",
                         {.workers = share.workers,
                          .host_devices = share.devices,
                          .use_cuda = false,
                          .cores = share.cores,
                          .memory_bytes = 512 << 20,
                          .spin_ns = 0}});
    // The program's main thread is the user's.
    const int user = static_cast<int>(getpid());
    for (int round = 0; round < 2; ++round) (void)mixture(cluster.session, static_cast<std::uint64_t>(round));
    std::size_t executors = 0, copies = 0, loops = 0;
    std::int64_t computed = 0;
    for (const auto& [id, thread] : threads()) {
      CAPTURE(thread.name);
      const auto was = before.find(id);
      const std::int64_t ran = thread.ticks - (was == before.end() ? 0 : was->second.ticks);
      if (id == user) continue;
      if (was != before.end()) {
        // Those of libraries, made when they were loaded, sleep.
        CHECK_MESSAGE(ran == 0, "thread " << id << " (" << thread.name << ") ran for " << ran * 10 << " ms");
      } else if (is_executor(thread.name)) {
        ++executors, computed += ran;
      } else if (thread.name.starts_with("host:")) {
        ++copies;
      } else {
        ++loops;  // the cluster's
      }
    }
    CHECK(executors == share.executors);
    CHECK(copies == static_cast<std::size_t>(share.workers * share.devices));
    CHECK(loops == 1);
    CHECK(computed > 20);  // so much that a library's threads would have shown
  }
}
