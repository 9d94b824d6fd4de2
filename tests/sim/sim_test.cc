// A few hundred worlds, some of them run twice; README.md says how others are chosen.
#include "families.h"
#include "last_words.h"
#include "shrink.h"

#include <tilewise/base/check.h>

#include <doctest/doctest.h>
#include <csignal>
#include <cstdlib>
#include <iostream>

using namespace tilewise;

namespace {
constexpr std::uint64_t kRepeated = 3;  // of so many worlds one runs a second time

std::uint64_t from_env(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? static_cast<std::uint64_t>(std::strtod(text, nullptr)) : otherwise;  // "1e7" too
}

// Of the processor's time: others may need it, or stop this process.
constexpr time_t kLongestWorld_s = 300 * tilewise::testing::kTimesSlower;

std::string title_of(std::size_t family);

sim::Again again_of(const sim::Family& family, std::uint64_t seed, const std::string& changes) {
  return {title_of(sim::place_of(family.name)), family.variable, seed, changes};
}

// What it takes to run a smaller world that ends as this one does.
std::string replay(sim::Again world, const sim::Knobs& knobs) {
  const std::string smaller = sim::shrink(knobs);
  world.changes += (world.changes.empty() || smaller.empty() ? "" : " ") + smaller;
  return "replay with " + sim::command(world);
}

sim::Outcome run_world(const sim::Again& world, const sim::Knobs& knobs, bool shrinks) {
  const sim::LastWords last_words(world, shrinks, kLongestWorld_s);
  return sim::World(knobs).run();
}

// Of all families, for the case that demands that every count is demanded.
struct Seen {
  std::set<std::string_view> families, demanded;
} seen;

void run_worlds(std::string_view name, const std::vector<sim::Counted>& reached, std::uint64_t seeds = 100) {
  const sim::Family& family = sim::kFamilies[sim::place_of(name)];
  const std::uint64_t only = from_env(family.variable, 0);
  const std::uint64_t first = only != 0 ? only : from_env("TILEWISE_SIM_FROM", 1);
  const std::uint64_t count = only != 0 ? 1 : from_env("TILEWISE_SIM_SEEDS", seeds);
  const auto wanted =
      static_cast<std::int64_t>(only != 0 ? 0 : from_env("TILEWISE_SIM_EVENTS", 0) / sim::kFamilyCount);
  const char* changes = std::getenv("TILEWISE_SIM_WITH");
  sim::Counts covered;
  std::uint64_t ran = 0;
  std::int64_t events = 0, checked = 0, patience = 0;
  for (std::uint64_t seed = first; wanted > 0 ? events < wanted : seed < first + count; ++seed) {
    ++ran;
    std::string wrong;
    const sim::Knobs knobs = sim::with(family.knobs(seed), changes != nullptr ? changes : "", wrong);
    REQUIRE_MESSAGE(wrong.empty(), "no such knob: " << wrong);
    INFO(knobs.describe());
    if (std::getenv("TILEWISE_SIM_VERBOSE") != nullptr) std::cerr << knobs.describe() << std::endl;
    const sim::Again world = again_of(family, seed, changes != nullptr ? changes : "");
    const bool to_shrink = std::getenv("TILEWISE_SIM_SHRINK") != nullptr,
               shrinks = to_shrink || changes == nullptr;
    if (only != 0 && to_shrink) {
      FAIL_CHECK(replay(world, knobs));
      continue;
    }
    const sim::Outcome outcome = run_world(world, knobs, shrinks);
    events += outcome.events;
    if (!outcome.violation.empty()) {
      FAIL_CHECK((shrinks ? replay(world, knobs) : "replay with " + sim::command(world))
                 << ": " << outcome.violation);
      continue;
    }
    if (only != 0 || seed % kRepeated == 0) {
      sim::Knobs again = knobs;
      again.task_tables = false;  // what tasks read is looked up in one run and worked out in the other
      CHECK_MESSAGE(run_world(world, again, shrinks).digest == outcome.digest,
                    "seed " << seed << " does not repeat itself");
    }
    checked += outcome.blocks_checked;
    patience = std::max(patience, outcome.patience_used);
    covered += outcome.covered;
    if (const char* sought = std::getenv("TILEWISE_SIM_SEEK"))
      if (const std::int64_t times = outcome.covered.of(sim::Counted::named(sought)); times > 0)
        std::cout << sought << ": " << times << " in seed " << seed << std::endl;
    covered["requests done"] += outcome.requests_done;
    covered["requests failed"] += outcome.requests_failed;
    covered["requests refused"] += outcome.requests_refused;
  }
  seen.families.insert(family.name);
  for (const sim::Counted what : reached) seen.demanded.insert(what.name());
  std::cout << events << " events in " << ran << " worlds, " << checked
            << " blocks compared with the oracle\n";
  if (patience > 0) std::cout << "  at most " << patience << " % of the time to end was used\n";
  for (std::size_t i = 0; i < sim::kCounted.size(); ++i) {
    const std::int64_t times = covered.of(sim::Counted::at(i));
    if (times > 0) std::cout << "  " << sim::kCounted[i] << ": " << times << "\n";
  }
  // A simulator that reaches nothing proves nothing; fewer seeds, or others, may miss some.
  if (only == 0 && ran >= seeds && (first == 1 || wanted > 0)) {
    for (const sim::Counted what : reached)
      CHECK_MESSAGE(covered.of(what) > 0, what.name() << " never happened");
  }
}

template <std::size_t> constexpr const char* kTitle = nullptr;  // of the family's case

// A family that nobody wrote a case for does not compile.
template <std::size_t... Families> constexpr auto all_titles(std::index_sequence<Families...>) {
  static_assert(((kTitle<Families> != nullptr) && ...), "each family in families.h has a FAMILY_CASE");
  return std::array{kTitle<Families>...};
}
}  // namespace

