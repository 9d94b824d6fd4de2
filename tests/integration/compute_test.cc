// Client programs on a cluster of real processes: what comes back is what was computed here.
#include <doctest/doctest.h>
#include <cmath>
#include <numeric>
#include <thread>

#include "harness.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

std::vector<double> counting(std::size_t n, double scale) {
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = scale * static_cast<double>(i % 17) - 3.0;
  return out;
}

// Integers in float64: sums and products are exact in any order.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, std::size_t n,
                            std::size_t k, std::size_t m) {
  std::vector<double> c(n * m, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t p = 0; p < k; ++p) {
      for (std::size_t j = 0; j < m; ++j) c[i * m + j] += a[i * k + p] * b[p * m + j];
    }
  }
  return c;
}

void check_programs(const Session& session) {
  const std::size_t n = 150, k = 170, m = 90;
  const std::vector<double> a = counting(n * k, 1.0), b = counting(k * m, 2.0);
  const Array x = session.from_memory(a, {150, 170}, {.block = {64, 50}});
  const Array y = session.from_memory(b, {170, 90}, {.block = {40, 64}});
  CHECK(matmul(x, y).get<double>() == product(a, b, n, k, m));
  CHECK(sum(x).item<double>() == std::accumulate(a.begin(), a.end(), 0.0));
  const std::vector<double> mixed = (x * 2.0 + abs(x)).get<double>();
  REQUIRE(mixed.size() == a.size());
  bool same = true;
  for (std::size_t i = 0; i < a.size(); ++i) same &= mixed[i] == a[i] * 2.0 + std::abs(a[i]);
  CHECK(same);
  CHECK(session.arange(0, 1000, 1, {.block = {100}}).get<std::int64_t>()[999] == 999);
  CHECK(session.from_memory(a, {150, 170}, {.block = {64, 50}}).get<double>() == a);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Three steps of Adam's update, a request each: what came of them, the last one's tasks, and how many arrays its maps read.
struct Updated {
  std::vector<double> moment, variance, weights;
  std::int64_t tasks = 0;
  std::size_t reads = 0;
};
Updated update(const Session& session) {
  const auto random = [&](std::uint64_t seed) {
    return session.random.normal({256, 200}, {.seed = seed, .block = {64, 64}});
  };
  Array w = random(1), gradient = random(2), m = gradient * 0.0, v = gradient * 0.0;
  session.persist({w, gradient, m, v}).wait({.timeout = kPatience});
  Updated out;
  for (int step = 0; step < 3; ++step) {
    m = m * 0.9 + gradient * 0.1;
    v = v * 0.999 + gradient * gradient * 0.001;
    w = w - m * 0.01 / (sqrt(v) + 1e-8);
    const std::vector<Array> all{m, v, w};
    const msg::Explanation told = session.explain(all).account();
    for (const msg::PassAccount& pass : told.passes) {
      if (pass.name != "lowering") continue;
      out.reads = 0;
      for (std::size_t at = pass.dump.find("map("); at != std::string::npos;
           at = pass.dump.find("map(", at + 1))
        out.reads += count(pass.dump.substr(at, pass.dump.find(')', at) - at), "%");
    }
    const Future done = session.persist({m, v, w}, {.account = true});
    done.wait({.timeout = kPatience});
    out.tasks = done.account().measured().tasks_done;
  }
  out.moment = m.get<double>(), out.variance = v.get<double>(), out.weights = w.get<double>();
  return out;
}

}  // namespace

TEST_CASE(
    "maps of the same elements are one op of several outputs: fewer steps and reads, and the same bits") {
  const auto run = [](std::vector<std::string> scheduler_args) {
    Cluster cluster({.scheduler_args = std::move(scheduler_args)});
    INFO(cluster.words());
    return update(cluster.session());
  };
  const Updated joint = run({}), apart = run({"--passes-off", "shared-tapes"});
  const std::int64_t blocks = 4 * 4;
  CHECK(joint.tasks == blocks);
  CHECK(apart.tasks == 3 * blocks);
  CHECK(joint.reads == 4);
  CHECK(apart.reads == 7);
  CHECK(joint.moment == apart.moment);
  CHECK(joint.variance == apart.variance);
  CHECK(joint.weights == apart.weights);
}

