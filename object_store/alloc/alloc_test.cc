#include <tilewise/alloc/alloc.h>
#include <tilewise/base/prng.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

using namespace tilewise;
using namespace tilewise::alloc;

namespace {

Arena arena_with(std::int64_t bytes, std::int64_t alignment = 256) {
  Arena arena({.max_bytes = bytes, .slab_bytes = bytes, .alignment = alignment});
  arena.add_slab(bytes);
  return arena;
}

Extent must(std::optional<Extent> extent) {
  REQUIRE(extent.has_value());
  return *extent;
}

}  // namespace

TEST_CASE("fences merge to the maximum per stream and refuse to overflow") {
  Fence a(3, 10);
  CHECK(a.add(1, 5));
  CHECK(a.add(3, 7));  // older: no change
  CHECK(a.at(3) == 10);
  CHECK(a.at(1) == 5);
  CHECK(a.at(2) == 0);
  CHECK(a[0].stream == 1);
  Fence b(3, 12);
  CHECK(b.merge(a));
  CHECK(b.at(3) == 12);
  CHECK(b.size() == 2);

  Fence full;
  for (int s = 0; s < Fence::kMaxStreams; ++s) CHECK(full.add(static_cast<std::uint8_t>(2 * s), 1));
  const Fence before = full;
  CHECK_FALSE(full.add(1, 9));
  CHECK_FALSE(full.merge(Fence(99, 1)));
  CHECK(full == before);
  CHECK(full.merge(Fence(4, 9)));
  full.keep_if([](Fence::Point p) { return p.sequence > 1; });
  CHECK(full == Fence(4, 9));
}

TEST_CASE("a freed block is reused behind its fence, and without one when it is complete") {
  Arena arena = arena_with(1024);
  Fence wait;
  const Extent a = must(arena.allocate(1000, wait));
  CHECK(wait.empty());
  CHECK(a.bytes == 1000);
  CHECK(arena.bytes_in_use() == 1024);
  CHECK_FALSE(arena.allocate(1, wait));

  arena.free(a, Fence(2, 7));
  CHECK(arena.bytes_in_use() == 0);
  CHECK(arena.bytes_pending() == 1024);
  CHECK_FALSE(arena.allocate_settled(1));
  const Extent b = must(arena.allocate(100, wait));
  CHECK(wait == Fence(2, 7));
  arena.check_invariants();

  arena.completed(2, 6);
  CHECK_FALSE(arena.allocate_settled(1));
  arena.completed(2, 7);
  CHECK(arena.bytes_pending() == 0);
  const Extent c = must(arena.allocate_settled(768));
  arena.free(b, Fence(2, 3));  // already complete
  CHECK(arena.largest_settled() == 256);
  arena.free(c, {});
  CHECK(arena.largest_settled() == 1024);
  arena.check_invariants();
}

TEST_CASE(
    "a busy stream does not make settled neighbours wait, but may be joined with them when memory is short") {
  Arena arena = arena_with(4 * 256);
  Fence wait;
  Extent e[4];
  for (Extent& x : e) x = must(arena.allocate(256, wait));
  arena.free(e[0], {});
  arena.free(e[1], Fence(0, 5));
  arena.free(e[2], Fence(1, 6));
  CHECK(arena.largest_free() == 256);
  CHECK(must(arena.allocate_settled(256)).offset == 0);  // untouched by its neighbour's fence
  const Extent joined = must(arena.allocate(512, wait));
  CHECK(joined.offset == 256);
  CHECK(wait.at(0) == 5);
  CHECK(wait.at(1) == 6);
  arena.check_invariants();

  // A joined extent takes no more than asked; the rest keeps its own fence.
  arena.free(joined, Fence(3, 1));
  arena.free(e[3], Fence(4, 1));
  const Extent again = must(arena.allocate(700, wait));
  CHECK(wait.size() == 2);
  CHECK(again.offset == 256);
  arena.check_invariants();
  CHECK_FALSE(arena.allocate(1, wait));
}

TEST_CASE("extents freed behind the same steps are one extent") {
  Arena arena = arena_with(3 * 256);
  Fence wait;
  Extent e[3];
  for (Extent& x : e) x = must(arena.allocate(256, wait));
  arena.free(e[0], Fence(0, 5));
  arena.free(e[2], Fence(0, 5));
  arena.free(e[1], Fence(0, 5));
  CHECK(arena.largest_free() == 768);
  arena.check_invariants();
}

