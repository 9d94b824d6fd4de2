// Blocks between GPUs of two processes: of one host they go straight from one to the other, whatever UCX can do, of two through the
// hosts' memory. The GPUs are emulated.
#include <doctest/doctest.h>
#include <csignal>

#include "emulated_gpus.h"
#include "network.h"
#include "programs.h"
#include "skipped.h"
#include "watched.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

// Each worker needs much of what the other makes.
Array exchanged(const Session& session) { return products(session, 256, 64, 3); }

// Bytes that came over each lane, once they have been told.
std::map<std::string, double> lanes(const Watched& w) {
  std::map<std::string, double> bytes;
  const json::object page = w.ask("top");
  for (const json::value& lane : page.at("lanes").as_array())
    bytes[std::string(lane.at("lane").as_string())] += lane.at("bytes").to_number<double>();
  return bytes;
}

const std::vector<double>& expected() {
  static const std::vector<double> values = [] {
    Cluster cluster({.workers = 0});
    add_gpu_worker(cluster, "cuda:0");
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(1, kPatience));
    return testing::values(session.compute({exchanged(session)}));
  }();
  return values;
}

// The second of two workers, when three tenths of a chain of products are done, whose result is right all the same.
void kill_in_the_middle(Cluster& cluster, int worker, const Session& session, int steps,
                        const std::vector<double>& right) {
  REQUIRE(session.wait_for_devices(2, kPatience));
  const Future future = session.compute({products(session, 512, 64, steps)});
  REQUIRE(eventually([&] {
    const auto progress = future.progress();
    return progress.total > 0 && progress.done * 10 >= progress.total * 3;
  }));
  cluster.worker(worker).signal(SIGKILL);
  CHECK(same_bits(values(future), right));
}

}  // namespace

TEST_CASE("two processes on one GPU read each other's blocks in place") {
  Watched w({.workers = 0});
  INFO(w.cluster.words());
  for (int i = 0; i < 2; ++i) add_gpu_worker(w.cluster, "cuda:0", {"--strict-lanes"});
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  CHECK(same_bits(values(session.compute({exchanged(session)})), expected()));
  REQUIRE(eventually([&] { return lanes(w)["mapped"] > 0; }));
  CHECK(lanes(w)["cuda-ipc"] == 0);
  CHECK(lanes(w)["staged"] == 0);
  CHECK(nothing_left(w.cluster));
}

TEST_CASE("processes on two GPUs copy from each other, and their link is measured that way") {
  Watched w({.workers = 0});
  INFO(w.cluster.words());
  for (const char* gpu : {"cuda:0", "cuda:1"}) add_gpu_worker(w.cluster, gpu, {"--strict-lanes"});
  const json::array classes = w.measured(1);
  for (const json::value& c : classes)
    for (const json::value& size : c.at("sizes").as_array()) CHECK(size.at("lane").as_string() == "cuda-ipc");
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  CHECK(same_bits(values(session.compute({exchanged(session)})), expected()));
  REQUIRE(eventually([&] { return lanes(w)["cuda-ipc"] > 0; }));
  CHECK(lanes(w)["mapped"] == 0);
  CHECK(lanes(w)["staged"] == 0);
  CHECK(nothing_left(w.cluster));
}

TEST_CASE("who maps nothing sends through the host, as before; strict, it does not start") {
  Watched w({.workers = 0});
  INFO(w.cluster.words());
  for (const char* gpu : {"cuda:0", "cuda:1"}) add_gpu_worker(w.cluster, gpu, {"--no-map"});
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  CHECK(same_bits(values(session.compute({exchanged(session)})), expected()));
  REQUIRE(eventually([&] { return lanes(w)["staged"] > 0; }));
  CHECK(lanes(w)["cuda-ipc"] + lanes(w)["mapped"] == 0);
  add_gpu_worker(w.cluster, "cuda:0", {"--no-map", "--strict-lanes"});
  Process& strict = w.cluster.worker(2);
  CHECK(strict.wait().value_or(0) != 0);
  CHECK(strict.errors().find("through the host only") != std::string::npos);
}

TEST_CASE("between hosts blocks of GPUs go over the data connection in chunks, through the hosts' memory") {
  setenv("UCX_TLS", "tcp", 1);  // inherited by the workers (network.h)
  std::string why;
  const auto network = Network::make(2, why);
  if (!network) return skipped("no hosts of their own: " + why);
  // Halves of 8 MiB cross, four chunks each.
  const auto columns = [](const Session& session) {
    return sum(session.random.uniform({2048, 2048}, {.seed = 5, .block = {1024, 2048}}).reblock({2048, 1024}),
               {.axis = 0});
  };
  std::vector<double> right;
  {
    Cluster cluster({.workers = 0});
    add_gpu_worker(cluster, "cuda:0");
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(1, kPatience));
    right = columns(session).get<double>({.timeout = kPatience});
  }
  Watched w({.workers = 0, .network = network.get()});
  INFO(w.cluster.words());
  for (int i = 0; i < 2; ++i) add_gpu_worker(w.cluster, "cuda:0");
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  for (int round = 0; round < 3; ++round)
    CHECK(same_bits(columns(session).get<double>({.timeout = kPatience}), right));
  REQUIRE(eventually([&] { return lanes(w)["staged"] >= 3 * (16 << 20); }));
  CHECK(lanes(w)["cuda-ipc"] + lanes(w)["mapped"] == 0);
  CHECK(nothing_left(w.cluster));
}

TEST_CASE(
    "a lender that is killed: the other goes on, what was lent is closed, and the next one lends again") {
  Watched w({.workers = 0});
  INFO(w.cluster.words());
  add_gpu_worker(w.cluster, "cuda:0");
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  const std::vector<double> right = values(session.compute({products(session, 512, 64, 6)}));
  for (int round = 1; round <= 3; ++round) {
    CAPTURE(round);
    add_gpu_worker(w.cluster, round == 2 ? "cuda:0" : "cuda:1");
    kill_in_the_middle(w.cluster, round, session, 6, right);
  }
  CHECK(w.cluster.worker(0).running());
  CHECK(nothing_left(w.cluster));
}

// What CUDA makes of it is not written down; at the worst both processes are lost, and the supervisor brings what it can.
TEST_CASE(
    "a lender that is killed, with a driver that breaks who has its memory open: that one starts again") {
  Watched w({.workers = 0});
  INFO(w.cluster.words());
  const Environment breaks{{"TILEWISE_EMULATED_LENDERS_BREAK", "1"}};
  add_gpu_worker(w.cluster, "cuda:0", {"--respawn"}, breaks);
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  const std::vector<double> right = values(session.compute({products(session, 512, 64, 30)}));
  const auto said = [&](const char* words) {
    return (w.cluster.worker(0).output() + w.cluster.worker(0).errors()).find(words) != std::string::npos;
  };
  // Who asks its driver for nothing until it has heard of the death, and has closed the memory, is spared.
  for (int round = 1; round <= 8 && !said("a device has failed for good"); ++round) {
    CAPTURE(round);
    add_gpu_worker(w.cluster, "cuda:1", {}, breaks);
    kill_in_the_middle(w.cluster, round, session, 30, right);
  }
  CHECK(said("a device has failed for good"));
  CHECK(eventually([&] { return said("starting it again"); }));
  CHECK(nothing_left(w.cluster));
}
