// Workers that leave as they are asked to: their blocks move, nothing is lost, nothing is made again, and they end well.
#include <doctest/doctest.h>
#include <csignal>

#include "harness.h"
#include "programs.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

std::string tasks_done(const Cluster& cluster) {
  const std::string status = cluster.status();
  const std::size_t at = status.find("\"tasks_done\":");
  return status.substr(at, status.find(',', at) - at);
}

}  // namespace

TEST_CASE("held arrays and uploads move to others; the worker is gone, with exit code 0") {
  struct Case {
    const char* name;
    std::vector<std::string> worker_args;
    bool keep_state;
  };
  const Case cases[] = {
      {"mapped", {}, false}, {"copied", {"--no-map"}, false}, {"a scheduler with a journal", {}, true}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Cluster cluster({.workers = 3, .devices = 2, .worker_args = c.worker_args, .keep_state = c.keep_state});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(6, kPatience));
    Array x = session.random.normal({600, 500}, {.seed = 5, .block = {60, 70}});
    Array y = matmul(x, x.T());
    const std::vector<double> numbers(256 * 256, 1.5);
    Array upload = session.from_memory(numbers, {256, 256}, {.block = {16, 256}});
    session.persist({x, y, upload}).wait({.timeout = kPatience});
    const auto whole_x = x.get<double>(), whole_y = y.get<double>();
    const std::string made = tasks_done(cluster);
    for (const int leaves : {0, 1}) {
      const Ran ran = cluster.tool({"drain", "worker-" + std::to_string(leaves)});
      INFO(ran.errors);
      CHECK(ran.code == 0);
      CHECK(ran.output.find(": gone") != std::string::npos);
      CHECK(cluster.worker(leaves).wait() == 0);
      CHECK(tasks_done(cluster) == made);
      if (c.keep_state && leaves == 0) {
        cluster.scheduler().signal(SIGKILL);
        REQUIRE(cluster.scheduler().wait());
        cluster.restart_scheduler();
      }
      CHECK(same_bits(y.get<double>({.timeout = kPatience}), whole_y));
      CHECK(same_bits(x.get<double>({.timeout = kPatience}), whole_x));
      CHECK(upload.get<double>({.timeout = kPatience}) == numbers);
      CHECK(tasks_done(cluster) == made);
    }
    CHECK(session.devices().size() == 2);
    CHECK(same_bits(matmul(x, x.T()).get<double>({.timeout = kPatience}), whole_y));
  }
}

TEST_CASE("a worker leaves in the middle of a graph, which ends with the same bits") {
  for (const bool power : {true, false}) {
    const auto program = [&](const Session& session) {
      return power ? products(session) : regression(session);
    };
    Cluster cluster({.workers = 3, .devices = 1});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(3, kPatience));
    const std::vector<double> expected = values(session.compute({program(session)}));
    const Future future = session.compute({program(session)});
    REQUIRE(eventually([&] {
      return future.progress().done * 4 >= future.progress().total && future.progress().total > 0;
    }));
    const Ran ran = cluster.tool({"--json", "drain", "worker-1"});
    CHECK(ran.code == 0);
    CHECK(ran.output.find("\"state\":\"gone\"") != std::string::npos);
    CHECK(cluster.worker(1).wait() == 0);
    CHECK(same_bits(values(future), expected));
    CHECK(nothing_left(cluster));
  }
}

TEST_CASE("kill -9 in the middle of a drain is a death like any other") {
  for (const int victim : {0, 1}) {  // the one that leaves, and one that takes
    Cluster cluster({.workers = 3, .devices = 1});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(3, kPatience));
    Array x = session.random.normal({3000, 3000}, {.seed = 9, .block = {100, 100}});
    session.persist({x}).wait({.timeout = kPatience});
    const auto whole = x.get<double>();
    cluster.tool({"drain", "worker-0", "--wait", "0"});
    cluster.worker(victim).signal(SIGKILL);
    CHECK(same_bits(x.get<double>({.timeout = kPatience}), whole));
    const Ran ran = cluster.tool({"drain", "worker-0"});
    if (victim != 0) CHECK(ran.code == 0);  // it lives, and the third has room
    CHECK(cluster.worker(0).wait().has_value());
    CHECK(same_bits(x.get<double>({.timeout = kPatience}), whole));
  }
}

TEST_CASE("a worker that cannot leave says why, works on, and may stay") {
  Cluster cluster({.workers = 1, .devices = 1, .memory = "64MiB"});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  Array x = session.random.normal({2000, 2000}, {.seed = 1, .block = {200, 200}}).on(session.devices()[0]);
  session.persist({x}).wait({.timeout = kPatience});  // 32 MB
  Ran ran = cluster.tool({"drain", "worker-0", "--wait", "0.5"});
  CHECK(ran.code == 1);
  CHECK(ran.errors.find("no other worker takes work") != std::string::npos);
  CHECK(cluster.tool({"drain", "--undo", "worker-0"}).code == 0);
  cluster.add_worker({});
  REQUIRE(session.wait_for_devices(2, kPatience));
  Array y = session.random.normal({2000, 2000}, {.seed = 2, .block = {200, 200}}).on(session.devices()[1]);
  session.persist({y}).wait({.timeout = kPatience});
  ran = cluster.tool({"drain", "worker-0", "--wait", "5"});
  CHECK(ran.code == 1);
  CHECK(ran.errors.find("others have room for") != std::string::npos);
  ran = cluster.tool({"drain", "--undo", "worker-0"});
  CHECK(ran.code == 0);
  CHECK(eventually([&] {
    return cluster.tool({"drain", "--ask", "worker-0"}).output.find("takes work") != std::string::npos;
  }));
  CHECK(sum(x + y).get<double>({.timeout = kPatience}).size() == 1);
  CHECK(cluster.tool({"drain", "nobody"}).errors.find("there is no worker 'nobody'") != std::string::npos);
  y = Array();
  ran = cluster.tool({"drain", "worker-0"});
  CHECK(ran.code == 0);
  CHECK(cluster.worker(0).wait() == 0);
  CHECK(x.get<double>({.timeout = kPatience}).size() == 4'000'000);
}