TEST_CASE("programs on two workers of this host, which read each other's memory") {
  Cluster cluster;
  INFO(cluster.words());
  {
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(4, kPatience));
    check_programs(session);
    Array kept = session.random.uniform({256, 256}, {.seed = 5, .block = {64, 64}});
    kept.persist().wait({.timeout = kPatience});
    const double first = sum(kept).item<double>();
    CHECK(sum(kept).item<double>() == first);
    CHECK(first == doctest::Approx(256 * 256 * 0.5).epsilon(0.02));
  }
  CHECK(eventually([&] { return count(cluster.status(), "\"arrays_live\":0,") == 1; }));
  const Ran program = run({client_program(), "compute"}, cluster.environment());
  CAPTURE(program.output);
  CHECK(program.code == 0);
}

TEST_CASE("results do not depend on the number of workers, nor on how bytes travel") {
  const auto compute = [](const Cluster& cluster, bool map) {
    const Session session = cluster.session("bits", map);
    const Array x = session.random.normal({300, 200}, {.seed = 11, .block = {64, 64}});
    return matmul(x, exp(x * 0.1).T()).get<double>();
  };
  Cluster two(
      {.devices = 1, .worker_args = {"--no-map"}});  // devices of one worker read each other in any case
  INFO(two.words());
  const std::vector<double> copied = compute(two, false);
  const std::string status = two.status();
  CAPTURE(status);
  CHECK(count(status, "\"mapped\"") == 0);
  CHECK(count(status, "\"tcp\"") + count(status, "\"shared-memory\"") > 0);
  check_programs(two.session("unmapped", false));
  Cluster one({.workers = 1, .devices = 3});
  CHECK(compute(one, true) == copied);
}

TEST_CASE(
    "several threads of a client wait at once, each for its own, with and without an end to their patience") {
  Cluster cluster;
  INFO(cluster.words());
  const Session session = cluster.session();
  Array base = session.full({8}, 3.0, {.block = {4}});
  base.persist().wait({.timeout = kPatience});
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const double n = 100.0 * t + i;
        const Future future = session.compute({base + n});
        if (i % 3 == 0) (void)future.wait_for(std::chrono::microseconds(50));  // gives up, most likely
        if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        const auto shown = [](Progress) {};
        const auto got = i % 5 == 0 ? future.get<double>(0, {.timeout = kPatience, .on_progress = shown})
                                    : future.get<double>(0, {.timeout = kPatience});
        wrong[static_cast<std::size_t>(t)] += got != std::vector<double>(8, 3.0 + n);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("several clients at once do not disturb each other") {
  Cluster cluster;
  INFO(cluster.words());
  std::vector<std::unique_ptr<Process>> programs;
  for (int i = 0; i < 3; ++i) {
    programs.push_back(std::make_unique<Process>(
        "client", std::vector<std::string>{client_program(), "compute"}, cluster.environment()));
  }
  const Session session = cluster.session();
  check_programs(session);
  for (auto& program : programs) {
    CHECK(program->wait() == 0);
    CHECK(program->output() == "right");
  }
}

TEST_CASE(
    "programs that call exit() at once, or when they have their results, end well and leave nothing failed") {
  Cluster cluster({.workers = 2, .devices = 1});
  INFO(cluster.words());
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    CHECK(run({client_program(), "leave"}, cluster.environment()).code == 0);
    CHECK(run({client_program(), "hurry"}, cluster.environment()).code == 7);
  }
  const std::string before = cluster.status();
  const Ran ran = run({client_program(), "compute"}, cluster.environment());
  CHECK(ran.code == 0);
  for (int i = 0; i < 12; ++i) CHECK(run({client_program(), "compute"}, cluster.environment()).code == 0);
  // Those that did not wait were cancelled; of the others none.
  const auto failed = [](const std::string& status) {
    const std::size_t at = status.find("\"graphs_failed\":");
    REQUIRE(at != std::string::npos);
    return status.substr(at, status.find_first_of(",}", at) - at);
  };
  CHECK(failed(cluster.status()) == failed(before));
}

TEST_CASE("a user's mistakes are typed, and the session goes on") {
  Cluster cluster({.workers = 1});
  const Session session = cluster.session();
  const auto code = [](const auto& fn) {
    try {
      fn();
    } catch (const ArrayError& e) {
      return e.code();
    }
    return Errc::kOk;
  };
  CHECK(code([&] { (void)(session.ones({3, 4}) + session.ones({5})); }) == Errc::kShapeMismatch);
  CHECK(code([&] { (void)session.device("w9/host:9"); }) == Errc::kNotFound);
  // More than the device has.
  CHECK(code([&] {
          Array big = session.ones({20'000, 20'000}, {.block = {20'000, 20'000}});
          big.persist().wait({.timeout = kPatience});
        }) == Errc::kOutOfMemory);
  CHECK(sum(session.ones({10})).item<double>() == 10);
}
