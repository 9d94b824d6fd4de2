#include "monkey.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <stdexcept>

namespace tilewise::testing {

using std::chrono::milliseconds;

namespace {

const char* const kAgain = "the worker ended, starting it again";

bool had_no_link(const std::string& words) {
  const auto said = [&](const char* what) { return words.find(what) != std::string::npos; };
  return said("cannot reach worker") || said("taken for lost") || said("does not take us back") ||
         said("did not come back");
}

milliseconds in_ms(double s) { return milliseconds(static_cast<std::int64_t>(1000 * s)); }

}  // namespace

std::string tail(const std::string& text) {
  return text.substr(text.size() - std::min<std::size_t>(text.size(), 3000));
}

Monkey::Monkey(Cluster& cluster, const Settings& settings, std::vector<std::string> worker_args, Ways* ways,
               Counts& counts)
    : cluster_(cluster),
      settings_(settings),
      worker_args_(std::move(worker_args)),
      ways_(ways),
      counts_(counts) {
  for (; next_ < settings.workers; ++next_) {
    members_.push_back(next_);
    add_worker(next_);
  }
}

Monkey::~Monkey() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& other : others_) other.join();
}

void Monkey::add_worker(int worker) {
  std::vector<std::string> arguments = worker_args_;
  if (respawns(worker)) arguments.emplace_back("--respawn");
  if (worker % 4 == 2) arguments.emplace_back("--no-supervisor");
  // On the next host, where there are hosts.
  cluster_.add_worker(arguments, ways_ != nullptr ? ways_->to_scheduler(cluster_.address(), worker) : "");
}

void Monkey::replace(int worker) {
  add_worker(next_);
  *std::find(members_.begin(), members_.end(), worker) = next_++;
}

// ---- hands ---------------------------------------------------------------------------------------------------------

void Monkey::run() {
  const std::uint64_t seed = settings_.seed;
  const int hands = settings_.each || settings_.life_s > 0 ? 1 : settings_.hands;
  for (int i = 1; i < hands; ++i) {
    others_.emplace_back([this, prng = Prng(seed + (static_cast<std::uint64_t>(i) << 32))] {
      Hand hand{prng, std::unique_lock(mutex_)};
      use(hand);
      ++done_;
      changed_.notify_all();
      changed_.wait(hand.lock, [&] { return over_; });
    });
  }
  Hand hand{Prng(seed), std::unique_lock(mutex_)};
  use(hand);
  changed_.wait(hand.lock, [&] { return done_ == others_.size(); });
  if (!broken_.empty()) throw std::runtime_error(broken_);
}

void Monkey::use(Hand& hand) {
  try {
    if (settings_.each) return break_each(hand);
    const auto until = Clock::now() + in_ms(settings_.run_s);
    while (Clock::now() < until && broken_.empty()) {
      sleep_some(hand);
      look();  // what has ended by itself was not killed
      if (settings_.life_s > 0)
        kill_worker(hand);
      else
        do_something(hand);
      put_down(hand);
    }
  } catch (const std::exception& e) {
    if (broken_.empty()) broken_ = e.what();
    put_down(hand);
  }
}

void Monkey::put_down(Hand& hand) {
  for (const int worker : hand.workers) held_.erase(worker);
  hand.workers.clear();
  if (std::exchange(hand.scheduler, false)) scheduler_held_ = false;
  if (std::exchange(hand.links, false)) links_held_ = false;
}

bool Monkey::take(Hand& hand, const std::vector<int>& workers) {
  if (std::any_of(workers.begin(), workers.end(), [&](int i) { return in_hand(i); })) return false;
  held_.insert(workers.begin(), workers.end());
  hand.workers.insert(workers.begin(), workers.end());
  return true;
}

int Monkey::take_worker(Hand& hand) {
  std::vector<int> free;
  std::copy_if(members_.begin(), members_.end(), std::back_inserter(free),
               [&](int i) { return !in_hand(i); });
  if (free.empty()) return -1;
  const int worker = free[static_cast<std::size_t>(hand.prng.below(free.size()))];
  (void)take(hand, {worker});
  return worker;
}

bool Monkey::take_scheduler(Hand& hand) {
  if (scheduler_held_) return false;
  ++scheduler_faults_;
  // Who stands still for long is not missed in time then, and its peers may leave for want of a way to it.
  if (long_stops_ > 0) links_bad_until_ = std::max(links_bad_until_, Clock::now() + seconds(60));
  return hand.scheduler = scheduler_held_ = true;
}

// Lives of workers end independently of each other, at a constant rate; other faults come evenly.
void Monkey::sleep_some(Hand& hand) {
  const double mean_s = settings_.life_s / static_cast<double>(members_.size());
  hand.rest(settings_.life_s > 0 ? in_ms(-std::log(1 - hand.prng.uniform()) * mean_s)
                                 : in_ms(2 * hand.prng.uniform() * settings_.mean_s));
}

