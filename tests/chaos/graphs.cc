#include "graphs.h"

#include <tilewise/base/prng.h>
#include <tilewise/embedded/cluster.h>
#include <tilewise/io/stored.h>

#include <filesystem>
#include <iostream>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "../integration/harness.h"
#include "../integration/programs.h"

namespace tilewise::testing {
namespace {

// Of a request of which nothing gets done; faults of seconds are within.
constexpr seconds kHang{60 * kTimesSlower};
constexpr int kAsk = 20;  // a request that lost what no plan can make again is asked again so often

// What `get` brings, a call with a time-out that throws kTimeout. Processes that die faster than work gets done make a request late; one
// that stands still hangs.
template <class Get> auto brought(const Asking& asking, const Future& future, const Get& get) {
  Progress before = future.progress();
  for (int turn = 1;; ++turn) {
    try {
      return get(WaitOptions{.timeout = kHang});
    } catch (const ArrayError& e) {
      const Progress now = future.progress();
      if (e.code() != Errc::kTimeout || now.done == before.done || turn == asking.turns) throw;
      if (turn == 1) ++asking.counts.late;
      say(std::string("late: ") + e.what());
      before = now;
    }
  }
}

std::vector<double> all_of(const Asking& asking, const Array& x) {
  const Future future = asking.session.compute({x});
  return brought(asking, future, [&](const WaitOptions& o) { return future.get<double>(0, o); });
}

void wait_for(const Asking& asking, const Future& future) {
  brought(asking, future, [&](const WaitOptions& o) { future.wait(o); });
}

// An array that is held while it is read again and again.
std::vector<double> held(const Asking& asking) {
  Array x = asking.session.random.normal({400, 300}, {.seed = 5, .block = {40, 30}});
  x.persist();
  return all_of(asking, matmul(x.T(), x) + sum(x, 0));
}

// A block of 9 MiB that every device reads: between hosts it goes in parts, from one to the next.
std::vector<double> spread(const Asking& asking) {
  const Array block = asking.session.random.uniform({1024, 1200}, {.seed = 21, .block = {1024, 1200}});
  const Array rows = asking.session.random.normal({512, 1024}, {.seed = 22, .block = {16, 1024}});
  std::vector<double> out;
  for (int i = 1; i <= 3; ++i) {
    const std::vector<double> part = all_of(asking, sum(matmul(rows, block * static_cast<double>(i)), 1));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// What no plan can make again: two workers have it.
std::vector<double> uploaded(const Asking& asking) {
  std::vector<double> numbers(300 * 200);
  std::iota(numbers.begin(), numbers.end(), 0.5);
  Array x = asking.session.from_memory(numbers, {300, 200}, {.block = {30, 200}});
  wait_for(asking, x.persist({.copies = 2}));
  std::vector<double> out;
  for (int i = 1; i <= 3; ++i) {
    const std::vector<double> part = all_of(asking, matmul(x.T(), x * static_cast<double>(i)));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// Through a file, of which nothing may stay.
std::vector<double> saved(const Asking& asking) {
  struct Gone {
    std::string file;
    ~Gone() {
      std::error_code ignored;
      std::filesystem::remove(file, ignored);
    }
  } gone{asking.file};
  const Array x = asking.session.random.uniform({500, 400}, {.seed = 13, .block = {50, 40}});
  wait_for(asking, (x * 3.0 - sum(x, 0)).save_npy(asking.file));
  return all_of(asking, sum(asking.session.load_npy(asking.file, {.block = {70, 400}}), 0));
}

std::mutex say_mutex;

}  // namespace

void say(const std::string& text) {
  const std::scoped_lock lock(say_mutex);
  std::cout << text << std::endl;
}

Graphs::Graphs(bool large, const std::string& only, int turns, std::string folder)
    : large_(large), turns_(turns), folder_(std::move(folder)) {
  const std::vector<Kind> small_ones{
      {"products", false, [](const Asking& a) { return all_of(a, products(a.session, 512, 64, 6)); }},
      {"regression", false,
       [](const Asking& a) { return all_of(a, regression(a.session, 30'000, 1'000, 12)); }},
      {"reductions", false, [](const Asking& a) { return all_of(a, reductions(a.session, 600, 60, 12)); }},
      {"held", false, held},
      {"uploaded", true, uploaded},
      {"saved", true, saved}};
  const std::vector<Kind> large_ones{
      {"products", false, [](const Asking& a) { return all_of(a, products(a.session, 768, 24, 10)); }},
      {"regression", false,
       [](const Asking& a) { return all_of(a, regression(a.session, 60'000, 120, 12)); }},
      {"reductions", false, [](const Asking& a) { return all_of(a, reductions(a.session, 960, 32, 8)); }},
      {"spread", false, spread}};
  for (const Kind& kind : large ? large_ones : small_ones) {
    if (only.empty() || only == kind.name) kinds_.push_back(kind);
  }
  if (kinds_.empty()) throw std::invalid_argument("no graphs are called " + only);
}

std::vector<double> Graphs::ask(const Kind& kind, const Session& session, const std::string& file,
                                Counts& counts) const {
  for (int left = kAsk;; --left) {
    try {
      return kind.run({session, file + "-" + std::to_string(left) + ".npy", turns_, counts});
    } catch (const ArrayError& e) {
      if (!kind.can_be_lost || e.code() != Errc::kWorkerLost || left == 0) throw;
      ++counts.asked_again;
      say("asked again: " + kind.name + ": " + e.what());
    }
  }
}

void Graphs::learn(Counts& counts) {
  auto cluster = embedded::Cluster::start(
      {.workers = 2, .host_devices = 1, .use_cuda = false, .memory_bytes = 256 << 20});
  if (!cluster) throw ArrayError(cluster.error());
  const Session session =
      make_session((*cluster)->connect("what is right"), {.name = "what is right", .inspect = io::inspect});
  if (!session.wait_for_devices(2, kPatience)) throw ArrayError(Errc::kTimeout, "no devices");
  for (const Kind& kind : kinds_) right_.push_back(ask(kind, session, folder_ + "/first", counts));
}

void Graphs::compare(const std::vector<double>& values, std::size_t kind, Counts& counts) const {
  if (same_bits(values, right_[kind])) return;
  ++counts.wrong;
  say("WRONG values: " + kinds_[kind].name);
}

void Graphs::try_each(const Session& session, Counts& counts) const {
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
    compare(ask(kinds_[kind], session, folder_ + "/tried", counts), kind, counts);
}

void Graphs::work(const Session& session, std::uint64_t seed, const std::atomic<bool>& stop,
                  Counts& counts) const {
  Prng prng(seed);
  for (int number = 0; !stop; ++number) {
    const auto which = static_cast<std::size_t>(prng.below(right_.size()));
    const Kind& kind = kinds_[which];
    try {
      if (!large_ && prng.chance(0.1)) {  // and somebody changes their mind
        Future given_up = session.compute({products(session, 512, 64, 6)});
        std::this_thread::sleep_for(std::chrono::milliseconds(prng.between(0, 300)));
        given_up.cancel();
        ++counts.cancelled;
      }
      const std::string file = folder_ + "/" + std::to_string(seed) + "-" + std::to_string(number);
      const std::vector<double> values = ask(kind, session, file, counts);
      ++counts.graphs;
      compare(values, which, counts);
    } catch (const std::exception& e) {
      ++counts.failed;
      say("FAILED: " + kind.name + ": " + e.what());
      return;
    }
  }
}

}  // namespace tilewise::testing
