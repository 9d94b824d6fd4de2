// Kills, stops and parts processes of a cluster at random while graphs with known answers run. See README.md.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>
#include <stdexcept>
#include <thread>

#include "../integration/harness.h"
#include "../temp_folder.h"
#include "graphs.h"
#include "monkey.h"
#include "rest.h"
#include "settings.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

constexpr int kCannot = 77;     // an exit code: this machine does not let us
constexpr double kReady_s = 5;  // a scheduler that was killed, in 99 of 100 times; sanitizers take longer

std::set<std::string> segments() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    names.insert(entry.path().filename());
  return names;
}

// While two sessions ask one thing after another.
void disturb(Monkey& monkey, const Graphs& graphs, const Session& one, const Session& two, std::uint64_t seed,
             Counts& counts) {
  std::atomic<bool> stop{false};
  std::thread first([&] { graphs.work(one, seed + 1, stop, counts); }),
      second([&] { graphs.work(two, seed + 2, stop, counts); });
  std::string broken;
  try {
    monkey.run();
  } catch (const std::exception& e) {
    broken = e.what();
  }
  stop = true;
  first.join();
  second.join();
  if (!broken.empty()) throw std::runtime_error(broken);
  monkey.look();
}

// Of the schedulers that were started again, what all but one in a hundred took at most.
double late_ready_s(const Counts& counts) {
  std::vector<double> sorted = counts.ready_s;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() - 1 - sorted.size() / 100];
}

void print(const Counts& counts) {
  const WayCounts& w = counts.ways;
  std::printf("%d graphs, %d asked again, %d late, %d given up by their client\n", counts.graphs.load(),
              counts.asked_again.load(), counts.late.load(), counts.cancelled.load());
  std::printf(
      "killed: %d workers (%d came back by themselves), %d schedulers (ready again in at most %.2f s), %d "
      "clients\n",
      counts.workers_killed, counts.respawned, counts.schedulers_killed,
      counts.ready_s.empty() ? 0 : *std::max_element(counts.ready_s.begin(), counts.ready_s.end()),
      counts.clients_killed);
  std::printf("stopped: %d, %d of them for too long, and %d clients; told to leave: %d workers\n",
              counts.stops, counts.long_stops, counts.clients_stopped, counts.told_to_leave);
  std::printf(
      "links: %d cut, %d for too long, %d of workers and %d of clients reset, %d away for long, %d slow, %d "
      "lossy, %d dead unheard; %d workers left for it\n",
      w.cuts, w.long_cuts, w.resets, w.client_resets, w.flaps, w.slow, w.lossy, w.half_open, counts.left);
  std::printf("%d wrong, %d failed or left\n", counts.wrong.load(), counts.failed.load());
}

int run(const Settings& settings, Ways* ways) {
  const TempFolder spill, files;
  const std::string silence = std::to_string(settings.silence_s);
  say("seed " + std::to_string(settings.seed) + ", " + std::to_string(settings.run_s) + " s, " +
      std::to_string(settings.workers) + " workers");
  const std::set<std::string> before = segments();
  Counts counts;
  {
    // Little memory: blocks go to files and come back, while all this happens. With proxies a break is all that is seen of a partition,
    // and a worker without a lease is lost at once.
    std::vector<std::string> worker_args{"--spill-dir", spill.path(),        "--spill-limit",
                                         "2GiB",        "--silence-timeout", silence};
    if (ways != nullptr && ways->network() == nullptr)
      worker_args.insert(worker_args.end(), {"--lease", "5"});
    Cluster cluster({.workers = 0,
                     .devices = 1,
                     .memory = settings.large ? "64MiB" : "4MiB",
                     .scheduler_args = {"--silence-timeout", silence},
                     .keep_state = true,
                     .network = ways != nullptr ? ways->network() : nullptr});
    const std::string way = ways != nullptr ? ways->to_scheduler(cluster.address(), -1) : "";
    Monkey monkey(cluster, settings, worker_args, ways, counts);
    {
      const Session one = cluster.session("one", true, way), two = cluster.session("two", false, way);
      if (!one.wait_for_devices(static_cast<std::size_t>(settings.workers), kPatience))
        throw std::runtime_error("workers did not join:\n" + cluster.words());
      Graphs graphs(settings.large, settings.graphs, settings.turns, files.path());
      graphs.learn(counts);
      graphs.try_each(one, counts);
      disturb(monkey, graphs, one, two, settings.seed, counts);
    }
    check_rest(cluster, monkey.members(), counts);
    for (const TempFolder* folder : {&spill, &files}) {  // of blocks on disk, of arrays that were saved
      for (const std::string& file : folder->names()) ++counts.failed, say("LEFT: " + (*folder / file));
    }
    if (counts.wrong + counts.failed > 0 && std::getenv("TILEWISE_CHAOS_WORDS") != nullptr)
      say(cluster.words());
  }
  const auto left = [&] {
    std::string names;
    for (const std::string& name : segments())
      if (!before.contains(name)) names += " " + name;
    return names;
  };
  if (!eventually([&] { return left().empty(); }))
    ++counts.failed, say("LEFT: segments in /dev/shm:" + left());
  print(counts);
  if (const double ready_s = late_ready_s(counts); ready_s > kReady_s * kTimesSlower)
    ++counts.failed, say("FAILED: schedulers ready again after " + std::to_string(ready_s) + " s");
  const WayCounts& w = counts.ways;
  const int done_to_it = counts.workers_killed + counts.schedulers_killed + counts.clients_killed +
                         counts.stops + counts.clients_stopped + counts.told_to_leave + w.all();
  // Connections are reset, and hosts slowed down, where the kernel can.
  const bool missed =
      done_to_it == 0 || (settings.each && std::min({w.cuts, w.long_cuts, w.flaps, w.half_open}) == 0);
  if (missed) say("not all was done to the cluster that was meant to: the run was too short");
  return counts.wrong + counts.failed == 0 && counts.graphs > 0 && !missed ? 0 : 1;
}

