#include "bench_tasks.h"

#include <tilewise/kernel.h>
#include <tilewise/tilewise.h>

#include <map>
#include <random>
#include <thread>

#include "calls.h"
#include "cluster.h"
#include "slow.h"

namespace tilewise::bench {
namespace {

const Kernel kNoop{.name = "tilewise.noop", .version = "1"};

}  // namespace

void bench_tasks(const Settings& settings, Report& report) {
  const std::int64_t tasks = settings.quick ? 100'000 : 1'000'000;
  const Cluster cluster("1GiB");
  const Session session = cluster.session();
  Array small = session.ones({1});
  small.persist().wait();
  std::vector<double> block_ops;
  for (int i = -1; i < settings.repeats; ++i) {
    const double before = cluster.scheduler_cpu_seconds();
    calls(small, kNoop, tasks).persist().wait();
    if (i >= 0)
      block_ops.push_back((cluster.scheduler_cpu_seconds() - before) / static_cast<double>(tasks) * 1e6);
  }
  report.at_most({.metric = "scheduler CPU a task, " + std::to_string(tasks) + " no-ops of one op",
                  .value = median(block_ops),
                  .unit = "us"},
                 0.3);
}

// Rows of tasks, each of which reads two blocks of the row before, drawn at random. A slow task before them all keeps them pending
// while the scheduler's memory is looked at: all that it has for them then, and at the most.
void bench_explicit(const Settings& settings, Report& report) {
  const std::int64_t width = 50'000, rows = settings.quick ? 2 : 20, tasks = width * rows;
  const Cluster cluster("1GiB", {"--plugin", BENCH_SLOW_PLUGIN});
  const Session session = cluster.session();
  const Grid grid = *Grid::uniform({width}, {1});
  std::mt19937_64 draw(7);
  const auto record = [&](Array row) {
    for (std::int64_t t = 0; t < rows; ++t) {
      BlockLists lists{row, std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(width))};
      for (auto& two : lists.blocks)
        for (int k = 0; k < 2; ++k)
          two.push_back(static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(width)));
      row = map_blocks(kNoop, {lists}, {{DType::kFloat64, grid}}).front();
    }
    return row;
  };
  Array first = session.ones({width}, {.block = {1}});
  first.persist().wait();
  std::vector<double> cpu_us;
  for (int i = -1; i < settings.repeats; ++i) {
    Array last = record(first);
    const double before = cluster.scheduler_cpu_seconds();
    last.persist().wait();
    if (i >= 0)
      cpu_us.push_back((cluster.scheduler_cpu_seconds() - before) / static_cast<double>(tasks) * 1e6);
  }
  const std::string what = std::to_string(tasks) + " tasks with two inputs of their own";
  report.at_most({.metric = "scheduler CPU a task, " + what, .value = median(cpu_us), .unit = "us"}, 1);

  std::vector<double> pending, most;
  for (int i = 0; i < settings.repeats; ++i) {
    // A second for each block that the first row reads.
    const SlowParams params{.row = 0, .sleep_ns = 900'000'000};
    const Kernel slow{.name = "bench.slow",
                      .version = "1.0",
                      .params = {reinterpret_cast<const char*>(&params), sizeof params}};
    BlockLists each{first, std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(width))};
    for (std::size_t b = 0; b < each.blocks.size(); ++b) each.blocks[b] = {static_cast<std::int64_t>(b)};
    Array late = map_blocks(slow, {each}, {{DType::kFloat64, grid}}).front();
    Array last = record(late);
    const double before = static_cast<double>(cluster.resident_bytes(0));
    Future done = last.persist();
    double peak = 0, now = 0;
    for (int look = 0; look < 60; ++look) {  // 3 s
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      now = static_cast<double>(cluster.resident_bytes(0)) - before;
      peak = std::max(peak, now);
    }
    done.cancel();
    pending.push_back(now / static_cast<double>(tasks));
    most.push_back(peak / static_cast<double>(tasks));
    last = first, late = first;
    std::this_thread::sleep_for(std::chrono::seconds(1));  // a step that runs is not broken off
  }
  report.at_most(
      {.metric = "scheduler memory a pending task, " + what, .value = median(pending), .unit = "B"}, 96);
  report.note("and at the most, while the plan is made and sent: " + std::to_string(median(most)) + " B");
}

// From the call to the first task's, by the clock that all processes share. What is not needed any more is cancelled.
void bench_start(const Settings& settings, Report& report) {
  const std::vector<std::int64_t> sizes = settings.quick
                                              ? std::vector<std::int64_t>{1'000, 100'000}
                                              : std::vector<std::int64_t>{1'000, 1'000'000, 10'000'000};
  const Cluster cluster("1GiB", {"--plugin", BENCH_STAMP_PLUGIN});
  const Session session = cluster.session();
  FirstTask first_task(session);
  std::map<std::int64_t, std::vector<double>> took;
  for (int i = -1; i < settings.repeats; ++i) {
    for (const std::int64_t tasks : sizes) {
      const double ms = first_task.after_ms(tasks, false);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the few blocks that were made are freed
      if (i >= 0) took[tasks].push_back(ms);
    }
  }
  for (const std::int64_t tasks : sizes) {
    const double few = median(took[sizes.front()]), ms = median(took[tasks]);
    report.at_most(
        {.metric = "call to first task, " + std::to_string(tasks) + " tasks", .value = ms, .unit = "ms"}, 5);
    if (tasks == sizes.back())
      report.at_most({.metric = "call to first task, " + std::to_string(tasks) + " tasks beside few",
                      .value = ms,
                      .unit = "ms",
                      .reference = std::to_string(sizes.front()) + " tasks",
                      .reference_value = few},
                     1.5);
  }
}

}  // namespace tilewise::bench
