// A GPU that fails for good takes its worker's process with it, at once, and a supervisor brings another. The GPUs are emulated.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>

#include "emulated_gpus.h"
#include "programs.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

// A process that is not ours: until it has ended.
class WatchedProcess {
 public:
  explicit WatchedProcess(int pid) : handle_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  ~WatchedProcess() { close(handle_); }
  WatchedProcess(const WatchedProcess&) = delete;
  WatchedProcess& operator=(const WatchedProcess&) = delete;
  bool ends(int within_ms) const {
    pollfd waiting{handle_, POLLIN, 0};
    return poll(&waiting, 1, within_ms) == 1;
  }

 private:
  int handle_;
};

}  // namespace

TEST_CASE(
    "a GPU that fails for good: its worker ends within 1 s, another one comes, and the graph ends with the "
    "same bits") {
  const TempFolder folder;
  const std::string fault = folder / "fault";
  Cluster cluster({.workers = 0});
  INFO(cluster.words());
  add_gpu_worker(cluster, "cuda:0");
  add_gpu_worker(cluster, "cuda:1", {"--respawn"}, {{"TILEWISE_EMULATED_FAULT", fault}});
  Process& supervisor = cluster.worker(1);
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));

  // With a driver that says so and one that, besides, lets whoever waits for the GPU wait for ever.
  for (const char* how : {"", "hangs"}) {
    CAPTURE(how);
    const int pid = child_of(supervisor.pid());
    REQUIRE(pid != 0);
    const WatchedProcess worker(pid);
    const Future future = session.compute({products(session)});
    REQUIRE(eventually([&] {
      const auto progress = future.progress();
      return progress.total > 0 && progress.done * 10 >= progress.total * 3;
    }));
    std::ofstream(fault + ".new") << how;
    std::filesystem::rename(fault + ".new", fault);
    // The driver takes it away when it first returns the error.
    REQUIRE(eventually([&] { return !std::filesystem::exists(fault); }));
    const Clock::time_point reported = Clock::now();
    REQUIRE(worker.ends(20'000));
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - reported);
    MESSAGE("the worker was gone " << took.count() << " ms after the driver's first word of it");
    CHECK(took < seconds(1));
    CHECK(same_bits(values(future), expected));
    const std::string words = supervisor.output() + supervisor.errors();
    for (const char* part : {"a device has failed for good", "cuda:1 is broken: CUDA_ERROR_ILLEGAL_ADDRESS",
                             "starting it again"})
      CHECK(words.find(part) != std::string::npos);
    REQUIRE(session.wait_for_devices(2, kPatience));  // the next one has joined
    CHECK(child_of(supervisor.pid()) != pid);
  }
  const int last = child_of(supervisor.pid());
  CHECK(same_bits(values(session.compute({products(session)})), expected));
  CHECK(child_of(supervisor.pid()) == last);
  CHECK(nothing_left(cluster));
}

TEST_CASE("a kernel that breaks its GPU each time fails after the third, with its story; all else goes on") {
  Cluster cluster({.workers = 0});
  INFO(cluster.words());
  const Environment bad{{"TILEWISE_EMULATED_BAD_KERNEL", "acosh("}};
  for (const char* gpu : {"cuda:0", "cuda:1"}) add_gpu_worker(cluster, gpu, {"--respawn"}, bad);
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));
  const Array unlucky = acosh(session.random.uniform({4, 8}, {.seed = 3, .block = {4, 8}}) + 1.0);
  const Future other = session.compute({products(session)}), doomed = session.compute({unlucky});
  try {
    values(doomed);
    FAIL("it went well");
  } catch (const ArrayError& e) {
    INFO(std::string(e.what()));
    CHECK(e.code() == Errc::kTaskFailed);
    CHECK(std::string(e.what()).find("workers died while they were executing it") != std::string::npos);
  }
  CHECK(same_bits(values(other), expected));
  REQUIRE(session.wait_for_devices(2, kPatience));
  CHECK(same_bits(values(session.compute({products(session)})), expected));
  const std::string words = cluster.words(), death = "a device has failed for good";
  int deaths = 0;
  for (std::size_t at = words.find(death); at != std::string::npos; at = words.find(death, at + 1)) ++deaths;
  CHECK(deaths == 3);
}
