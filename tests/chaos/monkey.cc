#include "monkey.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <stdexcept>
#include <thread>

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
      counts_(counts),
      prng_(settings.seed) {
  for (; next_ < settings.workers; ++next_) {
    members_.push_back(next_);
    add_worker(next_);
  }
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

void Monkey::run() {
  if (settings_.each) return break_each();
  const auto until = Clock::now() + in_ms(settings_.run_s);
  while (Clock::now() < until) {
    sleep_some();
    if (settings_.life_s > 0)
      kill_worker();
    else
      do_something();
    look();
  }
}

// Lives of workers end independently of each other, at a constant rate; other faults come evenly.
void Monkey::sleep_some() {
  const double mean_s = settings_.life_s / static_cast<double>(members_.size());
  std::this_thread::sleep_for(settings_.life_s > 0 ? in_ms(-std::log(1 - prng_.uniform()) * mean_s)
                                                   : in_ms(2 * prng_.uniform() * settings_.mean_s));
}

void Monkey::do_something() {
  const double dice = prng_.uniform();
  if (settings_.partitions && dice < (settings_.workers_too ? 0.2 : 1))
    break_links();
  else if (settings_.workers_too && dice < 0.5)
    kill_worker();
  else if (settings_.scheduler_too && dice < 0.65)
    kill_scheduler();
  else if (settings_.clients_too && dice < 0.77)
    prng_.chance(0.5) ? kill_client() : stop_client();
  else if (settings_.leavers && dice < 0.88)
    let_leave();
  else if (settings_.stops)
    stop_somebody();
}

void Monkey::look() {
  for (const int i : members_) {
    look_at_lives(i);
    if (cluster_.worker(i).running()) continue;
    const std::string words = cluster_.worker(i).errors();
    if (Clock::now() < links_bad_until_ && had_no_link(words)) {
      ++counts_.left;
      return replace(i);
    }
    ++counts_.failed;
    say("FAILED: worker " + std::to_string(i) + " ended by itself:\n" + tail(words));
    return replace(i);
  }
  if (cluster_.scheduler().running()) return;
  throw std::runtime_error("the scheduler ended by itself:\n" + tail(cluster_.scheduler().errors()));
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

void Monkey::kill_worker() {
  const int i = somebody();
  const int pid = cluster_.worker(i).pid(), child = working(pid);
  ++counts_.workers_killed;
  const bool alone = child == pid || prng_.chance(0.2);  // else its supervisor has something to say
  ::kill(alone ? pid : child, SIGKILL);
  if (!alone && respawns(i)) {  // another one comes by itself
    ++counts_.respawned;
    ++lives_[i].killed;
    return;
  }
  (void)cluster_.worker(i).wait();
  replace(i);
}

void Monkey::kill_scheduler() {
  cluster_.scheduler().signal(SIGKILL);
  (void)cluster_.scheduler().wait();
  ++counts_.schedulers_killed;
  std::this_thread::sleep_for(milliseconds(prng_.between(0, 300)));
  if (settings_.workers_too && prng_.chance(0.1)) kill_worker();
  const auto began = Clock::now();
  cluster_.restart_scheduler();
  counts_.ready_s.push_back(std::chrono::duration<double>(Clock::now() - began).count());
}

// A program with long work and held arrays, in the middle: its lease of a second is all that keeps them.
void Monkey::kill_client() {
  Environment environment = cluster_.environment();
  environment["TILEWISE_LEASE"] = "1";
  Process client("client", {client_program(), "linger"}, environment);
  std::this_thread::sleep_for(milliseconds(prng_.between(50, 1500)));
  if (!client.running()) {  // it came while no scheduler was there, or lost a result with a worker
    say("a client ended before it was killed: " + client.output());
    return;
  }
  client.signal(SIGKILL);
  (void)client.wait();
  ++counts_.clients_killed;
}

// ---- leaving -------------------------------------------------------------------------------------------------------

void Monkey::let_leave() {
  const int i = somebody();
  if (cluster_.worker_address(i).empty()) return;  // has not joined yet
  const Ran ran = cluster_.tool({"drain", "worker-" + std::to_string(i), "--wait", "20"});
  if (ran.code !=
      0) {  // it is on its own with what it has, or died with a supervisor and has another number now
    say("a worker did not leave: " + ran.errors);
    (void)cluster_.tool({"drain", "worker-" + std::to_string(i), "--undo"});
    if (cluster_.worker(i).running()) return;
  }
  ++counts_.told_to_leave;
  if (cluster_.worker(i).wait() != 0) {
    ++counts_.failed;
    say("FAILED: a worker that was told to leave ended badly:\n" + tail(cluster_.worker(i).errors()));
  }
  replace(i);
}

// ---- stops ---------------------------------------------------------------------------------------------------------

void Monkey::stop_somebody() {
  ++counts_.stops;
  const milliseconds length(prng_.between(50, 3000));
  if (!prng_.chance(0.3)) return stop_worker(somebody(), length);
  cluster_.scheduler().signal(SIGSTOP);
  std::this_thread::sleep_for(length);
  cluster_.scheduler().signal(SIGCONT);
}

void Monkey::stop_worker(int worker, milliseconds length) {
  const int pid = working(cluster_.worker(worker).pid());
  const bool joined = !cluster_.worker_address(worker).empty();
  ::kill(pid, SIGSTOP);
  if (settings_.run_s < 60 || !prng_.chance(0.2) || !joined) {
    std::this_thread::sleep_for(length);
    ::kill(pid, SIGCONT);
    return;
  }
  // Longer than silence is borne: it is lost by then, and has to go when it wakes up.
  ++counts_.long_stops;
  if (respawns(worker)) ++lives_[worker].excused;
  std::this_thread::sleep_for(in_ms(1.3 * settings_.silence_s));
  ::kill(pid, SIGCONT);
  const bool gone = eventually(
      [&] { return !cluster_.worker(worker).running() || working(cluster_.worker(worker).pid()) != pid; });
  if (!gone) {
    ++counts_.failed;
    say("FAILED: a worker that was declared lost did not leave:\n" + tail(cluster_.worker(worker).errors()) +
        "\nscheduler:\n" + tail(cluster_.scheduler().errors()));
    cluster_.worker(worker).signal(SIGKILL);
  }
  if (!respawns(worker)) (void)cluster_.worker(worker).wait();
  if (!cluster_.worker(worker).running()) replace(worker);
}

// One with blocks under way, for less than its lease, or for longer: then its session is over and it says so.
void Monkey::stop_client() {
  const bool long_one = prng_.chance(0.3);
  Environment environment = cluster_.environment();
  environment["TILEWISE_LEASE"] = long_one ? "1" : "20";
  environment["TILEWISE_SILENCE_TIMEOUT"] = std::to_string(static_cast<int>(settings_.silence_s));
  Process client("client", {client_program(), "repeat", "2"}, environment);
  std::this_thread::sleep_for(milliseconds(prng_.between(100, 1500)));
  client.signal(SIGSTOP);
  std::this_thread::sleep_for(long_one ? in_ms(1.3 * settings_.silence_s)
                                       : milliseconds(prng_.between(50, 2000)));
  client.signal(SIGCONT);
  ++counts_.clients_stopped;
  const std::optional<int> code = client.wait();
  const std::string words = client.output();
  // Else it came while no scheduler was there, or what it had uploaded is lost, or its session: it says which.
  if (code == 0 || (code == 1 && words.find("wrong") == std::string::npos && !words.empty())) return;
  ++counts_.failed;
  say("FAILED: a client that was stopped " + (code ? "ended with " + std::to_string(*code) : "hangs") + ": " +
      words + client.errors());
}

}  // namespace tilewise::testing