#define FAMILY_CASE(name, title) \
  static_assert(sim::place_of(name) < sim::kFamilyCount, "no such family"); \
  namespace { \
  template <> constexpr const char* kTitle<sim::place_of(name)> = title; \
  } \
  TEST_CASE(title)

FAMILY_CASE("random", "random worlds keep every invariant, and repeat themselves") {
  run_worlds("random", {"submits",
                        "requests failed",
                        "requests refused",
                        "failed blocks delivered",
                        "programs again",
                        "maps of several outputs",
                        "replicated",
                        "offers before their reply",
                        "failed: cancelled",
                        "duplicates between peers",
                        "duplicates to the scheduler",
                        "messages out of order between peers",
                        "messages out of order to the scheduler",
                        "log entries out of order",
                        "stale messages",
                        "transfers",
                        "uploads",
                        "cancels",
                        "cancelled by an operator",
                        "released by an operator",
                        "failed steps",
                        "steps of a worker of more than one event",
                        "steps of the scheduler of more than one event",
                        "errors that name the op, the point and what failed",
                        "killed workers",
                        "donations",
                        "replicas kept",
                        "eager tasks",
                        "clogged ways",
                        "paused workers",
                        "peer links made again",
                        "transfers begun anew",
                        "transfers to clients begun anew",
                        "slow links",
                        "messages lost and sent again",
                        "slow devices",
                        "copies from a peer's GPU",
                        "reads in a peer's GPU",
                        "slabs that could not be opened",
                        "failed allocations",
                        "meshes",
                        "blocks on loan",
                        "offers of what is on loan",
                        "loans given back",
                        "plans replayed",
                        "programs by name",
                        "blocks held up",
                        "sends that failed at their sender",
                        "sends that vanished",
                        "words of what is not sent",
                        "links measured",
                        "measurements given up",
                        "duplicate probes",
                        "requests done"});
}

