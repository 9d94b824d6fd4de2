// Does things to a cluster: kills, stops, parts and lets go, as a seed says.
#pragma once
#include <tilewise/base/prng.h>

#include <map>
#include <vector>

#include "../integration/harness.h"
#include "settings.h"

namespace tilewise::testing {

class Monkey {
 public:
  // `ways`: for settings with partitions. All have to outlive it.
  Monkey(Cluster& cluster, const Settings& settings, std::vector<std::string> worker_args, Ways* ways,
         Counts& counts);

  // Until the time is over. Throws where the scheduler has ended by itself.
  void run();
  // Nobody may have ended but those that were made to, and those who say that they had no link when links were broken.
  void look();
  const std::vector<int>& members() const {
    return members_;
  }  // workers there should be, by the cluster's numbers

 private:
  int somebody() { return members_[static_cast<std::size_t>(prng_.below(members_.size()))]; }
  bool respawns(int worker) const { return worker % 2 == 1; }
  void add_worker(int worker);
  void replace(int worker);
  void look_at_lives(int worker);
  void sleep_some();
  void do_something();

  void kill_worker();
  void kill_scheduler();
  void kill_client();
  void let_leave();
  void stop_somebody();
  void stop_worker(int worker, std::chrono::milliseconds length);
  void stop_client();

  void break_links();  // monkey_links.cc
  void break_each();
  void cut_two(bool long_one);
  void reset_somebody();
  void flap();
  void slow_somebody_down();
  void lose_some();
  void leave_half_open();

  Cluster& cluster_;
  const Settings& settings_;
  const std::vector<std::string> worker_args_;
  Ways* const ways_;
  Counts& counts_;
  Prng prng_;
  std::vector<int> members_;
  // Of a worker that its parent starts again: its ends that are our doing, and of which its parent has not told yet.
  struct Lives {
    int killed = 0, excused = 0;  // excused: it was stopped for too long
    std::size_t read = 0;         // of its words
  };
  std::map<int, Lives> lives_;
  Clock::time_point links_bad_until_{};
  int next_ = 0;
};

// Its last 3,000 bytes.
std::string tail(const std::string& text);

}  // namespace tilewise::testing
