#include "random_world.h"

#include <doctest/doctest.h>

using namespace tilewise;
using namespace tilewise::ir;
using namespace tilewise::ir::testing;

namespace {
std::vector<std::int64_t> begins(const DimGrid& g) {
  std::vector<std::int64_t> b;
  for (std::int64_t i = 0; i < g.count(); ++i) b.push_back(g.begin(i));
  return b;
}
}  // namespace

TEST_CASE("uniform cuts: ragged ends, phases, empty extents") {
  CHECK(begins(*DimGrid::uniform(10, 4)) == std::vector<std::int64_t>{0, 4, 8});
  CHECK(begins(*DimGrid::uniform(10, 4, 1)) == std::vector<std::int64_t>{0, 3, 7});
  CHECK(DimGrid::uniform(10, 4)->size(2) == 2);
  CHECK(DimGrid::uniform(0, 4)->count() == 0);
  CHECK(*DimGrid::uniform(0, 4, 3) == DimGrid::whole(0));
  CHECK(DimGrid::uniform(10, 0).error().code == Errc::kInvalidArgument);
  CHECK(DimGrid::uniform(-1, 4).error().code == Errc::kInvalidArgument);
  CHECK(DimGrid::uniform(10, 4, 4).error().code == Errc::kInvalidArgument);
  CHECK(DimGrid::uniform(INT64_MAX, 1).error().code == Errc::kInvalidArgument);
}

TEST_CASE("equal cuts compare equal, however they were given") {
  CHECK(*DimGrid::uniform(10, 100, 7) == DimGrid::whole(10));
  CHECK(*DimGrid::uniform(10, 8, 2) == *DimGrid::uniform(10, 6));
  CHECK(*DimGrid::cuts(10, {0, 3, 7}) == *DimGrid::uniform(10, 4, 1));
  CHECK(*DimGrid::cuts(10, {0, 1}) == *DimGrid::uniform(10, 9, 8));
  CHECK_FALSE(DimGrid::cuts(10, {0, 3, 5})->is_uniform());
  Prng rng(1);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t n = rng.between(0, 12), a = rng.between(1, 14), b = rng.between(1, 14);
    const DimGrid x = *DimGrid::uniform(n, a, rng.between(0, a - 1)),
                  y = *DimGrid::uniform(n, b, rng.between(0, b - 1));
    REQUIRE((x == y) == (begins(x) == begins(y)));
    REQUIRE(*DimGrid::cuts(n, begins(x)) == x);
  }
}

TEST_CASE("explicit cuts are checked and limited") {
  CHECK(DimGrid::cuts(10, {1, 3}).error().code == Errc::kInvalidArgument);
  CHECK(DimGrid::cuts(10, {0, 3, 3}).error().code == Errc::kInvalidArgument);
  CHECK(DimGrid::cuts(10, {0, 10}).error().code == Errc::kInvalidArgument);
  CHECK(DimGrid::cuts(10, {}).error().code == Errc::kInvalidArgument);
  CHECK(DimGrid::cuts(0, {}).has_value());
  CHECK(DimGrid::cuts(0, {0}).error().code == Errc::kInvalidArgument);
  std::vector<std::int64_t> starts(limits::kMaxExplicitCuts);
  for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<std::int64_t>(i * i);
  CHECK(DimGrid::cuts(std::int64_t{1} << 40, starts).has_value());
  starts.push_back(starts.back() + 1);
  CHECK(DimGrid::cuts(std::int64_t{1} << 40, starts).error().code == Errc::kLimitExceeded);
}

TEST_CASE("find, begin, end and max_size agree on random cuts") {
  const std::uint64_t seed = 20240601;
  INFO("seed ", seed);
  Prng rng(seed);
  for (int i = 0; i < 3000; ++i) {
    const DimGrid g = random_cuts(rng, rng.between(0, 30));
    std::int64_t at = 0, most = 0;
    for (std::int64_t b = 0; b < g.count(); ++b) {
      REQUIRE(g.begin(b) == at);
      REQUIRE(g.end(b) > at);
      for (; at < g.end(b); ++at) REQUIRE(g.find(at) == b);
      most = std::max(most, g.size(b));
    }
    REQUIRE(at == g.extent());
    REQUIRE(g.max_size() == most);
  }
}

TEST_CASE("grids: limits of blocks, volume and rank") {
  const std::int64_t n = std::int64_t{1} << 20;
  CHECK(Grid::uniform({n, 3800}, {1, 1})->block_count() == n * 3800);
  CHECK(Grid::uniform({4'000'000'000}, {1}).has_value());
  CHECK(Grid::uniform({4'000'000'001}, {1}).error().code == Errc::kLimitExceeded);
  CHECK(Grid::uniform({n, n, n, n}, {n, n, n, n}).error().code == Errc::kOutOfRange);
  CHECK(Grid::uniform({3}, {1, 1}).error().code == Errc::kInvalidArgument);
  CHECK(Grid(std::vector<DimGrid>(9, DimGrid::whole(1))).verify().error().code == Errc::kLimitExceeded);
  CHECK(Grid().block_count() == 1);
  CHECK(Grid().verify().has_value());
  CHECK(Grid::uniform({3, 0}, {2, 2})->block_count() == 0);
  const Grid g = *Grid::uniform({8192, 5000}, {1024, 1024});
  CHECK(to_string(g) == "(8192, 5000) in blocks of (1024, 1024)");
  CHECK(g.box({1, 4}) == Box{{1024, 4096}, {2048, 5000}});
  CHECK(g.max_block_shape() == Shape{1024, 1024});
}

TEST_CASE("default cuts: about 8 MiB, near cubic, powers of two") {
  CHECK(Grid::by_default({8192, 8192}, 8)->max_block_shape() == Shape{1024, 1024});
  CHECK(Grid::by_default({8192, 8192}, 4)->max_block_shape() == Shape{1024, 2048});
  CHECK(Grid::by_default({1000, 1000}, 8)->block_count() == 1);
  CHECK(Grid::by_default({1 << 30}, 8)->max_block_shape() == Shape{1 << 20});
  CHECK(Grid::by_default({1 << 20, 3}, 8)->max_block_shape() == Shape{1 << 18, 3});
  CHECK(Grid::by_default({512, 512, 512}, 8)->max_block_shape() == Shape{64, 128, 128});
  CHECK(Grid::by_default({}, 8)->block_count() == 1);
  CHECK(Grid::by_default({5, 0}, 8)->block_count() == 0);
  CHECK(Grid::by_default({std::int64_t{1} << 55}, 8).error().code == Errc::kLimitExceeded);
}

TEST_CASE("refinements hold the cuts of both") {
  const std::uint64_t seed = 77;
  INFO("seed ", seed);
  Prng rng(seed);
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t n = rng.between(0, 20);
    const DimGrid a = random_cuts(rng, n), b = random_cuts(rng, n), c = *common_refinement(a, b);
    std::vector<std::int64_t> both = begins(a);
    for (const std::int64_t x : begins(b)) both.push_back(x);
    std::sort(both.begin(), both.end());
    both.erase(std::unique(both.begin(), both.end()), both.end());
    REQUIRE(begins(c) == both);
    REQUIRE(refines(c, a));
    REQUIRE(refines(a, b) == (a == c));
  }
  const DimGrid twos = *DimGrid::uniform(1 << 20, 2), threes = *DimGrid::uniform(1 << 20, 3);
  CHECK_FALSE(common_refinement(twos, threes));
  CHECK(common_refinement(twos, *DimGrid::uniform(1 << 20, 4)) == twos);
}
