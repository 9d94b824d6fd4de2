// Kills and stops processes of a cluster at random while graphs with known answers run. See README.md.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include <tilewise/base/prng.h>
#include <tilewise/net/address.h>

#include "../integration/harness.h"
#include "../integration/network.h"
#include "../integration/programs.h"
#include "../temp_folder.h"

using namespace tilewise;
using namespace tilewise::testing;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

namespace {

constexpr seconds kHang{60};  // of one request; faults of seconds are within
constexpr int kCannot = 77;   // an exit code: this machine does not let us
constexpr int kAsk = 20;      // a request that lost its results is asked again so often

struct Settings {
  double run_s = 60, mean_s = 1.5;  // a fault every so often
  std::uint64_t seed = 1;
  int workers = 3;
  bool workers_too = true, scheduler_too = true, clients_too = true, stops = true, partitions = false,
       large = false, each = false;
  Network* network = nullptr;  // workers on hosts of their own
  std::vector<std::string> worker_args = {};
};

struct Counts {
  std::atomic<int> graphs{0}, asked_again{0}, wrong{0}, failed{0};
  int workers_killed = 0, schedulers_killed = 0, clients_killed = 0, stops = 0, long_stops = 0;
  int left = 0;  // workers, for want of a link
  int cuts = 0, long_cuts = 0, resets = 0, client_resets = 0, flaps = 0, slow = 0, half_open = 0;
  std::vector<double> ready_s;  // of a scheduler, from its start
};

// ---- graphs --------------------------------------------------------------------------------------------------------

// An array that is held while it is read again and again.
Array held(const Session& session) {
  Array x = session.random.normal({400, 300}, {.seed = 5, .block = {40, 30}});
  x.persist();
  return matmul(x.T(), x) + sum(x, 0);
}
using Program = Array (*)(const Session&);
using Programs = std::vector<Program>;
const Programs kPrograms{[](const Session& session) { return products(session, 512, 64, 6); },
                         [](const Session& session) { return regression(session, 30'000, 1'000, 12); },
                         [](const Session& session) { return reductions(session, 600, 60, 12); }, held};
// Of 1e4 tasks and more.
const Programs kLargePrograms{[](const Session& session) { return products(session, 768, 24, 10); },
                              [](const Session& session) { return regression(session, 60'000, 120, 12); },
                              [](const Session& session) { return reductions(session, 960, 32, 8); }};

std::mutex say_mutex;
void say(const std::string& text) {
  const std::scoped_lock lock(say_mutex);
  std::cout << text << std::endl;
}

std::vector<double> ask(Program program, const Session& session, Counts& counts) {
  for (int left = kAsk;; --left) {
    try {
      return session.compute({program(session)}).get<double>(0, {.timeout = kHang});
    } catch (const ArrayError& e) {
      if (e.code() != Errc::kWorkerLost || left == 0) throw;
      ++counts.asked_again;
      say(std::string("asked again: ") + e.what());
    }
  }
}

void work(const Session& session, std::uint64_t seed, const Programs& programs,
          const std::vector<std::vector<double>>& expected, const std::atomic<bool>& stop, Counts& counts) {
  Prng prng(seed);
  while (!stop) {
    const auto which = static_cast<std::size_t>(prng.below(programs.size()));
    try {
      const std::vector<double> values = ask(programs[which], session, counts);
      ++counts.graphs;
      if (same_bits(values, expected[which])) continue;
      ++counts.wrong;
      say("WRONG values of program " + std::to_string(which));
    } catch (const std::exception& e) {
      ++counts.failed;
      say("FAILED: program " + std::to_string(which) + ": " + e.what());
      return;
    }
  }
}

// ---- faults --------------------------------------------------------------------------------------------------------

class Monkey {
 public:
  Monkey(Cluster& cluster, const Settings& settings, Counts& counts)
      : cluster_(cluster), settings_(settings), counts_(counts), prng_(settings.seed) {
    for (int i = 0; i < settings.workers; ++i) members_.push_back(i);
    next_ = settings.workers;
  }

  void run() {
    if (settings_.each) return run_each();
    const auto until = Clock::now() + milliseconds(static_cast<std::int64_t>(settings_.run_s * 1000));
    while (Clock::now() < until) {
      std::this_thread::sleep_for(
          milliseconds(prng_.between(1, static_cast<std::int64_t>(2000 * settings_.mean_s))));
      const double dice = prng_.uniform();
      if (settings_.partitions && dice < (settings_.workers_too ? 0.2 : 1))
        break_links();
      else if (settings_.workers_too && dice < 0.5)
        kill_worker();
      else if (settings_.scheduler_too && dice < 0.7)
        kill_scheduler();
      else if (settings_.clients_too && dice < 0.85)
        kill_client();
      else if (settings_.stops)
        stop_somebody();
      look();
    }
  }

  // Nobody may have ended but those that were made to, and those who say that they had no link when links were broken.
  void look() {
    for (const int i : members_) {
      if (cluster_.worker(i).running()) continue;
      const std::string words = cluster_.worker(i).errors();
      const bool had_no_link = words.find("cannot reach worker") != std::string::npos ||
                               words.find("taken for lost") != std::string::npos;
      if (Clock::now() < links_bad_until_ && had_no_link) {
        ++counts_.left;
        return replace(i);
      }
      ++counts_.failed;
      say("FAILED: worker " + std::to_string(i) + " ended by itself:\n" + tail(cluster_.worker(i).errors()));
      replace(i);
      return;
    }
    if (cluster_.scheduler().running()) return;
    throw std::runtime_error("the scheduler ended by itself:\n" + tail(cluster_.scheduler().errors()));
  }
  const std::vector<int>& members() const { return members_; }

 private:
  static std::string tail(const std::string& text) {
    return text.substr(text.size() - std::min<std::size_t>(text.size(), 3000));
  }
  int& somebody() { return members_[static_cast<std::size_t>(prng_.below(members_.size()))]; }

  void replace(int worker) {
    cluster_.add_worker(settings_.worker_args);  // on the next host, where there are hosts
    *std::find(members_.begin(), members_.end(), worker) = next_++;
  }
  void kill_worker() {
    const int i = somebody();
    cluster_.worker(i).signal(SIGKILL);
    (void)cluster_.worker(i).wait();
    ++counts_.workers_killed;
    replace(i);
  }
  void kill_scheduler() {
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
  void kill_client() {
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
  void break_links() {
    links_bad_until_ = Clock::now() + seconds(60);
    const double dice = prng_.uniform();
    if (dice < 0.4)
      cut_somebody();
    else if (dice < 0.55)
      reset_somebody();
    else if (dice < 0.7)
      flap();
    else if (dice < 0.9)
      slow_somebody_down();
    else if (settings_.run_s >= 60)
      leave_half_open();
  }
  // Each fault of links once, the long ones too.
  void run_each() {
    links_bad_until_ = Clock::now() + seconds(180);
    const std::vector<std::function<void()>> faults{[&] { cut_two(false); }, [&] { reset_somebody(); },
                                                    [&] { flap(); },         [&] { slow_somebody_down(); },
                                                    [&] { cut_two(true); },  [&] { leave_half_open(); }};
    for (const auto& fault : faults) {
      fault();
      look();
    }
  }
  int host_of(int worker) const { return worker % settings_.network->hosts(); }
  // Links between two workers, or between one and the clients.
  void reset_somebody() {
    const int one = host_of(somebody()), two = host_of(somebody());
    const std::uint16_t scheduler = net::Address::parse(cluster_.address())->port;
    if (one == two)
      counts_.client_resets += settings_.network->reset_with_here(one, scheduler);
    else
      counts_.resets += settings_.network->reset(one, two);
  }
  // Half as long as silence is borne; TCP tries again after up to twice as long, so that some are missed all the same.
  void flap() {
    ++counts_.flaps;
    const int host = host_of(somebody());
    settings_.network->isolate(host);
    std::this_thread::sleep_for(seconds(5));
    settings_.network->rejoin(host);
  }
  void slow_somebody_down() {
    const int host = host_of(somebody());
    if (settings_.network->slow_down(host, 1'000'000)) ++counts_.slow;
    std::this_thread::sleep_for(milliseconds(prng_.between(500, 8'000)));
    (void)settings_.network->slow_down(host, 0);
  }
  // A host's workers die where nobody can hear it: peers and scheduler have links without another end, until they miss them (10 s).
  void leave_half_open() {
    ++counts_.half_open;
    const int host = host_of(somebody());
    settings_.network->isolate(host);
    std::vector<int> dead;
    std::copy_if(members_.begin(), members_.end(), std::back_inserter(dead),
                 [&](int i) { return host_of(i) == host; });
    for (const int i : dead) {
      cluster_.worker(i).signal(SIGKILL);
      (void)cluster_.worker(i).wait();
    }
    std::this_thread::sleep_for(seconds(12));
    settings_.network->rejoin(host);
    for (const int i : dead) replace(i);
  }
  // What goes from one host to another is lost, or both ways: for a moment, which nobody may notice, or until silence is noticed
  // (10 s) and, after 5 s, the younger of the two leaves.
  void cut_somebody() { cut_two(settings_.run_s >= 60 && prng_.chance(0.2)); }
  void cut_two(bool long_one) {
    const int hosts = settings_.network->hosts();
    const auto elsewhere = [&](int from) { return [=](int i) { return i % hosts != from % hosts; }; };
    const int one = somebody();
    if (std::none_of(members_.begin(), members_.end(), elsewhere(one))) return;
    int two = one;
    while (!elsewhere(one)(two)) two = somebody();
    ++counts_.cuts;
    const bool both = prng_.chance(0.3);
    settings_.network->cut(one % hosts, two % hosts);
    if (both) settings_.network->cut(two % hosts, one % hosts);
    if (long_one) ++counts_.long_cuts;
    std::this_thread::sleep_for(milliseconds(long_one ? 20'000 : prng_.between(50, 3'000)));
    settings_.network->mend(one % hosts, two % hosts);
    if (both) settings_.network->mend(two % hosts, one % hosts);
  }
  void stop_somebody() {
    ++counts_.stops;
    const milliseconds length(prng_.between(50, 3000));
    if (prng_.chance(0.3)) {
      cluster_.scheduler().signal(SIGSTOP);
      std::this_thread::sleep_for(length);
      return cluster_.scheduler().signal(SIGCONT);
    }
    const int i = somebody();
    const bool joined = !cluster_.worker_address(i).empty();
    cluster_.worker(i).signal(SIGSTOP);
    if (settings_.run_s < 60 || !prng_.chance(0.1) || !joined) {
      std::this_thread::sleep_for(length);
      return cluster_.worker(i).signal(SIGCONT);
    }
    // Longer than silence is borne: it is lost by then, and has to go when it wakes up.
    ++counts_.long_stops;
    std::this_thread::sleep_for(seconds(13));
    cluster_.worker(i).signal(SIGCONT);
    if (!cluster_.worker(i).wait()) {
      ++counts_.failed;
      say("FAILED: a worker that was declared lost did not leave:\n" + tail(cluster_.worker(i).errors()) +
          "\nscheduler:\n" + tail(cluster_.scheduler().errors()));
      cluster_.worker(i).signal(SIGKILL);
    }
    replace(i);
  }

  Cluster& cluster_;
  const Settings& settings_;
  Counts& counts_;
  Prng prng_;
  std::vector<int> members_;
  Clock::time_point links_bad_until_{};
  int next_ = 0;
};

// ---- afterwards ----------------------------------------------------------------------------------------------------

// Slabs are memfds: their owner maps them writable, others to read. (inode, writable) of a process's.
std::set<std::pair<std::string, bool>> slabs_of(int pid) {
  std::set<std::pair<std::string, bool>> found;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tilewise ") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode;
    fields >> range >> rights >> offset >> device >> inode;
    found.emplace(inode, rights.find('w') != std::string::npos);
  }
  return found;
}

bool slabs_are_whole(Cluster& cluster, const std::vector<int>& members) {
  std::set<std::string> owned, read;
  const auto add = [&](int pid) {
    for (const auto& [inode, writable] : slabs_of(pid)) (writable ? owned : read).insert(inode);
  };
  add(getpid());
  for (const int i : members) add(cluster.worker(i).pid());
  return std::includes(owned.begin(), owned.end(), read.begin(), read.end());
}

std::vector<std::int64_t> numbers_in(const std::string& json, const std::string& key) {
  std::vector<std::int64_t> found;
  const std::string name = "\"" + key + "\":";
  for (auto at = json.find(name); at != std::string::npos; at = json.find(name, at + 1))
    found.push_back(std::stoll(json.substr(at + name.size())));
  return found;
}

// Whoever was started with this cluster's token, as its command line or environment says, and is there still.
std::string processes_of(const Cluster& cluster) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(getpid())) continue;
    const std::string words = read_file(entry.path() / "cmdline") + read_file(entry.path() / "environ");
    if (words.find(cluster.token_file()) != std::string::npos) found += pid + " ";
  }
  return found;
}

void check_rest(Cluster& cluster, const std::vector<int>& members, Counts& counts) {
  const auto expect = [&](bool ok, const std::string& what) {
    if (ok) return;
    ++counts.failed;
    say("LEFT: " + what);
  };
  const auto zero = [&](const std::string& command, const std::string& key) {
    return eventually([&] {
      const auto found = numbers_in(cluster.tool({command, "--json"}).output, key);
      return !found.empty() && std::all_of(found.begin(), found.end(), [](auto n) { return n == 0; });
    });
  };
  expect(zero("status", "arrays_live"), "arrays: " + cluster.status());
  expect(zero("devices", "used_bytes"), "bytes: " + cluster.tool({"devices", "--json"}).output);
  expect(eventually([&] { return slabs_are_whole(cluster, members); }), "mapped slabs of the dead");
  const Ran shut = cluster.tool({"shutdown"});
  expect(shut.code == 0, "a cluster that does not shut down: " + shut.errors);
  for (const int i : members)
    expect(cluster.worker(i).wait().has_value(), "worker process " + std::to_string(i));
  expect(cluster.scheduler().wait().has_value(), "the scheduler's process");
  expect(eventually([&] { return processes_of(cluster).empty(); }), "processes: " + processes_of(cluster));
}

int run(Settings settings) {
  const TempFolder spill;
  settings.worker_args = {"--spill-dir", spill.path(), "--spill-limit", "2GiB"};
  say("seed " + std::to_string(settings.seed) + ", " + std::to_string(settings.run_s) + " s, " +
      std::to_string(settings.workers) + " workers");
  const std::size_t shared = std::distance(std::filesystem::directory_iterator("/dev/shm"), {});
  Counts counts;
  {
    // Little memory: blocks go to files and come back, while all this happens.
    Cluster cluster({.workers = settings.workers,
                     .devices = 1,
                     .memory = settings.large ? "64MiB" : "4MiB",
                     .worker_args = settings.worker_args,
                     .keep_state = true,
                     .network = settings.network});
    Monkey monkey(cluster, settings, counts);
    {
      const Session one = cluster.session("one"), two = cluster.session("two", false);
      if (!one.wait_for_devices(static_cast<std::size_t>(settings.workers), kPatience))
        throw std::runtime_error("workers did not join");
      std::vector<std::vector<double>> expected;
      const Programs& programs = settings.large ? kLargePrograms : kPrograms;
      for (const Program program : programs) expected.push_back(ask(program, one, counts));
      std::atomic<bool> stop{false};
      std::vector<std::thread> users;
      users.emplace_back([&] { work(one, settings.seed + 1, programs, expected, stop, counts); });
      users.emplace_back([&] { work(two, settings.seed + 2, programs, expected, stop, counts); });
      std::string broken;
      try {
        monkey.run();
      } catch (const std::exception& e) {
        broken = e.what();
      }
      stop = true;
      for (std::thread& user : users) user.join();
      if (!broken.empty()) throw std::runtime_error(broken);
      monkey.look();
    }
    check_rest(cluster, monkey.members(), counts);
    if (counts.wrong + counts.failed > 0 && std::getenv("TILEWISE_CHAOS_WORDS") != nullptr)
      say(cluster.words());
  }
  const std::size_t shared_now = std::distance(std::filesystem::directory_iterator("/dev/shm"), {});
  if (shared_now > shared) ++counts.failed, say("LEFT: segments in /dev/shm");
  if (spill.files() > 0) ++counts.failed, say("LEFT: files of blocks on disk");
  std::sort(counts.ready_s.begin(), counts.ready_s.end());
  std::printf(
      "%d graphs, %d asked again; killed: %d workers, %d schedulers (ready again in at most %.2f s), %d "
      "clients; %d stopped, %d of them for too long; %d ways cut, %d for too long; %d links of workers and "
      "%d of "
      "clients reset, %d hosts away for 5 s, %d slow, %d dead unheard, %d left for it\n%d wrong, %d failed "
      "or left\n",
      counts.graphs.load(), counts.asked_again.load(), counts.workers_killed, counts.schedulers_killed,
      counts.ready_s.empty() ? 0 : counts.ready_s.back(), counts.clients_killed, counts.stops,
      counts.long_stops, counts.cuts, counts.long_cuts, counts.resets, counts.client_resets, counts.flaps,
      counts.slow, counts.half_open, counts.left, counts.wrong.load(), counts.failed.load());
  const int done_to_it = counts.workers_killed + counts.schedulers_killed + counts.clients_killed +
                         counts.stops + counts.cuts + counts.resets + counts.flaps + counts.slow +
                         counts.half_open;
  // Connections are reset, and hosts slowed down, where the kernel can.
  const bool missed =
      done_to_it == 0 ||
      (settings.each && std::min({counts.cuts, counts.long_cuts, counts.flaps, counts.half_open}) == 0);
  if (missed) say("not all was done to the cluster that was meant to: the run was too short");
  return counts.wrong + counts.failed == 0 && counts.graphs > 0 && !missed ? 0 : 1;
}

int usage() {
  std::cerr << "usage: chaos [--minutes N | --seconds N] [--seed S] [--workers N] [--mean SECONDS]\n"
               "             [--only workers|scheduler|clients|stops|partitions] [--hosts yes] [--large yes] "
               "[--each yes]\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 >= argc) return usage();
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--minutes")
      settings.run_s = 60 * std::strtod(value.c_str(), nullptr);
    else if (option == "--seconds")
      settings.run_s = std::strtod(value.c_str(), nullptr);
    else if (option == "--seed")
      settings.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (option == "--workers")
      settings.workers = std::atoi(value.c_str());
    else if (option == "--mean")
      settings.mean_s = std::strtod(value.c_str(), nullptr);
    else if (option == "--only")
      settings.workers_too = value == "workers", settings.scheduler_too = value == "scheduler",
      settings.clients_too = value == "clients", settings.stops = value == "stops",
      settings.partitions = value == "partitions";
    else if (option == "--large" && value == "yes")
      settings.large = true;
    else if (option == "--hosts" && value == "yes")
      settings.partitions = true;
    else if (option == "--each" && value == "yes")
      settings.partitions = settings.each = true;
    else
      return usage();
  }
  if (settings.workers < 1 || settings.workers > 64 || !(settings.run_s > 0) || !(settings.mean_s > 0))
    return usage();
  try {
    std::string why;
    std::unique_ptr<Network> network;
    if (settings.partitions) {
      setenv("UCX_TLS", "tcp", 1);  // hosts of their own have no other way
      network = Network::make(settings.workers, why);
      if (!network) {
        std::cerr << "chaos: no hosts of their own: " << why << "\n";
        return kCannot;
      }
      settings.network = network.get();
    }
    return run(settings);
  } catch (const std::exception& e) {
    std::cerr << "chaos: " << e.what() << "\n";
    return 1;
  }
}