int usage() {
  std::cerr
      << "usage: chaos [--minutes N | --seconds N] [--seed S] [--workers N] [--mean SECONDS | --life "
         "SECONDS]\n"
         "             [--only workers|scheduler|clients|stops|partitions|leavers] [--large yes] "
         "[--each yes] [--hands N]\n"
         "             [--ways hosts|proxies|none] [--silence SECONDS] [--graphs KIND] [--late MINUTES]\n";
  return 2;
}

// False: not an option, or no value of it.
bool take(Settings& s, const std::string& option, const std::string& value) {
  const auto number = [&] { return std::strtod(value.c_str(), nullptr); };
  if (option == "--minutes")
    s.run_s = 60 * number();
  else if (option == "--seconds")
    s.run_s = number();
  else if (option == "--seed")
    s.seed = std::strtoull(value.c_str(), nullptr, 10);
  else if (option == "--workers")
    s.workers = std::atoi(value.c_str());
  else if (option == "--mean")
    s.mean_s = number();
  else if (option == "--life")
    s.life_s = number(), s.partitions = false;
  else if (option == "--hands")
    s.hands = std::atoi(value.c_str());
  else if (option == "--silence")
    s.silence_s = number();
  else if (option == "--graphs")
    s.graphs = value;
  else if (option == "--late")
    s.turns = std::atoi(value.c_str());
  else if (option == "--only")
    s.workers_too = value == "workers", s.scheduler_too = value == "scheduler",
    s.clients_too = value == "clients", s.stops = value == "stops", s.partitions = value == "partitions",
    s.leavers = value == "leavers";
  else if (option == "--ways" && (value == "hosts" || value == "proxies" || value == "none"))
    s.partitions = value != "none", s.ways = value;
  else if (value != "yes")
    return false;
  else if (option == "--large")
    s.large = true;
  else if (option == "--each")
    s.each = true;
  else
    return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 >= argc || !take(settings, argv[i], argv[i + 1])) return usage();
  }
  if (settings.workers < 1 || settings.workers > 64 || settings.hands < 1 || settings.hands > 16 ||
      settings.turns < 1 || !(settings.run_s > 0) || !(settings.mean_s > 0) || !(settings.life_s >= 0) ||
      (settings.each && !settings.partitions) || !(settings.silence_s >= 2 && settings.silence_s <= 20))
    return usage();
  try {
    std::string why;
    std::unique_ptr<Ways> ways;
    if (settings.partitions) {
      setenv("UCX_TLS", "tcp", 1);  // hosts of their own have no other way
      ways = make_ways(settings.ways, settings.workers, why);
      if (!ways) {
        std::cerr << "chaos: no hosts of their own: " << why << "\n";
        return kCannot;
      }
      if (!why.empty()) say("no hosts of their own (" + why + "): proxies to the scheduler instead");
    }
    return run(settings, ways.get());
  } catch (const std::exception& e) {
    std::cerr << "chaos: " << e.what() << "\n";
    return 1;
  }
}