FAMILY_CASE("storm", "workers die all the time, and graphs end well") {
  run_worlds("storm", {"answers to earlier losses",
                       "tasks run again where devices differ",
                       "lost: nobody left of its class",
                       "measurements failed",
                       "failed: worker lost",
                       "lost: uploaded",
                       "refused: worker lost",
                       "refused: not found",
                       "calls on listed blocks",
                       "tasks that list a block twice",
                       "tasks that list nothing",
                       "arrays listed by two operands",
                       "killed workers",
                       "the last worker killed",
                       "respawned workers",
                       "blocks on loan",
                       "lost: nobody left",
                       "losses on losses",
                       "blocks held up",
                       "words of what is not sent",
                       "recoveries given up",
                       "recoveries worked out again",
                       "loans that outlived their worker",
                       "clients that had some of what was lost",
                       "recoveries without a client's answer",
                       "killed while measuring a link",
                       "killed while its link was measured",
                       "requests done"});
}

FAMILY_CASE("restarts", "the scheduler dies at any step and comes back from what it wrote down") {
  run_worlds("restarts",
             {"scheduler crashes", "scheduler crashes while a link was measured", "checkpoints",
              "killed workers", "uploads", "cancels", "requests done"},
             70);
}

FAMILY_CASE("drain", "workers leave as they are asked to, and nothing is lost or made again") {
  run_worlds("drain",
             {"refused: unavailable", "drains", "drains taken back", "drained workers", "blocks moved",
              "blocks on loan", "killed workers", "scheduler crashes", "requests done"},
             70);
}

FAMILY_CASE("copies", "arrays on several workers outlive all but one of them, and are on several again") {
  run_worlds("copies",
             {"failed copies from a peer's GPU", "recoveries worked out again", "surveys overtaken by losses",
              "arrays on several workers", "blocks asked for elsewhere", "copies made again",
              "anchors at rest", "arrays on several workers lost", "killed workers", "drained workers",
              "scheduler crashes", "requests done"},
             70);
}

FAMILY_CASE("spill", "what does not fit goes to disk and comes back as it was") {
  run_worlds("spill", {"failed: disk full", "refused: disk full", "failed: i/o error",
                       "calls on listed blocks", "tasks that list a block twice", "tasks that list nothing",
                       "arrays listed by two operands", "blocks spilled", "blocks brought back",
                       "blocks that moved within memory", "clean blocks dropped", "sent from disk",
                       "disk full", "failed writes to disk", "killed workers", "requests done"});
}

FAMILY_CASE(
    "pinned",
    "what does not fit goes to pinned memory, then to disk if there is one, and comes back as it was") {
  run_worlds(
      "pinned",
      {"failed: device error", "blocks to pinned memory", "blocks from pinned memory", "blocks spilled",
       "blocks brought back", "clean blocks dropped", "sent from pinned memory", "sent from disk",
       "pinned memory is full", "blocks from pinned memory to disk", "failed reads from pinned memory",
       "failed writes to pinned memory", "blocks to neighbours", "blocks back from neighbours",
       "failed copies between neighbours", "relays missing", "killed workers", "requests done"},
      130);
}

FAMILY_CASE("failures",
            "who reads what a failed step has left fails of its cause, whatever comes of that and is heard "
            "of first") {
  run_worlds("failures",
             {"steps heard of together", "steps that failed of what a failed one had left", "failed steps",
              "failed: task failed", "errors that name the op, the point and what failed", "requests done"},
             60);
}

FAMILY_CASE("poison", "a task that takes its workers down fails after the third, alone") {
  run_worlds("poison",
             {"refused: a device that was asked for is gone", "taken down by a task",
              "failed as a task that takes workers down", "run alone", "supervisors that said nothing",
              "recoveries without last words", "failed: task failed", "respawned workers",
              "scheduler crashes", "requests done"},
             70);
}

FAMILY_CASE("flaps",
            "links break and come back, and nobody notices; clients that do not come back leave nothing") {
  run_worlds(
      "flaps",
      {"broken links of clients", "broken links of workers", "vanished clients",
       "clients that came after one that vanished", "scheduler crashes", "killed workers", "requests done"},
      70);
}