void Monkey::do_something(Hand& hand) {
  const double dice = hand.prng.uniform();
  if (settings_.partitions && dice < (settings_.workers_too ? 0.2 : 1))
    break_links(hand);
  else if (settings_.workers_too && dice < 0.5)
    kill_worker(hand);
  else if (settings_.scheduler_too && dice < 0.65)
    kill_scheduler(hand);
  else if (settings_.clients_too && dice < 0.77)
    hand.prng.chance(0.5) ? kill_client(hand) : stop_client(hand);
  else if (settings_.leavers && dice < 0.88)
    let_leave(hand);
  else if (settings_.stops)
    stop_somebody(hand);
}

// ---- what there is to see -----------------------------------------------------------------------------------------

void Monkey::look() {
  const std::vector<int> members = members_;
  for (const int i : members) {
    if (!in_hand(i)) look_at(i);
  }
  if (scheduler_held_ || cluster_.scheduler().running()) return;
  throw std::runtime_error("the scheduler ended by itself:\n" + tail(cluster_.scheduler().errors()));
}

void Monkey::look_at(int worker) {
  look_at_lives(worker);
  if (cluster_.worker(worker).running()) return;
  const std::string words = cluster_.worker(worker).errors();
  if (Clock::now() < links_bad_until_ && had_no_link(words)) {
    ++counts_.left;
  } else {
    ++counts_.failed;
    say("FAILED: worker " + std::to_string(worker) + " ended by itself:\n" + tail(words));
  }
  replace(worker);
}

// Whose parent starts it again, ends by itself and nobody sees it but in its words.
void Monkey::look_at_lives(int worker) {
  if (!respawns(worker)) return;
  Lives& lives = lives_[worker];
  const std::string words = cluster_.worker(worker).errors();
  for (auto at = words.find(kAgain, lives.read); at != std::string::npos;
       at = words.find(kAgain, lives.read)) {
    const std::size_t end = words.find('\n', at);
    if (end == std::string::npos) break;  // more is coming
    const std::string life = words.substr(lives.read, end - lives.read), line = words.substr(at, end - at);
    lives.read = end;
    if (line.find("killed by signal 9") != std::string::npos && lives.killed > 0) {
      --lives.killed;
    } else if (lives.excused > 0) {
      --lives.excused;
    } else if (Clock::now() < links_bad_until_ && had_no_link(life)) {
      ++counts_.left;
    } else {
      ++counts_.failed;
      say("FAILED: worker " + std::to_string(worker) + " ended by itself, and was started again:\n" +
          tail(life));
    }
  }
}

// ---- deaths --------------------------------------------------------------------------------------------------------

void Monkey::kill_worker(Hand& hand) { bury(hand, kill_some(hand)); }

// Whom nobody starts again, or -1.
int Monkey::kill_some(Hand& hand) {
  const int i = take_worker(hand);
  if (i < 0) return -1;
  const int pid = cluster_.worker(i).pid(), child = working(pid);
  ++counts_.workers_killed;
  const bool alone = child == pid || hand.prng.chance(0.2);  // else its supervisor has something to say
  ::kill(alone ? pid : child, SIGKILL);
  if (alone || !respawns(i)) return i;
  ++counts_.respawned;
  ++lives_[i].killed;
  return -1;
}

// Its supervisor ends when the scheduler has heard of it: which may be down, or stand still until another hand lets it go on.
void Monkey::bury(Hand& hand, int worker) {
  if (worker < 0) return;
  Process& process = cluster_.worker(worker);
  (void)hand.unlocked([&] { return process.wait(); });
  replace(worker);
}

void Monkey::kill_scheduler(Hand& hand) {
  if (!take_scheduler(hand)) return;
  cluster_.scheduler().signal(SIGKILL);
  (void)cluster_.scheduler().wait();
  ++counts_.schedulers_killed;
  hand.rest(milliseconds(hand.prng.between(0, 300)));
  const int dead = settings_.workers_too && hand.prng.chance(0.1) ? kill_some(hand) : -1;
  const auto began = Clock::now();
  cluster_.restart_scheduler();
  counts_.ready_s.push_back(std::chrono::duration<double>(Clock::now() - began).count());
  bury(hand, dead);
}

// A program with long work and held arrays, in the middle: its lease of a second is all that keeps them.
void Monkey::kill_client(Hand& hand) {
  Environment environment = cluster_.environment();
  environment["TILEWISE_LEASE"] = "1";
  Process client("client", {client_program(), "linger"}, environment);
  hand.rest(milliseconds(hand.prng.between(50, 1500)));
  if (!client.running()) {  // it came while no scheduler was there, or lost a result with a worker
    say("a client ended before it was killed: " + client.output());
    return;
  }
  client.signal(SIGKILL);
  (void)client.wait();
  ++counts_.clients_killed;
}

// ---- leaving -------------------------------------------------------------------------------------------------------

