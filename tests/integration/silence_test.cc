// Processes that are stopped, not killed: no socket closes, and all that is noticed is that they say nothing.
#include <doctest/doctest.h>
#include <csignal>
#include <thread>

#include "harness.h"
#include "programs.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

const std::vector<std::string> kSilence{"--silence-timeout", "2"};
constexpr seconds kLimit{2};

bool says_that_it_was_lost(const std::string& words) {
  return words.find("taken for lost") != std::string::npos || words.find("was lost") != std::string::npos ||
         words.find("the scheduler is gone") != std::string::npos ||
         words.find("does not take us back") != std::string::npos ||
         words.find("lost the scheduler") != std::string::npos;
}

}  // namespace

TEST_CASE(
    "a worker that was stopped for too long is lost; when it goes on it ends, and begins afresh where it is "
    "to "
    "be started again") {
  Cluster cluster({.workers = 0, .devices = 1, .scheduler_args = kSilence});
  INFO(cluster.words());
  cluster.add_worker(kSilence);
  REQUIRE(eventually([&] { return !cluster.worker_address(0).empty(); }));  // the first device is its
  std::vector<std::string> how = kSilence;
  SUBCASE("started again") { how.emplace_back("--respawn"); }
  SUBCASE("supervised only") {}
  SUBCASE("alone") { how.emplace_back("--no-supervisor"); }
  cluster.add_worker(how);
  Process& second = cluster.worker(1);
  const bool respawns = how.back() == "--respawn";
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));
  const auto in_use = session.devices();

  const Future under_way = session.compute({products(session)});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int pid = working(second.pid());
  REQUIRE((pid == second.pid()) == (how.back() == "--no-supervisor"));
  REQUIRE(kill(pid, SIGSTOP) == 0);
  const auto stopped = Clock::now();
  REQUIRE(eventually([&] { return session.devices().size() == 1; }, 4 * kLimit));
  CHECK(Clock::now() - stopped >= kLimit / 2);
  CHECK(same_bits(values(under_way), expected));  // by the other one, while this one is still stopped

  REQUIRE(kill(pid, SIGCONT) == 0);
  REQUIRE(eventually([&] { return respawns ? child_of(second.pid()) != pid : !second.running(); }));
  CHECK_MESSAGE(says_that_it_was_lost(second.errors()), second.errors());
  if (!respawns) {
    CHECK(second.wait() == 1);
    return;
  }
  REQUIRE(session.wait_for_devices(2, kPatience));
  for (const Device& device : session.devices()) {  // of another life
    if (device.id == in_use[0].id) continue;
    CHECK(device.id != in_use[1].id);
  }
  CHECK(same_bits(values(session.compute({products(session)})), expected));
}

TEST_CASE(
    "a scheduler that was stopped for too long, and keeps no state: workers and clients say so and end") {
  Cluster cluster({.workers = 1, .devices = 1, .scheduler_args = kSilence, .worker_args = kSilence});
  INFO(cluster.words());
  setenv("TILEWISE_SILENCE_TIMEOUT", "2", 1);
  const Ran asked = run({client_program(), "compute"}, cluster.environment());
  REQUIRE_MESSAGE(asked.code == 0, asked.output);
  Process client("client", {client_program(), "linger"}, cluster.environment());
  unsetenv("TILEWISE_SILENCE_TIMEOUT");
  REQUIRE(eventually([&] { return client.output().find("running") != std::string::npos; }));
  cluster.scheduler().signal(SIGSTOP);
  const auto began = Clock::now();
  CHECK(cluster.worker(0).wait() == 1);
  CHECK_MESSAGE(cluster.worker(0).errors().find("scheduler") != std::string::npos,
                cluster.worker(0).errors());
  CHECK(client.wait() == 1);
  CHECK_MESSAGE(client.output().find("unavailable") != std::string::npos, client.output());
  CHECK(Clock::now() - began >= 2 * kLimit);
  cluster.scheduler().signal(SIGCONT);
}
