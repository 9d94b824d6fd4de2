// What a task costs when it is small: Task Bench over real processes, and the scheduler's own share.
//
//   bench_scheduling --json FILE [--quick] [--only PART]     parts: tasks explicit start memory explain scale large hop taskbench
//   rebalance
//
// The method of METG(50 %): docs/figures.md.
#include <tilewise/kernel.h>
#include <tilewise/tilewise.h>

#include <time.h>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench_rebalance.h"
#include "bench_scale.h"
#include "bench_tasks.h"
#include "cluster.h"
#include "dask.h"
#include "hop.h"
#include "report.h"
#include "task_bench.h"

namespace tilewise::bench {
namespace {

constexpr int kCores = 2;

// ---- Task Bench -------------------------------------------------------------------------------------------------------

struct Case {
  Pattern pattern;
  std::int32_t radix = 0;
  std::int64_t width = 8;
  bool replayed = false;  // measured when its plan is kept
};

std::string name_of(const Case& c) {
  std::string name(kPatternNames[static_cast<std::size_t>(c.pattern)]);
  if (c.radix > 0) name += " " + std::to_string(c.radix);
  return name + ", width " + std::to_string(c.width) + (c.replayed ? ", replayed" : "");
}

// `rows` rows of calls; the last row's array.
Array record(const Array& start, const Case& c, std::int64_t rows, std::int64_t iterations) {
  Array row = start;
  const Grid grid = *Grid::uniform({2 * c.width}, {2});
  for (std::int64_t t = 0; t < rows; ++t) {
    const RowParams params{t, c.width, c.pattern, c.radix, iterations};
    BlockLists lists{row, {}};
    for (std::int64_t i = 0; i < c.width; ++i) lists.blocks.push_back(dependencies(params, i));
    const Kernel kernel{.name = "task_bench.point",
                        .version = "1.0",
                        .params = {reinterpret_cast<const char*>(&params), sizeof(params)},
                        .flops_per_point = flops_of(iterations)};
    row = map_blocks(kernel, {lists}, {{DType::kInt64, grid}}).front();
  }
  return row;
}

// FLOP/s of the kernel alone on all cores, about 10 ms of it.
double peak_rate() {
  constexpr std::int64_t kIterations = 1 << 21;
  volatile double used = 0;
  const double took = seconds_of([&] {
    std::thread second([&] { used = compute(kIterations); });
    volatile double mine = compute(kIterations);
    (void)mine;
    second.join();
  });
  return kCores * flops_of(kIterations) / took;
}

// CPU time so far of the scheduler, the workers and, last, this process.
std::vector<double> cpu_times(const Cluster& cluster) {
  std::vector<double> times;
  for (std::size_t i = 0; i < cluster.size(); ++i) times.push_back(cluster.cpu_seconds(i));
  timespec mine{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mine);
  times.push_back(static_cast<double>(mine.tv_sec) + static_cast<double>(mine.tv_nsec) * 1e-9);
  return times;
}

struct Sample {
  double granularity_us = 0, efficiency = 0;
  std::vector<double> cpu_us;  // of a row, by process
};

// A plan is kept when its program comes for the second time, and made anew after 1, 2, 4 ... replays (scheduler/core/replay.h):
// of this many submissions the next four are replays.
constexpr int kUntilReplayed = 7;

Sample sample(const Cluster& cluster, const Array& start, const Case& c, std::int64_t rows,
              std::int64_t iterations, int repeats) {
  const double tasks = static_cast<double>(rows * c.width);
  std::vector<double> granularities, efficiencies, cpu_us(cluster.size() + 1, 0.0);
  const bool fresh = std::getenv("BENCH_FRESH") != nullptr;  // each a program of its own
  for (int i = c.replayed ? -kUntilReplayed : 0; i < repeats; ++i) {
    Case other = c;
    if (fresh && c.pattern != Pattern::kNearest && c.pattern != Pattern::kSpread) other.radix = i;
    Array last = record(start, other, rows, iterations);
    if (i < 0) {
      last.persist().wait();
      continue;
    }
    // The clock of a shared machine changes from second to second: the peak is taken beside each run.
    const double before = peak_rate();
    const std::vector<double> cpu = cpu_times(cluster);
    const double wall = seconds_of([&] { last.persist().wait(); });
    const std::vector<double> cpu_after = cpu_times(cluster);
    for (std::size_t p = 0; p < cpu.size(); ++p)
      cpu_us[p] += (cpu_after[p] - cpu[p]) / static_cast<double>(rows * repeats) * 1e6;
    const double peak = (before + peak_rate()) / 2;
    granularities.push_back(wall * kCores / tasks * 1e6);
    efficiencies.push_back(tasks * flops_of(iterations) / wall / peak);
  }
  return {median(granularities), median(efficiencies), cpu_us};
}

// Smallest granularity with an efficiency of one half, between the last sample that has it and the first that has not.
double metg_us(const Cluster& cluster, const Array& start, const Case& c, std::int64_t rows, int repeats,
               Report& report) {
  const Sample smallest = sample(cluster, start, c, rows, 1, repeats);
  if (std::getenv("BENCH_VERBOSE") != nullptr)
    std::printf("  %s: empty tasks, %.2f us\n", name_of(c).c_str(), smallest.granularity_us);
  Sample above;
  for (std::int64_t iterations = 1 << 14;; iterations /= 2) {
    const Sample here = sample(cluster, start, c, rows, iterations, repeats);
    if (std::getenv("BENCH_VERBOSE") != nullptr)
      std::printf("  %s: %lld iterations, %.2f us, efficiency %.3f\n", name_of(c).c_str(),
                  static_cast<long long>(iterations), here.granularity_us, here.efficiency);
    if (here.efficiency < 0.5) {
      if (above.efficiency == 0) {
        report.note(name_of(c) + ": efficiency is below one half from the start");
        return here.granularity_us;
      }
      const double share = (above.efficiency - 0.5) / (above.efficiency - here.efficiency);
      return above.granularity_us + share * std::min(0.0, here.granularity_us - above.granularity_us);
    }
    above = here;
    if (iterations == 1) return here.granularity_us;
  }
}

void bench_task_bench(const Settings& settings, Report& report) {
  report.note("peak rate of the kernel on two threads: " + std::to_string(peak_rate() * 1e-9) + " GFLOP/s");
  const Cluster cluster("256MiB", {"--plugin", BENCH_TASK_PLUGIN});
  const Session session = cluster.session();
  const std::int64_t rows = settings.quick ? 200 : 1000;
  const struct {
    Case c;
    double target;
  } cases[] = {{{Pattern::kTrivial}, 5},
               {{Pattern::kNoComm}, 0},
               {{Pattern::kStencil1d}, 10},
               {{Pattern::kFft}, 0},
               {{Pattern::kTree}, 0},
               {{Pattern::kNearest, 5}, 15},
               {{Pattern::kSpread, 5}, 0},
               {{Pattern::kTrivial, 0, 2}, 0},
               {{Pattern::kStencil1d, 0, 2}, 0},
               {{Pattern::kTrivial, 0, 8, true}, 3},
               {{Pattern::kStencil1d, 0, 8, true}, 6}};
  std::map<std::string, double> of_width_8;
  for (const auto& [c, target] : cases) {
    const char* wanted = std::getenv("BENCH_CASES");
    if (wanted != nullptr && name_of(c).find(wanted) == std::string::npos) continue;
    Array start = session.zeros({2 * c.width}, {.dtype = DType::kInt64, .block = {2}});
    start.persist().wait();
    if (const char* only = std::getenv("BENCH_EMPTY")) {  // to look at with a profiler
      if (name_of(c).find(only) == std::string::npos) continue;
      const Sample one =
          sample(cluster, start, c, rows,
                 std::getenv("BENCH_ITERATIONS") ? std::atoll(std::getenv("BENCH_ITERATIONS")) : 1, 200);
      std::string cpu;
      for (const double us : one.cpu_us) cpu += " " + std::to_string(us);
      report.note(name_of(c) + ", empty tasks: " + std::to_string(one.granularity_us) +
                  " us; CPU time of a row, scheduler, workers, client:" + cpu + " us");
      return;
    }
    const double metg = metg_us(cluster, start, c, rows, settings.repeats, report);
    if (c.width == 8 && !c.replayed)
      of_width_8[std::string(kPatternNames[static_cast<std::size_t>(c.pattern)])] = metg;
    const Figure figure{.metric = "METG(50 %), " + name_of(c), .value = metg, .unit = "us"};
    if (target > 0)
      report.at_most(figure, target);
    else
      report.note(figure.metric + ": " + std::to_string(metg) + " us");
  }
  if (std::getenv("BENCH_CASES") != nullptr) return;
  beside_dask(of_width_8, settings.quick, report);
}

// ---- memory that does not follow the number of tasks ----------------------------------------------------------------------

void bench_memory(const Settings& settings, Report& report) {
  const std::int64_t few = 10'000, many = settings.quick ? 1'000'000 : 10'000'000;
  const Cluster cluster("256MiB");
  const Session session = cluster.session();
  // Every block is made, used and freed; nothing is held but one number.
  const auto total = [&](std::int64_t n) { return sum(session.ones({n}, {.block = {1}})).item<double>(); };
  if (total(few) != static_cast<double>(few)) throw std::runtime_error("the sum is wrong");
  std::int64_t before[3], most[3] = {};
  for (std::size_t i = 0; i < 3; ++i) before[i] = cluster.resident_bytes(i);
  bool over = false, right = false;
  std::thread work([&] {
    right = total(many) == static_cast<double>(many);
    over = true;
  });
  while (!over) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (std::size_t i = 0; i < 3; ++i) most[i] = std::max(most[i], cluster.resident_bytes(i) - before[i]);
  }
  work.join();
  if (!right) throw std::runtime_error("the large sum is wrong");
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const std::string between = ", " + std::to_string(few) + " to " + std::to_string(many) + " block tasks";
  report.at_most({.metric = "scheduler memory grows by" + between, .value = mib(most[0]), .unit = "MiB"}, 64);
  report.at_most({.metric = "a worker's memory grows by" + between,
                  .value = mib(std::max(most[1], most[2])),
                  .unit = "MiB"},
                 64);
}

// ---- what was predicted, beside what was -----------------------------------------------------------------------------------

void bench_explain(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 1024 : 4096, rows = settings.quick ? 100'000 : 1'000'000;
  const struct {
    const char* name;
    std::function<Array(const Session&)> make;
  } graphs[] = {
      {"matmul",
       [&](const Session& s) {
         Array a = s.random.uniform({n, n}, {.seed = 1, .block = {n / 4, n / 4}});
         Array b = s.random.uniform({n, n}, {.seed = 2, .block = {n / 4, n / 4}});
         s.persist({a, b}).wait();
         return matmul(a, b);
       }},
      {"one step of a regression",
       [&](const Session& s) {
         Array x = s.random.normal({rows, 28}, {.seed = 1, .block = {rows / 16, 28}});
         Array y = s.random.uniform({rows}, {.seed = 2, .block = {rows / 16}});
         Array w = s.zeros({28});
         s.persist({x, y, w}).wait();
         const Array p = 1.0 / (1.0 + exp(-matmul(x, w)));
         return matmul(x.T() * (p * (1.0 - p)), x);
       }},
      {"matmul of operands made on the way",
       [&](const Session& s) {
         Array a = s.random.uniform({n, n}, {.seed = 1, .block = {n / 4, n / 4}});
         return matmul(a + 1.0, a.T()) * 2.0;
       }},
  };
  for (const auto& graph : graphs) {
    std::vector<double> time_ratios, peak_ratios;
    double predicted_s = 0, took = 0;
    for (int i = 0; i < settings.repeats; ++i) {
      const Cluster cluster("2GiB");
      const Session session = cluster.session();
      Array wanted = graph.make(session);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (std::getenv("BENCH_VERBOSE"))
        for (auto b : cluster.peaks()) std::printf("  prepared %.2f MiB\n", b / 1048576.0);
      const Explanation told = session.explain(wanted);
      if (told.refused()) throw std::runtime_error(told.text());
      took = seconds_of([&] { wanted.persist().wait(); });
      predicted_s = told.account().seconds;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the last report
      const std::vector<std::int64_t> peaks = cluster.peaks();
      double worst = 0;
      for (std::size_t d = 0; d < peaks.size() && d < told.account().devices.size(); ++d) {
        const double ratio = static_cast<double>(told.account().devices[d].bytes_peak) /
                             static_cast<double>(std::max<std::int64_t>(peaks[d], 1));
        if (std::getenv("BENCH_VERBOSE"))
          std::printf("  %s device %zu: predicted %.2f MiB (before %.2f), measured %.2f MiB\n", graph.name, d,
                      told.account().devices[d].bytes_peak / 1048576.0,
                      told.account().devices[d].bytes_before / 1048576.0, peaks[d] / 1048576.0);
        worst = std::max(worst, std::abs(ratio - 1));
      }
      peak_ratios.push_back(worst);
      time_ratios.push_back(predicted_s / took);
    }
    report.at_most({.metric = std::string("predicted peak bytes, ") + graph.name + ": furthest off",
                    .value = 100 * median(peak_ratios),
                    .unit = "%"},
                   10);
    report.note(std::string("predicted time of it, before its kernels were measured there: ") +
                std::to_string(median(time_ratios)) + " of the measured one");
  }
}

const std::vector<Part> kParts = {
    {"tasks", bench_tasks},
    {"explicit", bench_explicit},
    {"start", bench_start},
    {"memory", bench_memory},
    {"explain", bench_explain},
    {"hop", [](const Settings&, Report& r) { bench_hop(r); }},
    {"scale", [](const Settings& s, Report& r) { bench_scale(s.quick, r); }},
    {"large", [](const Settings& s, Report& r) { bench_scale_large(s.quick, r); }},
    {"taskbench", bench_task_bench},
    {"rebalance", bench_rebalance}};

}  // namespace
}  // namespace tilewise::bench

int main(int argc, char** argv) { return tilewise::bench::run_parts(argc, argv, tilewise::bench::kParts); }
