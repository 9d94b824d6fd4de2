// One of two workers needs three times as long for the points of an op, and a second one joins when the op runs: real processes, a new
// cluster for each run, so that the scheduler knows nothing of the kernel. Points sleep: no worker takes the other's core.
#include "bench_rebalance.h"

#include <tilewise/tilewise.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "../integration/harness.h"
#include "slow.h"

namespace tilewise::bench {
namespace {

constexpr std::int64_t kPointNs = 5'000'000;

void add_worker(testing::Cluster& cluster, int times_slower) {
  setenv("BENCH_SLOWER", std::to_string(times_slower).c_str(), 1);  // inherited by the worker
  cluster.add_worker({"--plugin", BENCH_SLOW_PLUGIN});
  unsetenv("BENCH_SLOWER");
}

// Seconds from the request to its end. `second`: how many times slower the other worker is; 0: it comes a second late.
double run(bool moves, int second, std::int64_t points) {
  testing::Cluster cluster(
      {.workers = 0,
       .devices = 1,
       .scheduler_args = moves ? std::vector<std::string>{} : std::vector<std::string>{"--no-rebalance"}});
  add_worker(cluster, 1);
  if (second > 0) add_worker(cluster, second);
  const Session session = cluster.session();
  if (!session.wait_for_devices(second > 0 ? 2 : 1, testing::kPatience))
    throw std::runtime_error("the workers are not there");
  Array start = session.ones({points}, {.block = {1}});
  start.persist().wait();
  const SlowParams params{1, kPointNs};
  const Kernel kernel{.name = "bench.slow",
                      .version = "1.0",
                      .params = {reinterpret_cast<const char*>(&params), sizeof params},
                      .flops_per_point = 1e9};
  const Array row =
      map_blocks(kernel, std::vector{start}, {}, {{DType::kFloat64, *Grid::uniform({points}, {1})}}).front();
  const double began = now();
  const Future future = session.compute({sum(row)});
  if (second == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    add_worker(cluster, 1);
  }
  const std::vector<double> total = future.get<double>(0);
  const double took = now() - began;
  if (total != std::vector<double>{1.5 * static_cast<double>(points)})
    throw std::runtime_error("a wrong sum");
  return took;
}

// The same with a loop: each of `steps` requests reads the last one's result, which is held. Seconds by step.
std::vector<double> run_loop(bool moves, int second, std::int64_t points, int steps) {
  testing::Cluster cluster(
      {.workers = 0,
       .devices = 1,
       .scheduler_args = moves ? std::vector<std::string>{} : std::vector<std::string>{"--no-rebalance"}});
  add_worker(cluster, 1);
  add_worker(cluster, second);
  const Session session = cluster.session();
  if (!session.wait_for_devices(2, testing::kPatience)) throw std::runtime_error("the workers are not there");
  Array x = session.ones({points}, {.block = {1}});
  x.persist().wait();
  const SlowParams params{1, kPointNs};
  const Kernel kernel{.name = "bench.slow",
                      .version = "1.0",
                      .params = {reinterpret_cast<const char*>(&params), sizeof params},
                      .flops_per_point = 1e9};
  std::vector<double> took;
  double want = 1;
  for (int i = 0; i < steps; ++i) {
    want = want / 2 + 1;
    const double began = now();
    x = map_blocks(kernel, std::vector{x}, {}, {{DType::kFloat64, *Grid::uniform({points}, {1})}}).front();
    x.persist().wait();
    took.push_back(now() - began);
  }
  if (sum(x).item<double>() != want * static_cast<double>(points)) throw std::runtime_error("a wrong sum");
  return took;
}

}  // namespace

void bench_rebalance(const Settings& settings, Report& report) {
  const std::int64_t points = settings.quick ? 300 : 1200;
  // The bound: both are at work until the end, as fast as they were where nothing moved.
  struct Case {
    std::string name;
    int second;
    double (*bound_s)(double without_s);
  };
  const Case cases[] = {
      // The slow one has half of the points: 3/2 of what all cost the other; together they need 3/4 of that.
      {"one of two workers three times slower", 3, [](double without_s) { return without_s / 2; }},
      {"a second worker comes after a second", 0, [](double without_s) { return 1 + (without_s - 1) / 2; }}};
  for (const Case& c : cases) {
    std::vector<double> with, without;
    for (int i = 0; i < std::max(1, settings.repeats / 2); ++i) {
      without.push_back(run(false, c.second, points));
      with.push_back(run(true, c.second, points));
    }
    report.at_most({.metric = c.name + ": " + std::to_string(points) + " points of 5 ms, moved",
                    .value = median(with),
                    .unit = "s",
                    .reference = "not moved",
                    .reference_value = median(without)},
                   0.75);
    report.at_most({.metric = c.name + ": beside what two that never wait would take",
                    .value = median(with),
                    .unit = "s",
                    .reference = "bound",
                    .reference_value = c.bound_s(median(without))},
                   1.25);
  }
  // What moved in one step is where the next one begins.
  const int steps = settings.quick ? 3 : 6;
  std::vector<double> first, later;
  for (int i = 0; i < std::max(1, settings.repeats / 2); ++i) {
    const std::vector<double> took = run_loop(true, 3, points / 4, steps);
    first.push_back(took.front());
    later.push_back(median({took.begin() + 1, took.end()}));
  }
  report.at_most({.metric = "a step of a loop beside its first one, one of two workers three times slower",
                  .value = median(later),
                  .unit = "s",
                  .reference = "first step",
                  .reference_value = median(first)},
                 1.05);
}

}  // namespace tilewise::bench
