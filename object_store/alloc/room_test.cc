// Room in one piece: by freeing what is in the way, or by moving it elsewhere.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/prng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <utility>

using namespace tilewise;
using namespace tilewise::alloc;

namespace {

constexpr std::int64_t kUnit = 256;

Arena units(std::int64_t count) {
  Arena arena({.max_bytes = count * kUnit, .slab_bytes = count * kUnit, .alignment = kUnit});
  arena.add_slab(count * kUnit);
  return arena;
}

std::vector<Extent> fill(Arena& arena, std::int64_t bytes = kUnit) {
  std::vector<Extent> blocks;
  while (const auto block = arena.allocate_settled(bytes)) blocks.push_back(*block);
  return blocks;
}

std::vector<Extent> those(const std::vector<Extent>& blocks, const std::vector<std::size_t>& which) {
  std::vector<Extent> chosen;
  for (const std::size_t i : which) chosen.push_back(blocks[i]);
  return chosen;
}

// As an owner does who has copied the blocks: they are where they were to go.
void finish(Arena& arena, std::vector<Extent>& movable, const Compaction& compaction) {
  for (const auto& [from, to] : compaction.moves) arena.free(std::exchange(movable[from], to), Fence{});
  for (const Extent& gap : compaction.gaps) arena.free(gap, Fence{});
}

void give_up(Arena& arena, const Compaction& compaction) {
  for (const auto& [from, to] : compaction.moves) arena.free(to, Fence{});
  for (const Extent& gap : compaction.gaps) arena.free(gap, Fence{});
}

}  // namespace

TEST_CASE("room is made by freeing neighbours, as little as can be, or not at all") {
  Arena arena = units(10);
  const std::vector<Extent> blocks = fill(arena);
  const auto positions = [&](std::vector<std::size_t> of, std::int64_t count) {
    std::vector<std::size_t> chosen;
    for (const std::size_t i : arena.room_by_freeing(those(blocks, of), count * kUnit))
      chosen.push_back(of[i]);
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  };
  using Chosen = std::vector<std::size_t>;
  CHECK(positions({1, 3, 5, 7}, 2).empty());  // none beside another
  CHECK(positions({7, 1, 3, 2}, 2) == Chosen{1, 2});
  CHECK(positions({7, 1, 3, 2}, 3) == Chosen{1, 2, 3});
  CHECK(positions({7, 1, 3, 2}, 4).empty());
  arena.free(blocks[6], Fence{});
  CHECK(positions({7, 1, 3, 2}, 2) == Chosen{7});  // with what is free beside it
  CHECK(positions({5, 7, 1, 2}, 3) == Chosen{5, 7});
  arena.free(blocks[8], Fence(0, 1));  // not settled: nobody may write there yet
  CHECK(positions({7, 9}, 3).empty());
}

TEST_CASE("what would make room makes it, and less would not") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    Prng rng(seed);
    Arena arena({.max_bytes = 128 * 64, .slab_bytes = 64 * 64, .alignment = 64});
    arena.add_slab(64 * 64);
    arena.add_slab(64 * 64);
    std::vector<Extent> held, candidates;
    while (auto extent = arena.allocate_settled(rng.between(1, 8 * 64))) held.push_back(*extent);
    for (const Extent& extent : held) {
      if (rng.chance(0.3))
        arena.free(extent, Fence{});
      else if (rng.chance(0.6))
        candidates.push_back(extent);
    }
    const std::int64_t bytes = rng.between(1, 24 * 64);
    const auto fits_without = [&](const std::vector<std::size_t>& freed, std::size_t but) {
      Arena trial = arena;
      for (const std::size_t i : freed)
        if (i != but) trial.free(candidates[i], Fence{});
      return trial.allocate_settled(bytes).has_value();
    };
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < candidates.size(); ++i) all.push_back(i);
    if (fits_without({}, SIZE_MAX)) continue;
    const std::vector<std::size_t> chosen = arena.room_by_freeing(candidates, bytes);
    REQUIRE(chosen.empty() != fits_without(all, SIZE_MAX));
    if (chosen.empty()) continue;
    CHECK(fits_without(chosen, SIZE_MAX));
    for (const std::size_t i : {chosen.front(), chosen.back()}) CHECK_FALSE(fits_without(chosen, i));
  }
}

TEST_CASE("blocks move out of the way, as few bytes as can be, and what is free becomes one piece") {
  Arena arena = units(12);
  std::vector<Extent> blocks = fill(arena);
  for (const std::size_t i : {1, 3, 4, 8, 10}) arena.free(blocks[i], Fence{});
  std::vector<Extent> movable = those(blocks, {0, 2, 5, 9});
  REQUIRE_FALSE(arena.allocate_settled(4 * kUnit));
  const auto compaction = arena.compact(movable, 4 * kUnit);
  REQUIRE(compaction);
  // 1 to 4 with block 2 in between; it goes to one of 8 and 10.
  REQUIRE(compaction->moves.size() == 1);
  CHECK(compaction->moves[0].from == 1);
  CHECK(compaction->moves[0].to.bytes == kUnit);
  CHECK((compaction->moves[0].to.offset == 8 * kUnit || compaction->moves[0].to.offset == 10 * kUnit));
  arena.check_invariants();
  CHECK(arena.bytes_free() == kUnit);  // the gaps are kept from others meanwhile
  finish(arena, movable, *compaction);
  arena.check_invariants();
  CHECK(arena.bytes_free() == 5 * kUnit);
  CHECK(arena.allocate_settled(4 * kUnit));
}