FAMILY_CASE("partitions", "workers lose each other while the scheduler sees both, and graphs end well") {
  run_worlds("partitions",
             {"one-way partitions", "two-way partitions", "broken links between workers",
              "lost between workers", "transfers cut off", "left for want of a link", "scheduler crashes",
              "respawned workers", "requests done"},
             70);
}

FAMILY_CASE(
    "fencing",
    "workers that are declared lost and live change nothing, and what is left of the cluster goes on") {
  run_worlds("fencing",
             {"before a client knew the worker", "workers cut off", "cut off workers that crawl",
              "links to living workers that were declared lost", "workers that found themselves fenced",
              "transfers cut off", "clients that hear late of a loss", "scheduler crashes",
              "clients that came after one that vanished", "requests done"},
             70);
}

FAMILY_CASE("gatherings", "several clients make one array of what each has, or all are told why not") {
  run_worlds("gatherings", {"refused: already exists", "refused: cancelled", "refused: invalid argument",
                            "refused: timeout", "announcements", "arrays gathered", "pieces asked for",
                            "wrong announcements", "gatherings refused", "gatherings given up for the lost",
                            "blocks on loan", "gathered arrays failed", "repeated announcements",
                            "scheduler crashes", "vanished clients", "killed workers", "requests done"});
}

FAMILY_CASE("silence", "silence is noticed, also of who lives, and graphs end well") {
  run_worlds("silence",
             {"clients that fell silent",
              "clients that left",
              "clients whose link was closed",
              "clients that lost their session",
              "closed by the scheduler",
              "workers that were told to start afresh",
              "stopped workers",
              "stopped clients",
              "stopped schedulers",
              "declared lost for silence",
              "declared lost after a lease",
              "silence while the scheduler did not listen",
              "living workers declared lost",
              "living clients declared lost",
              "workers that found themselves fenced",
              "one-way loss from a worker to a worker",
              "one-way loss from a worker to a client",
              "one-way loss from a client to a worker",
              "one-way loss from a worker to the scheduler",
              "one-way loss from the scheduler to a worker",
              "one-way loss from a client to the scheduler",
              "one-way loss from the scheduler to a client",
              "losses on losses",
              "newcomers asked after a loss",
              "scheduler crashes",
              "vanished clients",
              "requests done"},
             170);
}

FAMILY_CASE("acts", "everything breaks, some of it heals, and what is left gets on in time") {
  run_worlds(
      "acts",
      {"everything broke", "scheduler crashes", "stopped workers", "stopped clients", "stopped schedulers",
       "killed workers", "workers that did not heal", "clients that did not heal",
       "links made again when all was healed", "living workers declared lost", "losses on losses",
       "newcomers asked after a loss", "requests that had to end in time", "requests done"},
      60);
}

FAMILY_CASE("starving", "memory of some kind cannot be had, and graphs end well or say so") {
  run_worlds("starving",
             {"errors that name the op", "requests for memory that failed",
              "errors that name the op, the point and what failed", "no memory for slabs",
              "no memory for places on disk", "no memory for copies to and from pinned memory",
              "no memory for scratch of steps", "no memory for staging of transfers", "requests done"});
}

FAMILY_CASE("large", "dozens of workers") { run_worlds("large", {"killed workers", "requests done"}, 4); }

FAMILY_CASE(
    "trees",
    "what several devices of a host read comes there once, and nobody waits for who cannot pass it on") {
  run_worlds("trees",
             {"blocks passed on", "blocks in parts", "parts passed on",
              "parts that did not come to be passed on", "blocks held up", "blocks asked for elsewhere",
              "relays declined", "transfers between hosts", "transfers inside a host", "crossings checked",
              "killed workers", "cancels", "failed steps", "requests done"},
             60);
}

FAMILY_CASE("crowds", "sessions crowd a device, and each gets memory") {
  run_worlds("crowds",
             {"refused: out of memory", "blocks that reached neighbours", "put off for another session",
              "left for another session", "blocks spilled", "failed: out of memory", "killed workers",
              "requests done"},
             60);
}

