// What a run of the harness is to do, and what it did and found.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "ways.h"

namespace tilewise::testing {

struct Settings {
  double run_s = 60, mean_s = 1.5;  // a fault every so often
  double life_s = 0;  // instead: workers alone are killed, each after so long on average; 0: no such thing
  std::uint64_t seed = 1;
  int workers = 3;
  int hands = 2;  // faults that may be there at once
  bool workers_too = true, scheduler_too = true, clients_too = true, stops = true, partitions = true,
       leavers = true, large = false, each = false;
  std::string graphs;     // of this kind alone
  std::string ways;       // for `partitions`: "hosts", "proxies", or the first that this machine has
  int turns = 10;         // minutes that a request may take while something of it gets done in each
  double silence_s = 10;  // a process that says nothing for so long is taken for lost
};

struct Counts {
  // Of graphs. Asked again: their results were lost, as they may be. Late: a minute was not enough, but they went on.
  std::atomic<int> graphs{0}, asked_again{0}, late{0}, cancelled{0}, wrong{0}, failed{0};
  int workers_killed = 0, schedulers_killed = 0, clients_killed = 0, stops = 0, long_stops = 0,
      clients_stopped = 0, told_to_leave = 0;
  int respawned = 0;  // of the workers killed: another process came in their place by itself
  int left = 0;       // workers, for want of a link
  WayCounts ways;
  std::vector<double> ready_s;  // of a scheduler, from its start
};

void say(const std::string& text);  // a line on stdout; any thread

}  // namespace tilewise::testing
