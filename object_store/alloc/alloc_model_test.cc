// Random histories against a naive model: every byte knows its owner and the steps it waits for.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/prng.h>
#include <tilewise/base/time.h>

#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <string>

using namespace tilewise;
using namespace tilewise::alloc;

namespace {
std::uint64_t heap_allocations = 0;
}

// Counts the heap allocations of the whole test program; only differences are looked at.
void* operator new(std::size_t bytes) {
  ++heap_allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

constexpr int kStreams = 3;

// One entry an alignment unit.
struct Model {
  struct Unit {
    bool used = false;
    std::uint64_t behind[kStreams] = {};
  };
  std::vector<std::vector<Unit>> slabs;
  std::uint64_t completed[kStreams] = {};

  bool settled(const Unit& unit) const {
    for (int s = 0; s < kStreams; ++s) {
      if (unit.behind[s] > completed[s]) return false;
    }
    return true;
  }
  // Longest run of free units, of settled units only if asked.
  std::int64_t longest(bool only_settled) const {
    std::int64_t best = 0;
    for (const auto& slab : slabs) {
      std::int64_t run = 0;
      for (const Unit& unit : slab) {
        run = !unit.used && (!only_settled || settled(unit)) ? run + 1 : 0;
        best = std::max(best, run);
      }
    }
    return best;
  }
  // The units become used; all steps they wait for must be named by `wait`, unless complete.
  void take(const Extent& e, const Fence& wait, std::int64_t unit_bytes) {
    REQUIRE(e.offset % unit_bytes == 0);
    const std::int64_t units = (e.bytes + unit_bytes - 1) / unit_bytes;
    REQUIRE(e.offset / unit_bytes + units <= static_cast<std::int64_t>(slabs[e.slab].size()));
    for (std::int64_t u = e.offset / unit_bytes; u < e.offset / unit_bytes + units; ++u) {
      Unit& unit = slabs[e.slab][u];
      REQUIRE_FALSE(unit.used);
      for (int s = 0; s < kStreams; ++s) {
        REQUIRE((unit.behind[s] <= completed[s] || unit.behind[s] <= wait.at(s)));
      }
      unit.used = true;
    }
  }
  void give(const Extent& e, const Fence& fence, std::int64_t unit_bytes) {
    const std::int64_t units = (e.bytes + unit_bytes - 1) / unit_bytes;
    for (std::int64_t u = e.offset / unit_bytes; u < e.offset / unit_bytes + units; ++u) {
      Unit& unit = slabs[e.slab][u];
      unit.used = false;
      for (int s = 0; s < kStreams; ++s) unit.behind[s] = fence.at(s);
    }
  }
};

// Drives one random history; returns the arena's final digest.
std::uint64_t run_history(std::uint64_t seed, int operations) {
  INFO("seed " << seed);
  Prng rng(seed);
  const std::int64_t unit = std::int64_t{1} << rng.between(0, 9);
  const std::int64_t slab_units = rng.between(1, 300);
  Arena arena({.max_bytes = slab_units * unit * rng.between(1, 4),
               .slab_bytes = slab_units * unit,
               .alignment = unit});
  Model model;
  struct Live {
    Extent extent;
  };
  std::vector<Live> live;
  std::uint64_t recorded[kStreams] = {};
  Digest digest;
  for (int i = 0; i < operations; ++i) {
    const std::uint64_t what = rng.below(100);
    if (what < 50) {
      const std::int64_t bytes =
          rng.chance(0.02) ? 0 : rng.between(1, rng.chance(0.1) ? slab_units * unit : 20 * unit);
      const bool settled_only = rng.chance(0.2);
      Fence wait;
      auto extent = settled_only ? arena.allocate_settled(bytes) : arena.allocate(bytes, wait);
      if (!extent) {
        REQUIRE(model.longest(settled_only) * unit < bytes);
        if (const std::int64_t want = arena.wants_slab(bytes)) {
          REQUIRE(want >= bytes);
          REQUIRE(arena.add_slab(want) == model.slabs.size());
          model.slabs.emplace_back(want / unit);
        }
        continue;
      }
      if (bytes > 0) model.take(*extent, wait, unit);
      live.push_back({*extent});
      digest.mix(static_cast<std::uint64_t>(extent->offset) ^ extent->slab);
    } else if (what < 90 && !live.empty()) {
      const std::size_t which = rng.below(live.size());
      Fence fence;
      for (int s = 0; s < kStreams; ++s) {
        if (!rng.chance(0.4)) continue;
        if (rng.chance(0.5)) ++recorded[s];
        REQUIRE(fence.add(static_cast<std::uint8_t>(s), recorded[s]));
      }
      Extent& extent = live[which].extent;
      if (rng.chance(0.1) && extent.bytes > 0) {
        const Extent before = extent;
        arena.trim(extent, rng.between(0, extent.bytes), fence);
        const std::int64_t kept = (extent.bytes + unit - 1) / unit * unit;
        Extent tail = before;
        tail.offset += kept;
        tail.bytes = (before.bytes + unit - 1) / unit * unit - kept;
        if (tail.bytes > 0) model.give(tail, fence, unit);
      } else {
        arena.free(extent, fence);
        if (extent.bytes > 0) model.give(extent, fence, unit);
        live[which] = live.back();
        live.pop_back();
      }
    } else {
      const auto s = static_cast<std::uint8_t>(rng.below(kStreams));
      const auto to = model.completed[s] + rng.below(recorded[s] - model.completed[s] + 1);
      model.completed[s] = std::max(model.completed[s], to);
      arena.completed(s, to);
    }
    if (i % 7 == 0) arena.check_invariants();
  }
  for (const Live& l : live) arena.free(l.extent, {});
  for (int s = 0; s < kStreams; ++s) arena.completed(static_cast<std::uint8_t>(s), recorded[s]);
  arena.check_invariants();
  REQUIRE(arena.bytes_in_use() == 0);
  // Everything is one extent a slab again (possibly after the slow path has looked for stragglers).
  for (std::uint32_t s = 0; s < arena.slab_count(); ++s) REQUIRE(arena.allocate_settled(arena.slab_bytes(s)));
  REQUIRE(arena.bytes_pending() == 0);
  arena.digest(digest);
  return digest.value();
}

}  // namespace

