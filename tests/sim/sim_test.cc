// A few hundred worlds, each run twice. `TILEWISE_SIM_SEEDS=n` and `TILEWISE_SIM_SEED=s` choose others.
#include "world.h"

#include <doctest/doctest.h>
#include <cstdlib>
#include <iostream>

using namespace tilewise;

namespace {
std::uint64_t from_env(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

void run_worlds(sim::Knobs (*knobs_of)(std::uint64_t), const std::string& seed_variable,
                const std::vector<const char*>& reached, std::uint64_t seeds = 300) {
  const std::uint64_t only = from_env(seed_variable.c_str(), 0);
  const std::uint64_t first = only != 0 ? only : 1;
  const std::uint64_t count = only != 0 ? 1 : from_env("TILEWISE_SIM_SEEDS", seeds);
  std::map<std::string, std::int64_t> covered;
  std::int64_t events = 0, checked = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const sim::Knobs knobs = knobs_of(seed);
    INFO(knobs.describe());
    if (std::getenv("TILEWISE_SIM_VERBOSE") != nullptr) std::cerr << knobs.describe() << std::endl;
    const sim::Outcome outcome = sim::World(knobs).run();
    if (!outcome.violation.empty()) {
      FAIL_CHECK("replay with " << seed_variable << "=" << seed << ": " << outcome.violation);
      continue;
    }
    CHECK_MESSAGE(sim::World(knobs).run().digest == outcome.digest,
                  "seed " << seed << " does not repeat itself");
    events += outcome.events;
    checked += outcome.blocks_checked;
    for (const auto& [what, times] : outcome.covered) covered[what] += times;
    covered["requests done"] += outcome.requests_done;
    covered["requests failed"] += outcome.requests_failed;
    covered["requests refused"] += outcome.requests_refused;
  }
  std::cout << events << " events, " << checked << " blocks compared with the oracle\n";
  for (const auto& [what, times] : covered) std::cout << "  " << what << ": " << times << "\n";
  if (only == 0) {  // a simulator that reaches nothing proves nothing
    for (const char* what : reached) {
      CHECK_MESSAGE(covered[what] > 0, what << " never happened");
    }
  }
}
}  // namespace

TEST_CASE("random worlds keep every invariant, twice alike") {
  run_worlds(sim::Knobs::from_seed, "TILEWISE_SIM_SEED",
             {"duplicates between peers", "transfers", "uploads", "cancels", "cancelled by an operator",
              "released by an operator", "failed steps", "killed workers", "donations", "replicas kept",
              "eager tasks", "meshes", "plans replayed", "requests done"});
}

TEST_CASE("workers die all the time, and graphs end well") {
  run_worlds(sim::Knobs::storm, "TILEWISE_SIM_STORM",
             {"killed workers", "the last worker killed", "respawned workers", "requests done"});
}

TEST_CASE("the scheduler dies at any step and comes back from what it wrote down") {
  run_worlds(sim::Knobs::restarts, "TILEWISE_SIM_RESTARTS",
             {"scheduler crashes", "checkpoints", "killed workers", "uploads", "cancels", "requests done"},
             150);
}

TEST_CASE("workers leave as they are asked to, and nothing is lost or made again") {
  run_worlds(sim::Knobs::draining, "TILEWISE_SIM_DRAIN",
             {"drains", "drains taken back", "drained workers", "blocks moved", "killed workers",
              "scheduler crashes", "requests done"});
}

TEST_CASE("what does not fit goes to disk and comes back as it was") {
  run_worlds(sim::Knobs::spilling, "TILEWISE_SIM_SPILL",
             {"blocks spilled", "blocks brought back", "clean blocks dropped", "sent from disk", "disk full",
              "failed reads from disk", "failed writes to disk", "killed workers", "requests done"});
}
