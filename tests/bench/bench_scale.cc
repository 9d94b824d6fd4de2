// The real scheduler core places graphs on workers that exist on paper (scale/); what comes out is run there, beside what
// simpler policies would have done, all under one cost model.
#include "bench_scale.h"

#include <tilewise/place/place.h>

#include <cmath>
#include <cstdio>

#include "scale/placed.h"
#include "scale/rivals.h"

namespace tilewise::bench {
namespace {

using scale::Control;
using scale::Layout;
using scale::Machine;
using scale::Outcome;
using scale::place_and_run;
using scale::Placed;
using scale::Program;

// ---- makespan and traffic ---------------------------------------------------------------------------------------------

void print(const char* name, const Outcome& o, double bound_s) {
  std::printf("  %-22s %10.4f s  %5.2f x bound  moved %9.1f MiB, between hosts %9.1f MiB, peak %8.1f MiB\n",
              name, o.seconds, o.seconds / bound_s, static_cast<double>(o.moved_bytes) / 1048576.0,
              static_cast<double>(o.crossing_bytes) / 1048576.0,
              static_cast<double>(o.peak_bytes) / 1048576.0);
}

// The same placement, if every reader got its bytes from the owner (docs/design/trees.md).
Outcome without_trees(const Placed& placed, const Machine& machine) {
  Machine star = machine;
  star.tree_bytes = INT64_MAX;
  return scale::run(placed.graph, star, placed.owners);
}

void compare(const std::string& where, const Layout& layout, const Program& program, Report& report) {
  Control control(layout);
  const Machine& machine = control.machine();
  const Placed ours = place_and_run(control, program);
  const double bound_s = scale::lower_bound_s(ours.graph, machine, program.received_bytes);
  const std::size_t devices = machine.devices.size();
  const std::pair<const char*, Outcome> rivals[] = {
      {"round-robin", scale::run(ours.graph, machine, scale::round_robin(ours.graph, devices))},
      {"random", scale::run(ours.graph, machine, scale::at_random(ours.graph, devices, 1))},
      {"Dask-like", scale::run(ours.graph, machine, scale::like_dask())}};
  std::printf("%s, %s: %u tasks, %u steps, lower bound %.4f s\n", program.name.c_str(), where.c_str(),
              ours.graph.tasks(), ours.graph.steps(), bound_s);
  print("ours", ours.outcome, bound_s);
  print("ours, without trees", without_trees(ours, machine), bound_s);
  const std::pair<const char*, Outcome>* best = &rivals[0];
  for (const auto& rival : rivals) {
    print(rival.first, rival.second, bound_s);
    if (rival.second.seconds < best->second.seconds) best = &rival;
  }
  const std::string metric = "paper makespan, " + program.name + ", " + where;
  report.at_most({.metric = metric,
                  .value = ours.outcome.seconds,
                  .unit = "s",
                  .reference = "lower bound",
                  .reference_value = bound_s},
                 1.15);
  report.at_most({.metric = metric,
                  .value = ours.outcome.seconds,
                  .unit = "s",
                  .reference = std::string("best rival: ") + best->first,
                  .reference_value = best->second.seconds},
                 1.001);  // ties differ by a latency
}

void families(bool quick, Report& report) {
  const Layout hosts{.hosts = quick ? 2 : 8, .workers_a_host = 8};
  Layout unequal = hosts;
  for (int d = 0; d < unequal.devices(); ++d) unequal.slower.push_back(d % 4 == 3 ? 3.0 : 1.0);
  const int n = hosts.devices();
  const std::string all = std::to_string(n) + " host devices on " + std::to_string(hosts.hosts) + " hosts";
  for (const auto& [where, layout] :
       {std::pair(all, hosts), std::pair(all + ", every 4th 3 x slower", unequal)}) {
    compare(where, layout, scale::random_program(n, 1), report);
    compare(where, layout, scale::matmul_program(n), report);
    compare(where, layout, scale::reductions_program(n), report);
    compare(where, layout, scale::stencil_program(n), report);
    compare(where, layout, scale::regression_program(n), report);
  }
}

// On the best grid of devices, each of which receives the rest of its rows of A and of its columns of B (SUMMA); with at
// most so many layers, each of which multiplies its part of k and sends it to be summed, the best of those too (2.5D).
double least_bytes(std::int64_t m, std::int64_t n, std::int64_t k, int devices, int layers) {
  double best = 0;
  for (int layer = 1; layer <= layers; ++layer) {
    for (int rows = 1; rows <= devices / layer; ++rows) {
      if (devices % (layer * rows) != 0) continue;
      const int columns = devices / layer / rows;
      const double a = static_cast<double>(m) * static_cast<double>(k) * (columns - 1);
      const double b = static_cast<double>(k) * static_cast<double>(n) * (rows - 1);
      const double c = static_cast<double>(m) * static_cast<double>(n) * (layer - 1);
      if (best == 0 || a + b + c < best) best = a + b + c;
    }
  }
  return 8 * best;
}

void matmul_traffic(Report& report) {
  const Layout gpus{.hosts = 8, .workers_a_host = 8, .kind = place::kCudaKind};
  const struct {
    const char* name;
    std::int64_t m, n, k;
    int k_parts = 0;
  } shapes[] = {{"square", 16384, 16384, 16384},
                {"C wide", 4096, 65536, 4096},
                {"k short", 32768, 32768, 2048},
                {"k long", 8192, 8192, 65536},
                {"square, k in 4 parts", 16384, 16384, 16384, 4},
                {"k long, in 8 parts", 8192, 8192, 65536, 8},
                {"k long, in 64 parts", 8192, 8192, 65536, 64},
                {"C wide, k in 2 parts", 4096, 65536, 4096, 2}};
  for (const auto& [name, m, n, k, k_parts] : shapes) {
    Control control(gpus);
    const Placed ours = place_and_run(control, scale::matmul_program(m, n, k, 1024, gpus.devices(), k_parts));
    print(name, ours.outcome, 1);
    print("  without trees", without_trees(ours, control.machine()), 1);
    report.at_most({.metric = std::string("paper matmul traffic, 64 GPUs on 8 hosts, ") + name,
                    .value = static_cast<double>(ours.outcome.moved_bytes) / 1e9,
                    .unit = "GB",
                    .reference = k_parts > 1 ? "SUMMA or 2.5D" : "SUMMA",
                    .reference_value = least_bytes(m, n, k, gpus.devices(), std::max(1, k_parts)) / 1e9},
                   1.1);
  }
}

// ---- the scheduler's own cost -----------------------------------------------------------------------------------------

// Microseconds a task in the core: placing, telling workers, and all their reports.
double core_us_a_task(int workers, std::int64_t tasks, int repeats) {
  Control control({.hosts = std::max(1, workers / 8), .workers_a_host = std::min(8, workers)});
  std::vector<double> costs;
  for (int i = 0; i < repeats; ++i)
    costs.push_back(place_and_run(control, scale::rows_program(tasks, 10)).core_s /
                    static_cast<double>(tasks) * 1e6);
  return median(costs);
}

void core_cost(bool quick, Report& report) {
  const std::int64_t each = quick ? 1000 : 10'000;
  const double few = core_us_a_task(2, 2 * each, 5), many = core_us_a_task(1000, 1000 * each, 1);
  report.at_most(
      {.metric = "paper: scheduler cost a task, 1,000 workers, " + std::to_string(each) + " tasks each",
       .value = many,
       .unit = "us",
       .reference = "2 workers",
       .reference_value = few},
      1.5);
  const double small = core_us_a_task(64, 10'000, 5),
               large = core_us_a_task(64, quick ? 1'000'000 : 10'000'000, 1);
  report.at_most({.metric = std::string("paper: scheduler cost a task, ") + (quick ? "1e6" : "1e7") +
                            " tasks, 64 workers",
                  .value = large,
                  .unit = "us",
                  .reference = "1e4 tasks",
                  .reference_value = small},
                 1.15);
  if (quick) return;
  const double start = now();
  Control control({.hosts = 1250, .workers_a_host = 8});
  const double joined = now() - start;
  const Placed most = place_and_run(control, scale::rows_program(10'000'000, 10));
  report.note("10,000 workers, 1e7 tasks: scheduler cost " + std::to_string(most.core_s / 1e7 * 1e6) +
              " us a task; joining took " + std::to_string(joined) + " s, the whole " +
              std::to_string(now() - start) + " s in one thread; makespan " +
              std::to_string(most.outcome.seconds) + " s on paper");
}

}  // namespace

void bench_scale(bool quick, Report& report) {
  families(quick, report);
  matmul_traffic(report);
  core_cost(quick, report);
}

}  // namespace tilewise::bench
