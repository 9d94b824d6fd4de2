// Does things to a cluster: kills, stops, parts and lets go, as a seed says, with several hands at once.
#pragma once
#include <tilewise/base/prng.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "../integration/harness.h"
#include "settings.h"

namespace tilewise::testing {

class Monkey {
 public:
  // `ways`: for settings with partitions. All have to outlive it.
  Monkey(Cluster& cluster, const Settings& settings, std::vector<std::string> worker_args, Ways* ways,
         Counts& counts);
  ~Monkey();
  Monkey(const Monkey&) = delete;
  Monkey& operator=(const Monkey&) = delete;

  // Until the time is over. Throws where the scheduler has ended by itself.
  void run();
  // Nobody may have ended but those that were made to, and those who say that they had no link when links were broken.
  void look();
  const std::vector<int>& members() const {
    return members_;
  }  // workers there should be, by the cluster's numbers

 private:
  // One thread's: it holds the lock but while something lasts. What it has in hand no other one touches, nor looks at.
  struct Hand {
    Prng prng;
    std::unique_lock<std::mutex> lock;
    std::set<int> workers = {};
    bool scheduler = false, links = false;

    void rest(std::chrono::milliseconds length);
    template <class Fn> auto unlocked(Fn&& fn);
  };
  void use(Hand& hand);
  void put_down(Hand& hand);
  bool in_hand(int worker) const { return held_.contains(worker); }
  // A worker that no hand has, from now on this one's; -1: there is none.
  int take_worker(Hand& hand);
  bool take(Hand& hand, const std::vector<int>& workers);
  bool take_scheduler(Hand& hand);

  bool respawns(int worker) const { return worker % 2 == 1; }
  void add_worker(int worker);
  void replace(int worker);
  void look_at(int worker);
  void look_at_lives(int worker);
  void sleep_some(Hand& hand);
  void do_something(Hand& hand);

  void kill_worker(Hand& hand);
  int kill_some(Hand& hand);
  void bury(Hand& hand, int worker);
  void kill_scheduler(Hand& hand);
  void kill_client(Hand& hand);
  void let_leave(Hand& hand);
  void stop_somebody(Hand& hand);
  void stop_worker(Hand& hand, int worker, std::chrono::milliseconds length);
  void stop_client(Hand& hand);

  void break_links(Hand& hand);  // monkey_links.cc
  void break_each(Hand& hand);
  void cut_two(Hand& hand, bool long_one);
  void reset_somebody(Hand& hand);
  void flap(Hand& hand);
  void slow_somebody_down(Hand& hand);
  void lose_some(Hand& hand);
  void leave_half_open(Hand& hand);

  Cluster& cluster_;
  const Settings& settings_;
  const std::vector<std::string> worker_args_;
  Ways* const ways_;
  Counts& counts_;

  std::mutex mutex_;  // of all below, the cluster and the counts
  std::vector<int> members_;
  // Of a worker that its parent starts again: its ends that are our doing, and of which its parent has not told yet.
  struct Lives {
    int killed = 0, excused = 0;  // excused: it was stopped for too long
    std::size_t read = 0;         // of its words
  };
  std::map<int, Lives> lives_;
  std::set<int> held_;  // workers that some hand has
  bool scheduler_held_ = false, links_held_ = false;
  int scheduler_faults_ = 0, link_faults_ = 0;  // begun so far
  int long_stops_ = 0;                          // that last
  Clock::time_point links_bad_until_{};
  int next_ = 0;
  std::string broken_;  // the scheduler has ended by itself: its words
  // Processes end with the thread that has started them: the other hands' threads stay until this is destroyed.
  std::vector<std::thread> others_;
  std::condition_variable changed_;
  std::size_t done_ = 0;
  bool over_ = false;
};

// Its last 3,000 bytes.
std::string tail(const std::string& text);

template <class Fn> auto Monkey::Hand::unlocked(Fn&& fn) {
  struct Again {
    std::unique_lock<std::mutex>& lock;
    explicit Again(std::unique_lock<std::mutex>& l) : lock(l) { lock.unlock(); }
    ~Again() { lock.lock(); }
  } again(lock);
  return fn();
}
inline void Monkey::Hand::rest(std::chrono::milliseconds length) {
  unlocked([&] { std::this_thread::sleep_for(length); });
}

}  // namespace tilewise::testing