void Monkey::let_leave(Hand& hand) {
  const int i = take_worker(hand);
  if (i < 0 || cluster_.worker_address(i).empty()) return;  // has not joined yet
  Process& worker = cluster_.worker(i);
  const std::string name = "worker-" + std::to_string(i);
  const Ran ran = hand.unlocked([&] { return cluster_.tool({"drain", name, "--wait", "20"}); });
  if (ran.code !=
      0) {  // it is on its own with what it has, or died with a supervisor and has another number now
    say("a worker did not leave: " + ran.errors);
    // A scheduler that is away has it on record, and would let it leave when it is back.
    Ran undone;
    const bool settled = hand.unlocked([&] {
      return eventually([&] {
        undone = cluster_.tool({"drain", name, "--undo"});
        return undone.code == 0 || has(undone.errors, "there is no worker") || !worker.running();
      });
    });
    if (!settled) ++counts_.failed, say("FAILED: the wish that a worker leaves cannot be taken back");
    const bool let_go = has(undone.output, "gone");  // and may still send what clients fetch
    if (worker.running() && !let_go) return;
  }
  const std::optional<int> code = hand.unlocked([&] { return worker.wait(); });
  if (code == 0) {
    ++counts_.told_to_leave;
  } else if (Clock::now() < links_bad_until_ && had_no_link(worker.errors())) {
    ++counts_.left;
  } else {
    ++counts_.failed;
    say("FAILED: a worker that was told to leave ended badly:\n" + tail(worker.errors()));
  }
  replace(i);
}

// ---- stops ---------------------------------------------------------------------------------------------------------

void Monkey::stop_somebody(Hand& hand) {
  const milliseconds length(hand.prng.between(50, 3000));
  if (!hand.prng.chance(0.3)) {
    if (const int worker = take_worker(hand); worker >= 0) stop_worker(hand, worker, length);
    return;
  }
  if (!take_scheduler(hand)) return;
  ++counts_.stops;
  cluster_.scheduler().signal(SIGSTOP);
  hand.rest(length);
  cluster_.scheduler().signal(SIGCONT);
}

void Monkey::stop_worker(Hand& hand, int worker, milliseconds length) {
  ++counts_.stops;
  Process& process = cluster_.worker(worker);
  const int pid = working(process.pid());
  // Else it is between two lives, or too young: not for long stops.
  const bool joined = !cluster_.worker_address(worker).empty() && !(respawns(worker) && pid == process.pid());
  ::kill(pid, SIGSTOP);
  if (settings_.run_s < 60 || !hand.prng.chance(0.2) || !joined) {
    hand.rest(length);
    ::kill(pid, SIGCONT);
    return;
  }
  // Longer than silence is borne: it is lost by then, and has to go when it wakes up; where scheduler and links were there to see it.
  const auto others = [&] { return std::pair(scheduler_faults_, link_faults_); };
  const auto before = others();
  const bool alone = !scheduler_held_ && !links_held_;
  ++counts_.long_stops;
  if (respawns(worker)) ++lives_[worker].excused;
  ++long_stops_;
  hand.rest(in_ms(1.3 * settings_.silence_s));
  --long_stops_;
  ::kill(pid, SIGCONT);
  const auto left = [&] { return !process.running() || working(process.pid()) != pid; };
  const bool seen = alone && others() == before;
  const bool gone = hand.unlocked([&] { return eventually(left, seen ? kPatience : seconds(5)); });
  if (!gone && seen) {
    ++counts_.failed;
    say("FAILED: a worker that was declared lost did not leave:\n" + tail(process.errors()) +
        "\nscheduler:\n" + tail(cluster_.scheduler().errors()));
    process.signal(SIGKILL);
  }
  if (!gone && !seen) {  // it may still hear of it
    links_bad_until_ = std::max(links_bad_until_, Clock::now() + seconds(60));
    if (respawns(worker)) --lives_[worker].excused;
    return;
  }
  if (!respawns(worker)) (void)process.wait();
  if (!process.running()) replace(worker);
}

// One with blocks under way, for less than its lease, or for longer: then its session is over and it says so.
void Monkey::stop_client(Hand& hand) {
  const bool long_one = hand.prng.chance(0.3);
  Environment environment = cluster_.environment();
  environment["TILEWISE_LEASE"] = long_one ? "1" : "20";
  environment["TILEWISE_SILENCE_TIMEOUT"] = std::to_string(static_cast<int>(settings_.silence_s));
  Process client("client", {client_program(), "repeat", "2"}, environment);
  hand.rest(milliseconds(hand.prng.between(100, 1500)));
  client.signal(SIGSTOP);
  hand.rest(long_one ? in_ms(1.3 * settings_.silence_s) : milliseconds(hand.prng.between(50, 2000)));
  client.signal(SIGCONT);
  ++counts_.clients_stopped;
  // Its own patience is three times ours.
  const std::optional<int> code = hand.unlocked([&] { return client.wait(4 * kPatience); });
  const std::string words = client.output();
  // Else it came while no scheduler was there, or what it had uploaded is lost, or its session: it says which.
  if (code == 0 || (code == 1 && words.find("wrong") == std::string::npos && !words.empty())) return;
  ++counts_.failed;
  say("FAILED: a client that was stopped " + (code ? "ended with " + std::to_string(*code) : "hangs") + ": " +
      words + client.errors());
}

}  // namespace tilewise::testing