TEST_CASE("fences over more streams than one fence can name are not joined, and settle one by one") {
  Arena arena = arena_with(10 * 256);
  Fence wait;
  Extent e[10];
  for (Extent& x : e) x = must(arena.allocate(256, wait));
  for (int i = 0; i < 10; ++i) arena.free(e[i], Fence(static_cast<std::uint8_t>(i), 1));
  CHECK_FALSE(arena.allocate(10 * 256, wait));
  const Extent some = must(arena.allocate(8 * 256, wait));
  CHECK(wait.size() == 8);
  arena.free(some, {});
  for (int i = 0; i < 10; ++i) arena.completed(static_cast<std::uint8_t>(i), 1);
  CHECK(must(arena.allocate(10 * 256, wait)).bytes == 2560);
  CHECK(wait.empty());
}

TEST_CASE("an extent with several streams settles when all of them are complete, in any order") {
  Arena arena = arena_with(256);
  Fence wait, both(0, 4);
  REQUIRE(both.add(1, 9));
  arena.free(must(arena.allocate(1, wait)), both);
  arena.completed(1, 9);
  CHECK(arena.bytes_pending() == 256);
  must(arena.allocate(1, wait));
  CHECK(wait == Fence(0, 4));  // what is complete is not waited for
}

TEST_CASE("memory freed behind an earlier step is found although a later one is queued before it") {
  Arena arena = arena_with(1024);
  Fence wait;
  const Extent a = must(arena.allocate(256, wait)), b = must(arena.allocate(256, wait));
  must(arena.allocate(512, wait));
  arena.free(a, Fence(0, 100));
  arena.free(b, Fence(0, 1));
  arena.completed(0, 1);
  CHECK(must(arena.allocate_settled(256)).offset == b.offset);
}

TEST_CASE("empty extents cost nothing and free cleanly") {
  Arena arena({.max_bytes = 0, .slab_bytes = 1});
  Fence wait(1, 1);
  const Extent e = must(arena.allocate(0, wait));
  CHECK(e.bytes == 0);
  CHECK(wait.empty());
  arena.free(e, Fence(1, 1));
  arena.free(must(arena.allocate_settled(0)), {});
  CHECK(arena.wants_slab(0) == 0);
  arena.check_invariants();
}

TEST_CASE("growth is asked for, bounded, and fits large requests") {
  Arena arena({.max_bytes = 10'000, .slab_bytes = 2'048});
  Fence wait;
  CHECK_FALSE(arena.allocate(1, wait));
  CHECK(arena.wants_slab(1) == 2'048);
  CHECK(arena.wants_slab(5'000) == 5'120);
  CHECK(arena.wants_slab(10'000) == 0);  // 10,000 is 9,984 in whole units
  CHECK(arena.wants_slab(9'984) == 9'984);
  CHECK(arena.add_slab(5'120) == 0);
  CHECK(must(arena.allocate(5'000, wait)).slab == 0);
  CHECK(arena.add_slab(2'048) == 1);
  CHECK(arena.add_slab(2'048) == 2);
  CHECK(arena.wants_slab(256) == 768);  // what is left
  CHECK(arena.wants_slab(1'024) == 0);
  CHECK(must(arena.allocate(2'048, wait)).slab == 1);
  CHECK(arena.bytes_resident() == 9'216);
  arena.check_invariants();
}

TEST_CASE("trim gives the tail back behind its fence") {
  Arena arena = arena_with(1024);
  Fence wait;
  Extent e = must(arena.allocate(1024, wait));
  arena.trim(e, 1000, Fence(0, 1));  // same unit
  CHECK(arena.bytes_in_use() == 1024);
  arena.trim(e, 300, Fence(0, 1));
  CHECK(arena.bytes_in_use() == 512);
  CHECK(arena.bytes_pending() == 512);
  arena.check_invariants();
  arena.trim(e, 0, Fence(0, 1));
  CHECK(e.bytes == 0);
  CHECK(arena.bytes_in_use() == 0);
  CHECK(arena.largest_free() == 1024);
}
