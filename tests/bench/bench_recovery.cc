// The figures of recovery.
//
//   bench_recovery --json FILE [--quick] [--only PART]     parts: worker cost scheduler ops lineage simulation notice
//
// Clusters are real processes on this machine. --quick shrinks sizes and counts: for trying, not for figures.
#include <tilewise/base/prng.h>
#include <tilewise/tilewise.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "../integration/programs.h"
#include "../sim/families.h"
#include "cluster.h"
#include "report.h"
#include "slow.h"

namespace tilewise::bench {
namespace {

using std::chrono::milliseconds;
using testing::kPatience;

constexpr Duration kLong = std::chrono::seconds(300);

std::int64_t number_in(const std::string& json, const std::string& key) {
  const auto at = json.find("\"" + key + "\":");
  if (at == std::string::npos) throw std::runtime_error("no " + key + " in " + json);
  return std::stoll(json.substr(at + key.size() + 3));
}
std::int64_t tasks_done(const testing::Cluster& cluster) { return number_in(cluster.status(), "tasks_done"); }

void require(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

// ---- one of four workers dies in the middle of a product -----------------------------------------------------------------

constexpr int kWorkers = 4;

struct Product {
  double seconds = 0;
  std::vector<double> values;
};

// a @ b, with a worker killed when half of it is done unless `victim` is negative.
Product product(testing::Cluster& cluster, const Array& a, const Array& b, int victim) {
  Product out;
  const double began = now();
  Array c = matmul(a, b);
  const Future future = c.persist();
  if (victim >= 0) {
    require(testing::eventually([&] {
              const Progress p = future.progress();
              return p.total > 0 && 2 * p.done >= p.total;
            }),
            "the product does not get on");
    kill(testing::working(cluster.worker(victim).pid()), SIGKILL);  // its supervisor says what it was at
  }
  future.wait({.timeout = kLong});
  out.seconds = now() - began;
  out.values = c.get<double>({.timeout = kLong});
  return out;
}

// Tasks of the survivors since then: what one of the product took on average; how many there were of everything else, and what they took.
struct Ran {
  double task_s = 0;
  std::int64_t others = 0;
  double others_s = 0;
};
Ran ran_since(const Session& session, std::int64_t since_ns) {
  std::set<std::pair<std::uint64_t, std::int64_t>> products, others;
  double seconds = 0, others_s = 0;
  const Trace trace = session.trace();
  require(trace.cut == 0, "the trace was cut");
  for (const TraceStep& step : trace.steps) {
    if (step.kind != msg::TraceKind::kStep || step.start_ns < since_ns) continue;
    const bool product = step.what == "matmul";
    (product ? products : others).emplace(step.op, step.point);
    (product ? seconds : others_s) += 1e-9 * static_cast<double>(step.end_ns - step.start_ns);
  }
  return {seconds / static_cast<double>(products.size()), static_cast<std::int64_t>(others.size()), others_s};
}

// The lost work's own time: of the product the tasks that the dead worker had told to have done and that were done again (the scheduler
// counts both), by what such a task took the survivors on average; its blocks of the operands, by what making them again took, as the
// survivors' traces tell; dealt out to these. What the dead had done without having told it (tasks that it had begun) counts against
// us, and so does what its leaving costs in speed; on a machine with fewer cores than workers that is nothing.
void bench_worker(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 2048 : 5120, block = n / 16, tasks = 16 * 16;
  testing::Cluster cluster({.workers = kWorkers, .devices = 1, .memory = "1GiB"});
  const Session session = cluster.session("bench", false);
  std::vector<double> plain, extra, lost, ratios, again, operands;
  int next = 0, newest = kWorkers;
  for (int i = -1; i < settings.repeats; ++i) {
    require(session.wait_for_devices(kWorkers, kPatience), "the workers are not there");
    Array a = session.random.uniform({n, n}, {.seed = 3, .block = {block, block}});
    Array b = session.random.uniform({n, n}, {.seed = 4, .block = {block, block}});
    session.persist({a, b}).wait({.timeout = kLong});
    const Product whole = product(cluster, a, b, -1);
    if (i < 0) continue;
    const std::int64_t before = tasks_done(cluster);
    const auto since = std::chrono::steady_clock::now().time_since_epoch().count();
    const Product torn = product(cluster, a, b, next);
    require(testing::same_bits(whole.values, torn.values), "other bits after a worker's death");
    const Ran ran = ran_since(session, since);
    const auto redone = static_cast<double>(tasks_done(cluster) - before - tasks - ran.others);
    plain.push_back(whole.seconds);
    extra.push_back(torn.seconds - whole.seconds);
    again.push_back(redone);
    lost.push_back((redone * ran.task_s + ran.others_s) / (kWorkers - 1));
    operands.push_back(ran.others_s / (kWorkers - 1));
    ratios.push_back(extra.back() / lost.back());
    next = newest++;
    cluster.add_worker({});
  }
  char text[200];
  std::snprintf(
      text, sizeof text,
      "a product of %lld tasks takes %.2f s; %.0f tasks done again, %.3f s for the operands' (medians)",
      static_cast<long long>(tasks), median(plain), median(again), median(operands));
  report.note(text);
  report.note("extra time beside the lost work's own time, pair by pair, median: " +
              std::to_string(median(ratios)));
  report.at_most({.metric = "1 of 4 workers killed mid-matmul: extra time",
                  .value = median(extra),
                  .unit = "s",
                  .reference = "the lost work's own time",
                  .reference_value = median(lost)},
                 1.3);
}

// ---- what bookkeeping costs -----------------------------------------------------------------------------------------------

constexpr int kSubmits = 100;

// Tasks that do nothing, as a hundred submits (each a record of the journal) that read one array.
double noops(const Array& small, std::int64_t tasks) {
  ir::DimMap whole;
  whole.kind = ir::DimMap::Kind::kWhole;
  return seconds_of([&] {
    std::vector<Future> waiting;
    std::vector<Array> held;
    for (int i = 0; i < kSubmits; ++i) {
      const Grid grid = *Grid::uniform({tasks / kSubmits}, {1});
      held.push_back(map_blocks({.name = "tilewise.noop", .version = "1"}, std::vector{small}, {{whole}},
                                {{DType::kFloat64, grid}})
                         .front());
      waiting.push_back(held.back().persist());
    }
    for (const Future& future : waiting) future.wait({.timeout = kLong});
  });
}

// The same as a loop on one array: each submit reads block by block what the one before has made, all of them lineage but the last.
double noop_steps(const Session& session, std::int64_t tasks) {
  const Grid grid = *Grid::uniform({tasks / kSubmits}, {1});
  return seconds_of([&] {
    Array x = session.zeros({tasks / kSubmits}, {.block = {1}});
    Future last;
    for (int i = 0; i < kSubmits; ++i) {
      x = map_blocks({.name = "tilewise.noop", .version = "1"}, std::vector{x}, {}, {{DType::kFloat64, grid}})
              .front();
      last = x.persist();
    }
    last.wait({.timeout = kLong});
  });
}

// With and without: the journal (--state-dir), supervisors and black boxes (--no-supervisor), lineage (--max-lineage) and the second
// copies that cut it (--max-recompute). The checks that release builds keep (TW_CHECK) are in the programs: BENCH_UNCHECKED names the
// folder of a build without them (README.md), where there is one. What workers count of blocks (readers, versions) is not for recovery
// only: it says when memory is free.
//
// Two clusters of the same programs differ by up to 8 % (seen on two cores): who is started first, and who is measured after the other, whose
// releases are still under way. So each is, by turns, and its own work is waited for.
void bench_cost(const Settings& settings, Report& report) {
  const std::int64_t tasks = settings.quick ? 100'000 : 1'000'000;
  struct Figures {
    std::vector<double> wall, cpu, steps_wall, steps_cpu;
  };
  struct Side {
    Figures& figures;
    Cluster cluster;
    Session session;
    Array small;
    Side(Figures& of, const ClusterSettings& options)
        : figures(of), cluster(options), session(cluster.session()), small(session.ones({1})) {
      small.persist().wait();
    }
    // All that it has done by now, whatever was left to do.
    double settled_cpu() const {
      double last = cluster.cpu_seconds();
      for (;;) {
        std::this_thread::sleep_for(milliseconds(50));
        const double next = cluster.cpu_seconds();
        if (next - last < 0.002) return next;
        last = next;
      }
    }
    void measure(std::int64_t tasks, bool counts) {
      const double before = settled_cpu(), took = noops(small, tasks);
      const double between = settled_cpu(), steps = noop_steps(session, tasks);
      const double after = settled_cpu();
      if (!counts) return;
      figures.wall.push_back(took), figures.cpu.push_back(between - before);
      figures.steps_wall.push_back(steps), figures.steps_cpu.push_back(after - between);
    }
  };
  const testing::TempFolder state;
  const ClusterSettings bare{.memory = "1GiB",
                             .worker_args = {"--no-supervisor"},
                             .scheduler_args = {"--max-lineage", "0", "--max-recompute", "0"}};
  ClusterSettings unchecked = bare, full{.memory = "1GiB"};
  const char* build = std::getenv("BENCH_UNCHECKED");
  if (build != nullptr) unchecked.build = build;
  Figures with, without;
  for (int round = 0; round < 2; ++round) {
    full.scheduler_args = {"--state-dir", state / ("kept" + std::to_string(round))};
    const bool with_first = round == 0;
    Side one(with_first ? with : without, with_first ? full : unchecked);
    Side other(with_first ? without : with, with_first ? unchecked : full);
    for (int i = -1; i < settings.repeats; ++i) {
      const bool in_order = i % 2 == 0;
      (in_order ? one : other).measure(tasks, i >= 0);
      (in_order ? other : one).measure(tasks, i >= 0);
    }
  }
  const std::string what =
      build != nullptr ? "checks, journal, black box, lineage" : "journal, black box, lineage";
  if (build == nullptr)
    report.note("the checks of release builds are on both sides: no BENCH_UNCHECKED (tests/bench/README.md)");
  const auto compare = [&](const char* name, const char* which, const std::vector<double>& ours,
                           const std::vector<double>& bare_s) {
    report.at_most({.metric = what + ": " + name + ", " + std::to_string(tasks) + " no-ops" + which,
                    .value = median(ours),
                    .unit = "s",
                    .reference = "without",
                    .reference_value = median(bare_s)},
                   1.05);
  };
  compare("CPU", "", with.cpu, without.cpu);
  compare("wall time", "", with.wall, without.wall);
  compare("CPU", " of a loop", with.steps_cpu, without.steps_cpu);
  compare("wall time", " of a loop", with.steps_wall, without.steps_wall);
}

// ---- the scheduler dies -------------------------------------------------------------------------------------------------------

// Rows of tasks that sleep, each row an op that reads the one before. Values below 2 * rows, exact in float64 or rounded alike.
Array slow_rows(const Array& start, int rows, std::int64_t width, std::int64_t sleep_ns) {
  Array row = start;
  const Grid grid = *Grid::uniform({width}, {1});
  for (int i = 0; i < rows; ++i) {
    const SlowParams params{i, sleep_ns};
    const Kernel kernel{.name = "bench.slow",
                        .version = "1.0",
                        .params = {reinterpret_cast<const char*>(&params), sizeof params}};
    row = map_blocks(kernel, std::vector{row}, {}, {{DType::kFloat64, grid}}).front();
  }
  return row;
}

// Seconds from a new scheduler's start, after one was killed: until it is ready, and until a new task of `session` is answered.
void restart(testing::Cluster& cluster, const Session& session, std::vector<double>& ready,
             std::vector<double>& answered) {
  cluster.scheduler().signal(SIGKILL);
  require(cluster.scheduler().wait().has_value(), "a scheduler that SIGKILL does not end");
  const double began = now();
  cluster.restart_scheduler();
  ready.push_back(now() - began);
  require(sum(session.ones({2})).item<double>() == 2, "a wrong sum");
  answered.push_back(now() - began);
}

// Two sessions with a long graph each: at every kill 1e5 tasks or more are not done. Ready: the new scheduler has read its
// state, listens and says so. Answered: a third session, whose link broke too, gets the result of a new task. At the end both
// long graphs must have every value right, and the tasks that were done are counted.
void bench_scheduler(const Settings& settings, Report& report) {
  const int kills = settings.quick ? 3 : 100, rows = 400;
  const std::int64_t width = 500, live = 100'000, all = 2 * rows * width, sleep_ns = 100'000;
  testing::Cluster cluster({.workers = 2,
                            .devices = 1,
                            .memory = "512MiB",
                            .worker_args = {"--plugin", BENCH_SLOW_PLUGIN},
                            .keep_state = true});
  const Session sessions[] = {cluster.session("one"), cluster.session("two")},
                third = cluster.session("third");
  require(third.wait_for_devices(2, kPatience), "the workers are not there");
  Prng prng(7);
  std::vector<double> ready, answered;
  int lost = 0;
  double redone = 0;
  while (static_cast<int>(ready.size()) < kills) {
    std::vector<Array> starts, ends;
    std::vector<Future> running;
    for (const Session& session : sessions) starts.push_back(session.ones({width}, {.block = {1}}));
    const std::int64_t before = tasks_done(cluster), once = 2 * width;  // the ones
    for (int i = 0; i < 2; ++i) {
      ends.push_back(slow_rows(starts[static_cast<std::size_t>(i)], rows, width, sleep_ns));
      running.push_back(sessions[i].compute({ends.back()}));
    }
    std::int64_t small = 0;
    while (static_cast<int>(ready.size()) < kills) {
      std::this_thread::sleep_for(milliseconds(prng.between(50, 500)));
      std::int64_t done = 0;
      for (const Future& future : running) done += future.progress().done;
      if (all - done < live) break;
      restart(cluster, third, ready, answered);
      small += 1;
    }
    for (const Future& future : running) {
      try {
        const std::vector<double> values = future.get<double>(0, {.timeout = kLong});
        double want = 1;
        for (int i = 0; i < rows; ++i) want = want / 2 + i;
        require(values == std::vector<double>(static_cast<std::size_t>(width), want), "wrong values");
      } catch (const ArrayError& e) {
        report.note(std::string("a session was lost: ") + e.what());
        ++lost;
      }
    }
    // Of the third session at least one task each.
    redone += static_cast<double>(tasks_done(cluster) - before - all - once - small);
  }
  std::sort(ready.begin(), ready.end());
  report.note(std::to_string(kills) + " kills of the scheduler at 1e5 live tasks or more, two long graphs");
  report.at_most({.metric = "scheduler killed: ready again, the slowest", .value = ready.back(), .unit = "s"},
                 5);
  report.note("the median " + std::to_string(median(ready)) +
              " s; a new task of another session answered: median " + std::to_string(median(answered)) +
              " s");
  report.at_most({.metric = "sessions lost", .value = static_cast<double>(lost), .unit = ""}, 0);
  report.at_most({.metric = "tasks done again",
                  .value = redone,
                  .unit = "",
                  .reference = "tasks",
                  .reference_value = static_cast<double>(all)},
                 0.01);
}

// As above, where each of the 1e5 tasks is an op of its own, whose result is held: all wait for another graph. They are in the state that is
// read, and in the logs of workers that may have to be sent again.
void bench_ops(const Settings& settings, Report& report) {
  const int kills = settings.quick ? 2 : 5, requests = settings.quick ? 5 : 50, ops = 2'000;
  testing::Cluster cluster(
      {.workers = 2,
       .devices = 1,
       .memory = "512MiB",
       .scheduler_args = {"--passes-off", "shared-tapes"},  // which would join four of them to one
       .worker_args = {"--plugin", BENCH_SLOW_PLUGIN},
       .keep_state = true});
  const Session one = cluster.session("one"), third = cluster.session("third");
  require(third.wait_for_devices(2, kPatience), "the workers are not there");
  Array gate = slow_rows(one.ones({1}, {.block = {1}}), 2'000, 1, 250'000'000);
  const Future opens = gate.persist();  // held, so that the others read it and do not make it anew
  std::vector<Array> held;
  std::vector<Future> waiting;
  for (int request = 0; request < requests; ++request) {
    std::vector<Array> results;
    for (int i = 0; i < ops; ++i) results.push_back(gate + static_cast<double>(request * ops + i));
    waiting.push_back(one.persist(results));
    held.insert(held.end(), results.begin(), results.end());
  }
  std::vector<double> ready, answered;
  for (int i = 0; i < kills; ++i) {
    require(sum(third.ones({2})).item<double>() == 2, "a wrong sum");
    restart(cluster, third, ready, answered);
    require(opens.progress().done < opens.progress().total, "they wait no more");
  }
  for (Future& future : waiting) future.cancel();
  const std::string which = std::to_string(requests * ops) + " ops of one task alive, scheduler killed: ";
  report.at_most({.metric = which + "ready again, the slowest",
                  .value = *std::max_element(ready.begin(), ready.end()),
                  .unit = "s"},
                 5);
  report.at_most({.metric = which + "a new task answered, the slowest",
                  .value = *std::max_element(answered.begin(), answered.end()),
                  .unit = "s"},
                 5);
}

// ---- a loop on one array ----------------------------------------------------------------------------------------------------------

std::int64_t resident_kb(int pid) {
  const std::string status = testing::read_file("/proc/" + std::to_string(pid) + "/status");
  const auto at = status.find("VmRSS:");
  return at == std::string::npos ? 0 : std::stoll(status.substr(at + 6));
}

// What the past of what is held has in ops, and the scheduler in memory, at a tenth of the steps and at all of them; then the workers
// die one after the other, so that both copies of the array have to serve.
void bench_lineage(const Settings& settings, Report& report) {
  const int steps = settings.quick ? 20'000 : 100'000;
  constexpr std::int64_t kElements = 4'000;
  const testing::TempFolder folder;
  testing::Cluster cluster(
      {.workers = 2,
       .devices = 1,
       .memory = "64MiB",
       .scheduler_args = {"--dashboard-listen", "127.0.0.1:0", "--dashboard-address-file", folder / "page"}});
  const Session session = cluster.session();
  require(session.wait_for_devices(2, kPatience), "the workers are not there");
  const auto past = [&] {
    return number_in(
        cluster.tool({"top", "--json", "--dashboard", testing::read_file(folder / "page")}).output,
        "lineage");
  };
  Array x = session.random.uniform({kElements}, {.seed = 5, .block = {kElements / 4}});
  std::vector<double> expected = x.get<double>({.timeout = kLong});
  int turns = 0;
  std::int64_t longest = 0;
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ++turns;
      Array next = x * 0.5 + static_cast<double>(turns % 1000);
      const Future future = next.persist();
      if (turns % 20 == 0) future.wait({.timeout = kLong});
      x = next;
      for (double& e : expected) e = e * 0.5 + static_cast<double>(turns % 1000);
      if (turns % (steps / 50) == 0) longest = std::max(longest, past());
    }
  };
  run(steps / 10);
  const std::int64_t early_kb = resident_kb(cluster.scheduler().pid());
  const double began = now();
  run(steps - steps / 10);
  const double per_step_us = (now() - began) / (0.9 * steps) * 1e6;
  const std::int64_t late_kb = resident_kb(cluster.scheduler().pid());
  double slowest = 0;
  for (int victim = 0; victim < 2; ++victim) {
    kill(testing::working(cluster.worker(victim).pid()), SIGKILL);
    const double killed = now();
    require(x.get<double>({.timeout = kLong}) == expected, "wrong values after a loss");
    slowest = std::max(slowest, now() - killed);
    cluster.add_worker({});
    require(session.wait_for_devices(2, kPatience), "a worker is not there");
    run(steps / 10);
  }
  report.note(std::to_string(turns) + " steps of " + std::to_string(per_step_us) +
              " us; after a worker's death right after " + std::to_string(slowest) + " s at most");
  report.at_most({.metric = "lineage of one array after " + std::to_string(steps) + " steps",
                  .value = static_cast<double>(longest),
                  .unit = "ops"},
                 5'000);
  report.at_most({.metric = "the scheduler's memory then",
                  .value = static_cast<double>(late_kb) / 1024,
                  .unit = "MiB",
                  .reference = "after a tenth of them",
                  .reference_value = static_cast<double>(early_kb) / 1024},
                 1.5);
}

// ---- simulation ------------------------------------------------------------------------------------------------------------------

void bench_simulation(const Settings& settings, Report& report) {
  const double length = settings.quick ? 3 : 30;
  std::int64_t events = 0, worlds = 0, violations = 0;
  const double began = now();
  for (std::uint64_t seed = 1; now() - began < length; ++seed) {
    for (const sim::Family& family : sim::kFamilies) {
      const sim::Outcome outcome = sim::World(family.knobs(seed)).run();
      events += outcome.events;
      ++worlds;
      if (outcome.violation.empty()) continue;
      ++violations;
      report.note(std::string(family.name) + ", seed " + std::to_string(seed) + ": " + outcome.violation);
    }
  }
  report.at_least({.metric = "simulation, one thread, " + std::to_string(events) + " events",
                   .value = static_cast<double>(events) / (now() - began),
                   .unit = "events/s"},
                  1e6 / 60);
  report.at_most({.metric = "violations in " + std::to_string(worlds) + " worlds",
                  .value = static_cast<double>(violations),
                  .unit = ""},
                 0);
}

// ---- noticing -----------------------------------------------------------------------------------------------------------------------

// From the signal to the moment when a client has been told that the worker is gone.
double notice_s(testing::Cluster& cluster, const Session& session, int worker, int signal) {
  const std::size_t before = session.devices().size();
  const double began = now();
  kill(testing::working(cluster.worker(worker).pid()), signal);
  while (session.devices().size() == before) {
    require(now() - began < 60, "a worker's end is not noticed");
    std::this_thread::sleep_for(milliseconds(1));
  }
  return now() - began;
}

void bench_notice(const Settings& settings, Report& report) {
  constexpr double kSilence = 2;
  const std::vector<std::string> silence{"--silence-timeout", std::to_string(static_cast<int>(kSilence))};
  testing::Cluster cluster({.workers = 1, .devices = 1, .memory = "64MiB", .scheduler_args = silence});
  const Session session = cluster.session();
  int next = 1;
  const auto measure = [&](int signal, int times) {
    std::vector<double> all;
    for (int i = 0; i < times; ++i) {
      cluster.add_worker(silence);
      require(session.wait_for_devices(2, kPatience), "a worker is not there");
      all.push_back(notice_s(cluster, session, next, signal));
      cluster.worker(next++).signal(SIGKILL);
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const std::vector<double> killed = measure(SIGKILL, 3 * settings.repeats);
  report.note("a worker killed with -9, until a client knows: median " +
              std::to_string(median(killed) * 1e3) + " ms");
  report.at_most(
      {.metric = "the slowest of " + std::to_string(killed.size()), .value = killed.back(), .unit = "s"}, 1);
  const std::vector<double> silent = measure(SIGSTOP, settings.repeats);
  report.at_most({.metric = "a worker stopped with SIGSTOP, the slowest",
                  .value = silent.back(),
                  .unit = "s",
                  .reference = "--silence-timeout",
                  .reference_value = kSilence},
                 1.5);
}

const std::vector<Part> kParts = {{"worker", bench_worker},       {"cost", bench_cost},
                                  {"scheduler", bench_scheduler}, {"ops", bench_ops},
                                  {"lineage", bench_lineage},     {"simulation", bench_simulation},
                                  {"notice", bench_notice}};

}  // namespace
}  // namespace tilewise::bench

int main(int argc, char** argv) { return tilewise::bench::run_parts(argc, argv, tilewise::bench::kParts); }