FAMILY_CASE("moves",
            "what devices have not begun goes to others, and nothing is lost, made twice or waited for") {
  run_worlds(
      "moves",
      {"calls on listed blocks", "tasks that list a block twice", "tasks that list nothing",
       "arrays listed by two operands", "points given away", "tasks taken back", "late workers",
       "drained workers", "killed workers", "scheduler crashes", "cancels", "failed steps", "requests done"},
      60);
}

FAMILY_CASE("files",
            "arrays that no other worker can take are read from files, and files of nobody are removed") {
  run_worlds("files",
             {"folders tended",
              "folders that nobody tends any more",
              "steps that found a spoilt checkpoint",
              "checkpoints made durable",
              "blocks read from checkpoints",
              "results of one op read from their checkpoints",
              "blocks read from the folder of a life before",
              "lives with another folder",
              "failed looks at the folder",
              "checkpoints that could not be made",
              "failed writes to checkpoints",
              "checkpoints that did not become durable",
              "failed reads from checkpoints",
              "no room for a checkpoint",
              "checkpoint files removed",
              "checkpoint files cut",
              "checkpoints that were not there",
              "checkpoint files written over",
              "folders taken away",
              "lost: not read from its checkpoint",
              "killed while it looked at the folder",
              "killed while it wrote a checkpoint",
              "files of nobody removed",
              "folders left clean",
              "scheduler crashes",
              "killed workers",
              "requests done"},
             200);
}

FAMILY_CASE("minimum",
            "what is made again after a loss is what an oracle finds necessary, and no block more") {
  run_worlds("minimum",
             {"recoveries compared with the minimum",
              "recoveries compared beside copies",
              "recoveries that were not compared",
              "recoveries that are the minimum to the block",
              "recoveries that make nothing again",
              "clients that had some of what was lost",
              "blocks made again that must be",
              "blocks made again that their living makers had let go",
              "wanted blocks of the lost that others have",
              "losses on losses",
              "surveys compared with the minimum",
              "departures compared with the minimum",
              "tasks that who left had not begun",
              "uploads asked for again that must be",
              "recoveries given up for uploads that are lost",
              "tasks of several results made again",
              "tasks run again for some of their results",
              "tasks whose wanted results one other device has",
              "maps of several outputs",
              "calls on listed blocks",
              "killed workers",
              "requests done"},
             200);
}

// Too rare for the default seeds: worlds that are known to show it.
TEST_CASE("rare branches are reached by worlds that are known for them") {
  struct Rare {
    sim::Counted what;
    std::string_view family;
    std::vector<std::uint64_t> seeds;
    const char* changes = "";  // of their knobs
  };
  const std::vector<Rare> all = {
      {"blocks that failed on their way", "spill", {276}, "clients=3 disk_fails=0.4"},
      {"guests dismissed", "pinned", {810, 819, 875, 876}},
      {"no memory for buffers for disk", "starving", {114, 266, 458}},
      {"replicas evicted", "spill", {201, 1458, 1909}},
      {"no memory for copies between neighbours", "starving", {2026112737, 2026112841, 2026112965}},
      {"lost: past cut", "files", {9, 277}},
      {"answers that were cut", "acts", {140, 152}},
      {"lost: too many pieces", "acts", {140, 152}},
      {"clients that found themselves fenced", "silence", {1226, 1960, 2110}},
      {"wrong reads of who was declared lost", "fencing", {1630}},
      {"results made again beside others of their task",
       "storm",
       {246, 1437},
       "pairs=0.9 kills=5 workers=3 respawn=1"},
      {"tasks to be run again that had their results",
       "minimum",
       {300711, 301119},
       "pairs=0.9 kills=5 workers=4 respawn=1"},
      {"refused: nobody had joined yet", "files", {2027000470}},
      {"failed: not found", "starving", {2027000054}, "turn_ns=0"},
      {"failed: timeout", "starving", {3200000287}},
      {"messages that waited for a worker", "storm", {198, 204, 259}},
      {"refused: i/o error", "pinned", {1761}, "disk_fails=0.3"},
      {"refused: device error", "pinned", {1920, 2742}, "disk_fails=0.3 turn_ns=0"},
      {"failed copies within memory", "spill", {2248, 2424, 2990}},
      {"failed reads from disk", "crowds", {292, 333}},
      {"killed while it read a checkpoint", "files", {385, 1177}},
      {"refused: task failed", "trees", {115, 153}},
      {"refused: task failed", "spill", {15}},
  };
  for (const auto& [what, family, seeds, changes] : all) {
    std::int64_t times = 0;
    for (const std::uint64_t seed : seeds) {
      CAPTURE(seed);
      std::string wrong;
      const sim::Family& of = sim::kFamilies[sim::place_of(family)];
      const sim::Knobs knobs = sim::with(of.knobs(seed), changes, wrong);
      REQUIRE(wrong.empty());
      const sim::Outcome outcome = run_world(again_of(of, seed, changes), knobs, true);
      CHECK_MESSAGE(outcome.violation.empty(), outcome.violation);
      times += outcome.covered.of(what);
    }
    CHECK_MESSAGE(times > 0, what.name() << " never happened in worlds of the family " << family);
    seen.demanded.insert(what.name());
  }
}

