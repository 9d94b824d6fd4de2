#include "graphs.h"

#include <tilewise/base/prng.h>

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

constexpr seconds kHang{60};  // of one request; faults of seconds are within
constexpr int kAsk = 20;      // a request that lost what no plan can make again is asked again so often

std::vector<double> all_of(const Session& session, const Array& x) {
  return session.compute({x}).get<double>(0, {.timeout = kHang});
}

// An array that is held while it is read again and again.
std::vector<double> held(const Session& session, const std::string&) {
  Array x = session.random.normal({400, 300}, {.seed = 5, .block = {40, 30}});
  x.persist();
  return all_of(session, matmul(x.T(), x) + sum(x, 0));
}

// What no plan can make again: two workers have it.
std::vector<double> uploaded(const Session& session, const std::string&) {
  std::vector<double> numbers(300 * 200);
  std::iota(numbers.begin(), numbers.end(), 0.5);
  Array x = session.from_memory(numbers, {300, 200}, {.block = {30, 200}});
  x.persist({.copies = 2}).wait({.timeout = kHang});
  std::vector<double> out;
  for (int i = 1; i <= 3; ++i) {
    const std::vector<double> part = all_of(session, matmul(x.T(), x * static_cast<double>(i)));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// Through a file, of which nothing may stay.
std::vector<double> saved(const Session& session, const std::string& file) {
  struct Gone {
    std::string file;
    ~Gone() {
      std::error_code ignored;
      std::filesystem::remove(file, ignored);
    }
  } gone{file};
  const Array x = session.random.uniform({500, 400}, {.seed = 13, .block = {50, 40}});
  (x * 3.0 - sum(x, 0)).save_npy(file).wait({.timeout = kHang});
  return all_of(session, sum(session.load_npy(file, {.block = {70, 400}}), 0));
}

std::mutex say_mutex;

}  // namespace

void say(const std::string& text) {
  const std::scoped_lock lock(say_mutex);
  std::cout << text << std::endl;
}

Graphs::Graphs(bool large, const std::string& only, std::string folder)
    : large_(large), folder_(std::move(folder)) {
  const std::vector<Kind> small_ones{
      {"products", false,
       [](const Session& s, const std::string&) { return all_of(s, products(s, 512, 64, 6)); }},
      {"regression", false,
       [](const Session& s, const std::string&) { return all_of(s, regression(s, 30'000, 1'000, 12)); }},
      {"reductions", false,
       [](const Session& s, const std::string&) { return all_of(s, reductions(s, 600, 60, 12)); }},
      {"held", false, held},
      {"uploaded", true, uploaded},
      {"saved", true, saved}};
  const std::vector<Kind> large_ones{
      {"products", false,
       [](const Session& s, const std::string&) { return all_of(s, products(s, 768, 24, 10)); }},
      {"regression", false,
       [](const Session& s, const std::string&) { return all_of(s, regression(s, 60'000, 120, 12)); }},
      {"reductions", false,
       [](const Session& s, const std::string&) { return all_of(s, reductions(s, 960, 32, 8)); }}};
  for (const Kind& kind : large ? large_ones : small_ones) {
    if (only.empty() || only == kind.name) kinds_.push_back(kind);
  }
  if (kinds_.empty()) throw std::invalid_argument("no graphs are called " + only);
}

std::vector<double> Graphs::ask(const Kind& kind, const Session& session, const std::string& file,
                                Counts& counts) const {
  for (int left = kAsk;; --left) {
    try {
      return kind.run(session, file + "-" + std::to_string(left) + ".npy");
    } catch (const ArrayError& e) {
      if (!kind.can_be_lost || e.code() != Errc::kWorkerLost || left == 0) throw;
      ++counts.asked_again;
      say("asked again: " + kind.name + ": " + e.what());
    }
  }
}

void Graphs::learn(const Session& session, Counts& counts) {
  for (const Kind& kind : kinds_) right_.push_back(ask(kind, session, folder_ + "/first", counts));
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
      if (same_bits(values, right_[which])) continue;
      ++counts.wrong;
      say("WRONG values: " + kind.name);
    } catch (const std::exception& e) {
      ++counts.failed;
      say("FAILED: " + kind.name + ": " + e.what());
      return;
    }
  }
}

}  // namespace tilewise::testing
