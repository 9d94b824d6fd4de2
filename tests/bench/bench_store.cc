// The figures of store and data plane, each beside what the machine itself can do, in the same run and in turns.
//
//   bench_store --json FILE [--quick] [--only PART]     parts: hand small copy broadcast arena reblock spill npy
//
// Clusters are a scheduler and two workers with one core and one host device each. --quick shrinks the sizes: for trying,
// not for figures.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/prng.h>
#include <tilewise/tilewise.h>

#include <sched.h>
#include <unistd.h>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench_broadcast.h"
#include "bench_disk.h"
#include "bench_transfer.h"
#include "cluster.h"
#include "hand.h"
#include "report.h"

namespace tilewise::bench {
namespace {

// So long a task sleeps before it makes its block: whoever waits for it has parked (workers poll for half a millisecond),
// but not every hop comes with a report to the scheduler (every ten), which would want a core of its own here.
constexpr std::int64_t kParkedNs = 3'000'000;

// ---- handing a block over ---------------------------------------------------------------------------------------------

// Microseconds from a block that is made to the task elsewhere that reads it, for each hop of a chain between two workers.
std::vector<double> hand_over_us(const Session& session, std::int64_t bytes, std::int64_t sleep_ns,
                                 int hops) {
  const testing::TempFolder folder;
  const std::string path = folder / "stamps";
  std::ofstream(path, std::ios::binary) << std::string(64 << 10, '\0');
  const std::vector<Device> devices = session.devices();
  const std::int64_t elements = std::max<std::int64_t>(bytes / 8, 1);
  const Grid grid = *Grid::uniform({elements}, {elements});
  Array block = session.zeros({1}, {.dtype = DType::kInt64});  // for the first, who looks at nothing
  for (int hop = 0; hop < hops; ++hop) {
    HandParams p;
    p.hop = hop;
    p.sleep_ns = sleep_ns;
    std::snprintf(p.path, sizeof p.path, "%s", path.c_str());
    const Kernel kernel{.name = "bench.hop",
                        .version = "1.0",
                        .params = std::string(reinterpret_cast<const char*>(&p), sizeof p)};
    ir::DimMap whole;
    whole.kind = ir::DimMap::Kind::kWhole;
    block = map_blocks(kernel, std::vector{block}, {{whole}}, {{DType::kInt64, grid}})
                .front()
                .on(devices[static_cast<std::size_t>(hop % 2)]);
  }
  block.persist().wait();
  std::vector<std::int64_t> stamps(static_cast<std::size_t>(2 * hops));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(stamps.data()), static_cast<std::streamsize>(stamps.size() * 8));
  std::vector<double> out;
  for (std::size_t h = 2; h < static_cast<std::size_t>(hops);
       ++h)  // the first hops come before the plan has settled
    out.push_back(static_cast<double>(stamps[2 * h] - stamps[2 * h - 1]) * 1e-3);
  return out;
}

double median_hand_over(const Settings& settings, const Session& session, std::int64_t bytes, bool parked) {
  std::vector<double> medians;
  for (int i = -1; i < settings.repeats; ++i) {
    const double one = median(hand_over_us(session, bytes, parked ? kParkedNs : 0,
                                           parked           ? 12
                                           : settings.quick ? 20
                                                            : 60));
    if (i >= 0) medians.push_back(one);
  }
  return median(medians);
}

void bench_hand(const Settings& settings, Report& report) {
  const Cluster cluster("2560MiB", {"--plugin", BENCH_HAND_PLUGIN});
  const Session session = cluster.session();
  struct Size {
    const char* name;
    std::int64_t bytes;
  };
  for (const Size& size : {Size{"64 KiB", 64 << 10}, Size{"8 MiB", 8 << 20}, Size{"128 MiB", 128 << 20},
                           Size{"1 GB", 1'000'000'000}}) {
    for (const bool parked : {false, true}) {
      report.at_most({.metric = std::string("hand-over, ") + size.name + (parked ? ", parked" : ", polled"),
                      .value = median_hand_over(settings, session, size.bytes, parked),
                      .unit = "us"},
                     parked ? 100 : 50);
    }
  }
}

// One byte through a pipe to a thread on another core that sleeps: microseconds.
double wake_up_us() {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::vector<double> times;
  double sent = 0;
  std::thread sleeper([&] {
    pin(1);
    for (char byte; read(ends[0], &byte, 1) == 1 && byte == 0;) times.push_back((now() - sent) * 1e6);
  });
  const auto write_one = [&](char byte) {
    if (write(ends[1], &byte, 1) != 1) throw std::runtime_error("the pipe broke");
  };
  std::thread([&] {
    pin(0);
    for (int i = 0; i < 40; ++i) {
      usleep(5'000);
      sent = now();
      write_one(0);
    }
    usleep(5'000);
    write_one(1);
  }).join();
  sleeper.join();
  close(ends[0]);
  close(ends[1]);
  return median(times);
}

void bench_small(const Settings& settings, Report& report) {
  {
    const Cluster cluster("256MiB", {"--plugin", BENCH_HAND_PLUGIN});
    const Session session = cluster.session();
    report.at_most({.metric = "8 B to a waiting task, polled",
                    .value = median_hand_over(settings, session, 8, false),
                    .unit = "us"},
                   2);
    std::vector<double> ours, wake;
    for (int i = 0; i < settings.repeats; ++i) {
      ours.push_back(median(hand_over_us(session, 8, kParkedNs, 60)));
      wake.push_back(wake_up_us() + 10);
    }
    report.at_most({.metric = "8 B to a waiting task, parked",
                    .value = median(ours),
                    .unit = "us",
                    .reference = "a wake-up through a pipe + 10 us",
                    .reference_value = median(wake)},
                   1);
  }
  const Cluster cluster("256MiB", {"--plugin", BENCH_HAND_PLUGIN, "--no-map"});
  const Session session = cluster.session();
  std::vector<double> ours, theirs;
  for (int i = -1; i < settings.repeats; ++i) {
    const double one = median(hand_over_us(session, 8, 0, 60));
    const auto two = ucx_perftest("ucp_am_lat", "tcp", 8, 20'000);
    if (i < 0) continue;
    ours.push_back(one);
    if (two) theirs.push_back(two->latency_us);
  }
  if (theirs.empty())
    report.note("no ucx_perftest here: 8 B between workers that do not map takes " +
                std::to_string(median(ours)) + " us");
  else
    report.at_most({.metric = "8 B to a waiting task, sockets, polled",
                    .value = median(ours),
                    .unit = "us",
                    .reference = "ucx_perftest ucp_am_lat -e, UCX_TLS=tcp",
                    .reference_value = median(theirs)},
                   2);
}

// ---- the arena --------------------------------------------------------------------------------------------------------

struct Pressed {
  double fill = 0;   // share in use when an allocation first failed
  double us = 0;     // an operation
  double moved = 0;  // bytes for each one allocated
};

// Room for `bytes` by moving living blocks, as a worker does for its lowest task: what there is to think about, not the copies.
std::optional<alloc::Extent> make_room(alloc::Arena& arena, std::vector<alloc::Extent>& live,
                                       std::int64_t bytes, double& moved) {
  const auto compaction = arena.compact(live, bytes);
  if (!compaction) return std::nullopt;
  for (const auto& [from, to] : compaction->moves) {
    moved += static_cast<double>(to.bytes);
    arena.free(std::exchange(live[from], to), {});
  }
  for (const alloc::Extent& gap : compaction->gaps) arena.free(gap, {});
  return arena.allocate_settled(bytes);
}

// Random allocations, slowly outnumbering random frees of any living block, until one fails; then as many operations as
// are left keep the arena there, a failure answered by a free. How full it is then depends on the sizes that are drawn,
// by several hundredths: the median is of hundreds of draws.
Pressed press(std::uint64_t seed, int operations, bool moves) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  alloc::Arena arena({.max_bytes = kBytes, .slab_bytes = kBytes});
  arena.add_slab(kBytes);
  Prng rng(seed);
  std::vector<std::int64_t> sizes(16);
  for (std::int64_t& s : sizes) s = rng.between(kBytes / 1024, kBytes / 64);
  std::vector<alloc::Extent> live;
  live.reserve(4096);
  Pressed out;
  double moved = 0, allocated = 0;
  const double start = now();
  for (int i = 0; i < operations; ++i) {
    const std::int64_t size = sizes[rng.below(sizes.size())];
    bool room = live.empty() || rng.chance(0.55);
    if (room) {
      auto extent = arena.allocate_settled(size);
      if (!extent && moves) extent = make_room(arena, live, size, moved);
      room = extent.has_value();
      if (room)
        live.push_back(*extent), allocated += static_cast<double>(size);
      else if (out.fill == 0)
        out.fill = static_cast<double>(arena.bytes_in_use()) / static_cast<double>(kBytes);
    }
    if (!room) {
      const std::size_t which = rng.below(live.size());
      arena.free(live[which], {});
      live[which] = live.back();
      live.pop_back();
    }
  }
  out.us = (now() - start) * 1e6 / operations;
  out.moved = moved / allocated;
  return out;
}

void bench_arena(const Settings& settings, Report& report) {
  const int operations = settings.quick ? 100'000 : 1'000'000;
  for (const bool moves : {false, true}) {
    const std::string how = moves ? "arena, blocks move: " : "arena: ";
    std::vector<double> fills, times, moved;
    for (std::uint64_t seed = 1; seed <= 301; ++seed) fills.push_back(press(seed, 10'000, moves).fill);
    for (int i = 0; i < 2 * settings.repeats + 1; ++i) {
      const Pressed pressed = press(static_cast<std::uint64_t>(i + 1), operations, moves);
      times.push_back(pressed.us), moved.push_back(pressed.moved);
    }
    report.at_least(
        {.metric = how + "in use at the first failure, 16 sizes", .value = median(fills), .unit = "share"},
        0.95);
    report.at_most({.metric = how + "allocate or free", .value = median(times), .unit = "us"}, 1);
    if (moves)
      report.note("the arena as full as can be: " + std::to_string(median(moved)) +
                  " bytes moved for each one allocated");
  }
}

// ---- reblock ----------------------------------------------------------------------------------------------------------

void bench_reblock(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 2048 : 8192, cut = n / 8;
  const Cluster cluster("2GiB");
  const Session session = cluster.session();
  Array rows = session.random.uniform({n, n}, {.seed = 3, .block = {cut, n}});
  rows.persist().wait();
  const auto elements = static_cast<std::size_t>(n * n);
  const auto from = std::make_unique<double[]>(elements), to = std::make_unique<double[]>(elements);
  std::memset(from.get(), 1, elements * sizeof(double));
  std::memset(to.get(), 1, elements * sizeof(double));
  // The same by hand: row blocks to column blocks, each of two threads half of the columns.
  const auto by_hand = [&] {
    const auto half = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; c += cut)
        for (std::int64_t r = 0; r < n; ++r)
          std::memcpy(to.get() + c * n + r * cut, from.get() + r * n + c,
                      static_cast<std::size_t>(cut) * sizeof(double));
    };
    std::thread second([&] { half(n / 2, n); });
    half(0, n / 2);
    second.join();
  };
  std::vector<double> ours, theirs;
  for (int i = -1; i < settings.repeats; ++i) {
    double one = 0;
    {
      Array columns = rows.reblock({n, cut});
      one = seconds_of([&] { columns.persist().wait(); });
      if (i < 0 && sum(columns).item<double>() != sum(rows.reblock({n, cut})).item<double>())
        throw std::runtime_error("reblock is wrong");
    }
    const double two = seconds_of(by_hand);
    if (i < 0) continue;
    ours.push_back(one * 1e3);
    theirs.push_back(two * 1e3);
  }
  report.at_most({.metric = "reblock rows to columns, " + std::to_string(n) + "^2 float64",
                  .value = median(ours),
                  .unit = "ms",
                  .reference = "strided copy, 2 threads",
                  .reference_value = median(theirs)},
                 1.5);
}

const std::vector<Part> kParts = {{"hand", bench_hand},   {"small", bench_small},
                                  {"copy", bench_copy},   {"broadcast", bench_broadcast},
                                  {"arena", bench_arena}, {"reblock", bench_reblock},
                                  {"spill", bench_spill}, {"npy", bench_npy}};

}  // namespace
}  // namespace tilewise::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], tilewise::bench::kReceiverFlag) == 0)
    return tilewise::bench::receive_blocks(argc, argv);
  return tilewise::bench::run_parts(argc, argv, tilewise::bench::kParts);
}
