#include "pieces.h"

#include <tilewise/base/prng.h>

#include <doctest/doctest.h>

namespace tilewise::scheduler {
namespace {

std::string who(std::size_t part) { return "p" + std::to_string(part); }

std::vector<Gathering::Part> parts_of(std::vector<std::vector<ir::Box>> pieces) {
  std::vector<Gathering::Part> parts;
  for (auto& own : pieces)
    parts.push_back({SessionId{static_cast<std::uint32_t>(parts.size() + 1)}, 1, 1, 100, own});
  return parts;
}

// Splits a box again and again, at random.
void split(Prng& prng, const ir::Box& box, int times, std::vector<ir::Box>& out) {
  const int d = box.rank() == 0 ? -1 : static_cast<int>(prng.below(static_cast<std::uint64_t>(box.rank())));
  if (times == 0 || d < 0 || box.extent(d) < 2) return out.push_back(box);
  ir::Box low = box, high = box;
  low.hi[d] = high.lo[d] = prng.between(box.lo[d] + 1, box.hi[d] - 1);
  split(prng, low, times - 1, out);
  split(prng, high, times - 1, out);
}

TEST_CASE("any tiling by boxes is a grid, and each block lies in the piece of its owner") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    Prng prng(seed);
    ir::Shape shape;
    for (auto rank = prng.between(0, 3); rank > 0; --rank) shape.push_back(prng.between(1, 20));
    std::vector<ir::Box> tiles;
    split(prng, ir::box_of(shape), static_cast<int>(prng.between(0, 5)), tiles);
    std::vector<std::vector<ir::Box>> dealt(static_cast<std::size_t>(prng.between(1, 4)));
    for (const ir::Box& tile : tiles) dealt[prng.below(dealt.size())].push_back(tile);
    auto parts = parts_of(dealt);
    REQUIRE(check_pieces(shape, tiles).has_value());
    const auto covered = cover(shape, 8, parts, who);
    REQUIRE(covered.has_value());
    CHECK(covered->grid.shape() == shape);
    std::vector<DeviceId> devices;
    for (std::size_t p = 0; p < parts.size(); ++p)
      devices.push_back(DeviceId{static_cast<std::uint32_t>(p + 10)});
    const ir::Placement placement = placement_of(*covered, parts, devices);
    const ir::Shape counts = covered->grid.counts();
    REQUIRE(placement.verify(counts).has_value());
    for (std::int64_t block = 0; block < covered->grid.block_count(); ++block) {
      const ir::Box box = covered->grid.box(ir::unravel(block, counts));
      const auto& own = parts[covered->owners[static_cast<std::size_t>(block)]].pieces;
      CHECK(std::any_of(own.begin(), own.end(),
                        [&](const ir::Box& piece) { return ir::intersect(piece, box) == box; }));
      CHECK(placement.owner(ir::unravel(block, counts)) ==
            devices[covered->owners[static_cast<std::size_t>(block)]]);
    }
    // One tile less is a gap, one twice an overlap; both are found where they are.
    const ir::Box tile = tiles[prng.below(tiles.size())];
    for (auto& part : parts) std::erase(part.pieces, tile);
    const auto gap = cover(shape, 8, parts, who);
    REQUIRE(gap.has_error());
    CHECK(gap.error().code == Errc::kNotFound);
    for (int i = 0; i < 2; ++i) parts[prng.below(parts.size())].pieces.push_back(tile);
    const auto overlap = cover(shape, 8, parts, who);
    REQUIRE(overlap.has_error());
    CHECK(overlap.error().code == Errc::kAlreadyExists);
  }
}

TEST_CASE("many pieces are listed, and uniform cuts are no list however many") {
  std::vector<std::vector<ir::Box>> dealt(2);
  for (std::int64_t i = 0; i < 100'000; ++i)
    dealt[static_cast<std::size_t>(i / 50'000)].push_back({{3 * i}, {3 * i + 3}});
  const auto parts = parts_of(dealt);
  const auto covered = cover({300'000}, 8, parts, who);
  REQUIRE(covered.has_value());
  CHECK(covered->grid == *ir::Grid::uniform({300'000}, {3}));
  const ir::Placement placement = placement_of(*covered, parts, {DeviceId{1}, DeviceId{2}});
  REQUIRE(placement.listed() != nullptr);
  CHECK(placement.listed()->runs().size() == 2);
  CHECK(placement.verify({100'000}).has_value());
}

TEST_CASE("large pieces are cut along the first dimension, so that blocks are runs of bytes") {
  // Two pieces of 1 GiB each, a default block is 8 MiB.
  const auto two = parts_of({{{{0, 0}, {1 << 17, 1 << 10}}}, {{{1 << 17, 0}, {1 << 18, 1 << 10}}}});
  const auto covered = cover({1 << 18, 1 << 10}, 8, two, who);
  REQUIRE(covered.has_value());
  CHECK(covered->grid == *ir::Grid::uniform({1 << 18, 1 << 10}, {1 << 11, 1 << 10}));
  // Of an odd length: nearly equal parts.
  const auto odd = cover({1'000'003, 28}, 8, parts_of({{{{0, 0}, {1'000'003, 28}}}}), who);
  REQUIRE(odd.has_value());
  CHECK(odd->grid.counts() == ir::Shape{14, 1});
  // A row is more than a block already.
  const auto wide = cover({4, 1 << 22}, 8, parts_of({{{{0, 0}, {4, 1 << 22}}}}), who);
  REQUIRE(wide.has_value());
  CHECK(wide->grid.counts() == ir::Shape{2, 1});
  // Of small ones nothing is cut.
  const auto small = cover({100, 100}, 8, parts_of({{{{0, 0}, {100, 100}}}}), who);
  CHECK(small->grid.block_count() == 1);
}

TEST_CASE("too many cuts or blocks are refused, before memory is taken for them") {
  std::vector<ir::Box> far;
  for (std::int64_t i = 0; i < 2'000; ++i) far.push_back({{i * i, i * i}, {i * i + 1, i * i + 1}});
  const auto blocks = cover({1 << 30, 1 << 30}, 8, parts_of({far}), who);
  REQUIRE(blocks.has_error());
  CHECK(blocks.error().code == Errc::kLimitExceeded);
  const auto huge = cover({std::int64_t{1} << 50}, 8, parts_of({{{{0}, {std::int64_t{1} << 50}}}}), who);
  REQUIRE(huge.has_error());
  CHECK(huge.error().code == Errc::kLimitExceeded);
  // Nor is time: no number below some 2^37 divides the first; the second is near the largest there is.
  for (const std::int64_t extent : {(std::int64_t{1} << 61) - 1, INT64_MAX})
    CHECK(cover({extent}, 1, parts_of({{{{0}, {extent}}}}), who).error().code == Errc::kLimitExceeded);
  // Together too many, none by itself.
  std::vector<ir::Box> wide;
  for (std::int64_t i = 0; i < 4096; ++i) wide.push_back({{i << 33}, {(i + 1) << 33}});
  const auto many = cover({std::int64_t{4096} << 33}, 1, parts_of({wide}), who);
  REQUIRE(many.has_error());
  CHECK(many.error().code == Errc::kLimitExceeded);
}

}  // namespace
}  // namespace tilewise::scheduler