TEST_CASE("whatever may be counted is demanded") {
  if (seen.families.size() < sim::kFamilyCount) return;  // some cases were left out
  for (const std::string_view what : sim::kCounted)
    CHECK_MESSAGE(seen.demanded.contains(what), "nobody demands that there be any: " << what);
}

namespace {
std::string title_of(std::size_t family) {
  static constexpr auto kTitles = all_titles(std::make_index_sequence<sim::kFamilyCount>());
  return kTitles[family];
}

// 400 blocks of two arrays, a millisecond each, without faults.
TimeNs took(std::uint64_t seed, int workers, int slower, int late, bool moves) {
  sim::Knobs k;
  k.seed = seed;
  k.workers = workers;
  k.devices_each = k.requests = 1;
  k.duplicate = 0;
  k.memory_bytes = 4 << 20;
  k.blocks = 400;
  k.slower = slower;
  k.queue_steps = 2;
  k.window = 64;
  k.late = late;
  k.kill_span_ns = 40 * kMillisecond;
  if (moves) k.moves = 2, k.moves_every_ns = 10 * kMillisecond;
  const sim::Outcome outcome = sim::World(k).run();
  CHECK_MESSAGE(outcome.violation.empty(), outcome.violation);
  CHECK(outcome.requests_done == 1);
  CHECK((outcome.covered.of("points given away") > 0) == moves);
  return outcome.last_done_ns;
}
}  // namespace

TEST_CASE("a slow device and a newcomer cost less where what has not begun is moved") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    // One of four takes three times as long as the others. All together could be done in 800 / (3 + 1/3) ms.
    const TimeNs slow = took(seed, 4, 3, 0, false), moved = took(seed, 4, 3, 0, true);
    MESSAGE("one of four is slower: ", slow / kMillisecond, " ms, moved: ", moved / kMillisecond, " ms");
    CHECK(moved < slow * 2 / 3);
    CHECK(moved < 240 * kMillisecond * 5 / 4);
    // A third worker comes within 40 ms.
    const TimeNs two = took(seed, 2, 1, 1, false), three = took(seed, 2, 1, 1, true);
    MESSAGE("a third one comes: ", two / kMillisecond, " ms, and takes part: ", three / kMillisecond, " ms");
    CHECK(three < two * 5 / 6);
  }
}

