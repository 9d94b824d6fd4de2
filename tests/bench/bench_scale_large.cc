// The same as bench_scale.cc with 10,000 workers and up to 1e7 tasks of every family, one thread. What a size costs is told; no part is
// begun once the time is used up (BENCH_SECONDS, 240 unless told). BENCH_CASES=stencil: only families with that in their name.
#include "bench_scale.h"

#include <malloc.h>

#include <cstdio>
#include <cstdlib>

#include "scale/placed.h"
#include "scale/rivals.h"

namespace tilewise::bench {
namespace {

using scale::Control;
using scale::Outcome;
using scale::Placed;
using scale::Program;

// A plan goes whole to every worker, and the core holds them all until they are sent: of explicit lists, some 20 bytes a task, so
// many tasks only.
constexpr std::int64_t kMostListed = std::int64_t{2} << 30;
std::int64_t listed_tasks(std::int64_t tasks, int workers) {
  return std::min(tasks, kMostListed / (20 * std::int64_t{workers}));
}

struct Family {
  const char* name;
  Program (*make)(int devices, std::int64_t tasks);
};
const Family kFamilies[] = {
    {"random graph",
     [](int devices, std::int64_t tasks) {
       return scale::large_random_program(listed_tasks(tasks, devices), 1);
     }},
    {"matmul", scale::large_matmul_program},
    {"reductions", [](int, std::int64_t tasks) { return scale::large_reductions_program(tasks); }},
    {"stencil", [](int, std::int64_t tasks) { return scale::large_stencil_program(tasks); }},
    {"logistic regression", [](int, std::int64_t tasks) { return scale::large_regression_program(tasks); }}};

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

class Large {
 public:
  Large(int workers, Report& report)
      : report_(report),
        control_({.hosts = std::max(1, workers / 8), .workers_a_host = std::min(8, workers)}) {
    const char* seconds = std::getenv("BENCH_SECONDS");
    until_ = start_ + (seconds != nullptr ? std::atof(seconds) : 240);
    workers_ = static_cast<int>(control_.machine().devices.size());
    std::printf("%d workers on %d hosts: joining took %.1f s\n", workers_, workers_ / 8, now() - start_);
  }

  void run(const Family& family, std::int64_t tasks, bool rivals) {
    const char* wanted = std::getenv("BENCH_CASES");
    if (wanted != nullptr && std::string(family.name).find(wanted) == std::string::npos) return;
    if (now() > until_) {
      report_.note(std::string(family.name) + ": left out, the time is used up");
      return;
    }
    const double begin = now();
    const Program program = family.make(workers_, tasks);
    const Placed ours = scale::place_and_run(control_, program);
    const double bound_s = scale::lower_bound_s(ours.graph, control_.machine(), program.received_bytes);
    const double each = 1e6 / static_cast<double>(ours.graph.tasks());
    const std::string where = std::string(family.name) + ", " + std::to_string(workers_) + " workers, " +
                              std::to_string(ours.graph.tasks()) + " tasks";
    std::printf("%s, %u steps\n", where.c_str(), ours.graph.steps());
    print("ours", ours.outcome, bound_s);
    report_.note("paper, " + where + ": scheduler cost " + std::to_string(ours.core_s * each) +
                 " us a task in the core and " + std::to_string(ours.wire.seconds * each) + " us encoding " +
                 std::to_string(mib(ours.wire.bytes)) + " MiB in " + std::to_string(ours.wire.messages) +
                 " messages to workers");
    report_.at_most({.metric = "paper makespan, " + where,
                     .value = ours.outcome.seconds,
                     .unit = "s",
                     .reference = "lower bound",
                     .reference_value = bound_s},
                    1.15);
    if (rivals && now() < until_) beside(where, ours, bound_s);
    report_.note("the whole of it took " + std::to_string(now() - begin) + " s in one thread");
  }

 private:
  static void print(const char* name, const Outcome& o, double bound_s) {
    std::printf(
        "  %-12s %10.4f s  %5.2f x bound  moved %11.1f MiB, between hosts %11.1f MiB, peak %8.1f MiB\n", name,
        o.seconds, o.seconds / bound_s, mib(o.moved_bytes), mib(o.crossing_bytes), mib(o.peak_bytes));
  }
  void beside(const std::string& where, const Placed& ours, double bound_s) {
    const scale::Machine& machine = control_.machine();
    const auto devices = static_cast<std::size_t>(workers_);
    const std::pair<const char*, Outcome> rivals[] = {
        {"round-robin", scale::run(ours.graph, machine, scale::round_robin(ours.graph, devices))},
        {"random", scale::run(ours.graph, machine, scale::at_random(ours.graph, devices, 1))},
        {"Dask-like", scale::run(ours.graph, machine, scale::like_dask())}};
    const std::pair<const char*, Outcome>* best = &rivals[0];
    for (const auto& rival : rivals) {
      print(rival.first, rival.second, bound_s);
      if (rival.second.seconds < best->second.seconds) best = &rival;
    }
    report_.at_most({.metric = "paper makespan, " + where,
                     .value = ours.outcome.seconds,
                     .unit = "s",
                     .reference = std::string("best rival: ") + best->first,
                     .reference_value = best->second.seconds},
                    1.001);
  }

  Report& report_;
  double start_ = now(), until_ = 0;
  Control control_;
  int workers_ = 0;
};

}  // namespace

// Rivals scatter what is read over all devices: a copy each, too many to hold of 1e7 tasks. They stand beside a tenth of them.
void bench_scale_large(bool quick, Report& report) {
  const int workers = quick ? 64 : 10'000;
  const std::int64_t most = quick ? 20'000 : 10'000'000;
  // The scheduler's own allocator (jemalloc) keeps what a step lets go of. The C library's gives it back to the system, and each step
  // would pay for its pages again: three times the time.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  Large large(workers, report);
  for (const Family& family : kFamilies) large.run(family, most / 10, true);
  for (const Family& family : kFamilies) large.run(family, most, false);
}

}  // namespace tilewise::bench