TEST_CASE("random histories agree with the model, and a seed always gives the same one") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const std::uint64_t once = run_history(seed, 1500);
    if (seed % 6 == 0) CHECK(once == run_history(seed, 1500));
  }
}

namespace {

struct Pressure {
  double first_failure = 1;  // share of the arena in use when an allocation first failed
  double ns_per_operation = 0;
  std::uint64_t heap = 0;
  int failures = 0;
};

// Keeps the arena around `target` full with random allocations of `sizes` and random frees, fences trailing by eight
// steps as in a pipeline, and reports how full it was when a request first failed.
Pressure press(const std::vector<std::int64_t>& sizes, std::int64_t bytes, double target, int operations,
               std::uint64_t seed) {
  Arena arena({.max_bytes = bytes, .slab_bytes = bytes});
  arena.add_slab(bytes);
  Prng rng(seed);
  std::vector<Extent> live;
  live.reserve(4'000'000);
  std::uint64_t step = 1;
  Pressure result;
  std::uint64_t heap_before = 0;
  TimeNs start = 0;
  for (int i = 0; i < operations; ++i) {
    if (i == operations / 10) {  // the pool has grown by now
      heap_before = heap_allocations;
      start = monotonic_now();
    }
    const std::int64_t size = sizes[rng.below(sizes.size())];
    bool room = arena.bytes_in_use() + size <= static_cast<std::int64_t>(target * static_cast<double>(bytes));
    if (room) {
      Fence wait;
      if (const auto extent = arena.allocate(size, wait)) {
        live.push_back(*extent);
      } else {
        room = false;
        if (result.failures++ == 0) {
          result.first_failure =
              static_cast<double>(arena.bytes_in_use() + size) / static_cast<double>(bytes);
        }
      }
    }
    if (!room) {
      const std::size_t which = rng.below(live.size());
      ++step;
      arena.free(live[which], Fence(static_cast<std::uint8_t>(step % 2), step));
      live[which] = live.back();
      live.pop_back();
      if (step > 8) arena.completed(static_cast<std::uint8_t>(step % 2), step - 8);
    }
  }
  result.ns_per_operation =
      static_cast<double>(monotonic_now() - start) / (static_cast<double>(operations) * 0.9);
  result.heap = heap_allocations - heap_before;
  return result;
}

}  // namespace

// Random lifetimes and unrelated sizes are the hard case: programs free in the order of their loops. How full an
// arena stays depends on how many of the largest blocks the spare share holds: 5 % is 3 blocks of 1/64, but 25 of
// 1/512. Measured with 16 sizes, no failure in 300,000 operations up to: 1/64 80 %, 1/128 85 %, 1/256 88 %, 1/512 91 %,
// 1/1024 93 %; sizes spread over powers of two, 90 to 97 %. Exact best fit gives the same, first fit by address 4 %
// less, placing small blocks at the other end no more.
TEST_CASE(
    "an arena stays nearly full through a million random operations, fast and without heap allocation") {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  double slowest = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    Prng rng(seed * 7919);
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(rng.between(1, 16)));
    const std::int64_t parts = std::int64_t{64}
                               << rng.below(5);  // the largest size: 1/64 to 1/1024 of the arena
    const std::int64_t top = kBytes / parts;
    const bool even = rng.chance(0.5);
    for (auto& s : sizes) s = even ? rng.between(top / 16, top) : rng.between(top / 2, top) >> rng.below(8);
    const double target = parts < 128 ? 0.74 : parts < 512 ? 0.82 : 0.90;
    const Pressure p = press(sizes, kBytes, target, 1'000'000, seed);
    CAPTURE(seed);
    CHECK(p.failures == 0);
    CHECK(p.heap <= 4);  // the node pool may still double
    slowest = std::max(slowest, p.ns_per_operation);
  }
  MESSAGE("slowest history: " << slowest << " ns an operation");
}