TEST_CASE("what is too much at the ends of a range is a place for what leaves it") {
  Arena arena = units(8);
  std::vector<Extent> blocks = fill(arena);
  for (const std::size_t i : {0, 1, 2, 4}) arena.free(blocks[i], Fence{});
  std::vector<Extent> movable = those(blocks, {3, 6});
  const auto compaction = arena.compact(movable, 4 * kUnit);
  REQUIRE(compaction);
  REQUIRE(compaction->moves.size() == 1);
  CHECK(compaction->moves[0].to.offset == 0);
  give_up(arena, *compaction);
  CHECK(arena.largest_settled() == 3 * kUnit);
  const auto again = arena.compact(movable, 4 * kUnit);
  REQUIRE(again);
  finish(arena, movable, *again);
  CHECK(arena.largest_settled() == 4 * kUnit);
  CHECK_FALSE(arena.compact(movable, 5 * kUnit));
}

TEST_CASE("a block that fits nowhere else stays, and so does all that is around it") {
  Arena arena = units(6);
  std::vector<Extent> blocks{*arena.allocate_settled(kUnit), *arena.allocate_settled(2 * kUnit),
                             *arena.allocate_settled(kUnit), *arena.allocate_settled(kUnit),
                             *arena.allocate_settled(kUnit)};
  for (const std::size_t i : {0, 2, 4}) arena.free(blocks[i], Fence{});
  std::vector<Extent> large = those(blocks, {1}), both = those(blocks, {1, 3});
  CHECK_FALSE(arena.compact(large, 3 * kUnit));
  CHECK(arena.bytes_in_use() == 3 * kUnit);
  CHECK(arena.largest_settled() == kUnit);
  arena.check_invariants();
  const auto compaction = arena.compact(both, 3 * kUnit);
  REQUIRE(compaction);
  CHECK(compaction->moves[0].from == 1);  // of one unit, to the place of block 0
  CHECK(compaction->moves[0].to.offset == 0);
}

TEST_CASE("nothing moves into memory that is not settled, nor out of what is not to be moved") {
  Arena arena = units(6);
  std::vector<Extent> blocks = fill(arena);
  arena.free(blocks[0], Fence{});
  arena.free(blocks[2], Fence{});
  arena.free(blocks[4], Fence(0, 1));
  std::vector<Extent> movable = those(blocks, {1, 3});
  CHECK_FALSE(arena.compact(movable, 3 * kUnit));
  arena.completed(0, 1);
  CHECK_FALSE(arena.compact({}, 3 * kUnit));
  const auto compaction = arena.compact(movable, 3 * kUnit);
  REQUIRE(compaction);
  finish(arena, movable, *compaction);
  CHECK(arena.allocate_settled(3 * kUnit));
  CHECK_FALSE(arena.compact(movable, kUnit));  // nothing is free
}

TEST_CASE("whatever the sizes, a range is cleared and nothing lost, or nothing has changed") {
  int cleared = 0, kept = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    Prng rng(seed);
    Arena arena({.max_bytes = 128 * 64, .slab_bytes = 64 * 64, .alignment = 64});
    arena.add_slab(64 * 64);
    arena.add_slab(64 * 64);
    std::vector<Extent> held, movable, fixed;
    while (auto extent = arena.allocate_settled(rng.between(1, 8 * 64))) held.push_back(*extent);
    for (const Extent& extent : held) {
      if (rng.chance(0.4))
        arena.free(extent, rng.chance(0.1) ? Fence(0, 1) : Fence{});
      else
        (rng.chance(0.8) ? movable : fixed).push_back(extent);
    }
    const std::int64_t bytes = rng.between(1, 24 * 64), used = arena.bytes_in_use();
    if (Arena(arena).allocate_settled(bytes)) continue;
    const std::int64_t largest = arena.largest_settled();
    const auto compaction = arena.compact(movable, bytes);
    arena.check_invariants();
    if (!compaction) {
      ++kept;
      CHECK(arena.bytes_in_use() == used);
      CHECK(arena.largest_settled() == largest);
      continue;
    }
    ++cleared;
    std::set<std::size_t> moved;
    for (const auto& [from, to] : compaction->moves) {
      CHECK(moved.insert(from).second);
      CHECK(to.bytes == movable[from].bytes);
    }
    if (rng.chance(0.3)) {
      give_up(arena, *compaction);
      CHECK(arena.largest_settled() == largest);
    } else {
      finish(arena, movable, *compaction);
      CHECK(arena.allocate_settled(bytes));
    }
    for (const std::vector<Extent>* of : {&movable, &fixed})
      for (const Extent& extent : *of) arena.free(extent, Fence{});  // each is still in use, once
    arena.check_invariants();
  }
  CHECK(cleared > 50);
  CHECK(kept > 5);
}