TEST_CASE("a world without much memory ends well or says so, whichever request for memory fails") {
  const sim::Family& family = sim::kFamilies[sim::place_of("starving")];
  for (const std::uint64_t seed : {2u, 5u, 9u}) {
    sim::Knobs k = family.knobs(seed);
    k.kills = 0, k.workers = 2, k.clients = 1, k.requests = 3, k.alloc_lasts = false;
    k.alloc_fails_at = 0;
    const std::int64_t all = sim::World(k).run().allocations;
    for (std::int64_t at = 1; at <= all; ++at) {
      k.alloc_fails_at = static_cast<int>(at);
      const sim::Again world = again_of(
          family, seed,
          "kills=0 workers=2 clients=1 requests=3 alloc_lasts=0 alloc_fails_at=" + std::to_string(at));
      const sim::Outcome outcome = run_world(world, k, true);
      CHECK_MESSAGE(outcome.violation.empty(),
                    "seed " << seed << ", request " << at << ": " << outcome.violation);
      CHECK(outcome.covered.of("requests for memory that failed") == 1);
    }
  }
}

TEST_CASE("knobs are set by name, and a world that does not fail is not made smaller") {
  std::string wrong;
  sim::Knobs knobs = sim::with(sim::Knobs::storm(3), "clients=1 duplicate=0.25 kills=0", wrong);
  CHECK(wrong.empty());
  CHECK(knobs.clients == 1);
  CHECK(knobs.duplicate == 0.25);
  CHECK(sim::shrink(knobs, {.worlds = 3}).empty());
  sim::with(knobs, "nonsense=1", wrong);
  CHECK(wrong == "nonsense=1");
}

namespace {
std::string shrunk(std::function<std::string(const sim::Knobs&)> run, TimeNs each_ns = 20 * kSecond) {
  sim::Knobs knobs;
  knobs.clients = 4, knobs.requests = 8, knobs.kills = 3, knobs.duplicate = 0.5, knobs.window = 16;
  return sim::shrink(knobs, {.worlds = 200, .each_ns = each_ns, .run = std::move(run)});
}
}  // namespace

TEST_CASE("a world is made smaller as long as it violates the same rule") {
  // With one client it violates another one, and without workers that die the same one at another time.
  const auto run = [](const sim::Knobs& k) -> std::string {
    if (k.clients < 2) return "t=7 ns: request 1 of client 0 never ended";
    if (k.requests < 3) return {};
    return "t=" + std::to_string(100 * k.kills) + " ns: worker " + std::to_string(k.kills) + " kept " +
           std::to_string(k.window) + " tasks: and more";
  };
  const std::string changes = shrunk(run);
  std::string wrong;
  const sim::Knobs left = sim::with({}, changes, wrong);
  CHECK(wrong.empty());
  CHECK(changes.find("clients=2 requests=4 kills=0") == 0);  // halves, then nothing in between
  CHECK(left.duplicate == 0);
  CHECK(left.window == 2);
  CHECK(sim::kind_of("t=300 ns: worker 3 kept 16 tasks: and more") == "worker  kept  tasks");
}

TEST_CASE("a world that ends at a check is made smaller as long as it ends at that check") {
  const std::string changes = shrunk([](const sim::Knobs& k) -> std::string {
    TW_CHECK(k.clients >= 2, "another one");
    TW_CHECK(k.requests < 2, "this one, with " + std::to_string(k.window));
    return {};
  });
  CHECK(changes.find("clients=2 requests=2 kills=0") == 0);
}

TEST_CASE("a world that ends by a signal is made smaller as long as it ends by that signal") {
  const std::string changes = shrunk([](const sim::Knobs& k) -> std::string {
    if (k.clients < 2) std::raise(SIGFPE);
    if (k.requests >= 2) std::raise(SIGSEGV);
    return {};
  });
  CHECK(changes.find("clients=2 requests=2 kills=0") == 0);
}

TEST_CASE("a world that does not end is made smaller as long as it does not") {
  const auto run = [](const sim::Knobs& k) -> std::string {
    if (k.clients < 2) return "t=1 ns: something else";
    for (volatile int turns = 0; k.kills > 0;) turns = turns + 1;
    return {};
  };
  const std::string changes = shrunk(run, 20 * kMillisecond);
  CHECK(changes.find("clients=2 requests=1 kills=1") == 0);
}
