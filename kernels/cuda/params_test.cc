// Merging dimensions and dividing by multiplication, against plain arithmetic.
#include "params.h"

#include <doctest/doctest.h>
#include <tilewise/base/prng.h>

using namespace tilewise;
using namespace tilewise::cuda;

namespace {
// device/prelude.cuh: tw_offsets and tw_divide.
std::int64_t offset_of(const Walk& walk, const Place& place, std::int64_t i) {
  std::int64_t offset = 0;
  for (int d = walk.rank - 1; d > 0; --d) {
    const auto n = static_cast<std::uint32_t>(i);
    const std::int64_t q =
        walk.wide ? i / walk.extent[d]
        : walk.extent[d] == 1
            ? n
            : static_cast<std::int64_t>((std::uint64_t{n} * walk.multiplier[d] >> 32) >> walk.shift[d]);
    REQUIRE(q == i / walk.extent[d]);
    offset += (i - q * walk.extent[d]) * place.stride[d];
    i = q;
  }
  return offset + i * place.stride[0];
}
}  // namespace

TEST_CASE("merged walks visit the same elements") {
  Prng prng(11);
  for (int round = 0; round < 300; ++round) {
    ir::Shape shape;
    const auto rank = prng.between(0, 6);
    for (std::int64_t d = 0; d < rank; ++d) shape.push_back(prng.between(1, 7));
    Strided dense = contiguous(nullptr, shape), other = dense;
    for (auto& stride : other.strides)
      if (prng.chance(0.4)) stride = prng.between(-5, 5);
    const Strided both[] = {dense, other};
    Place places[2];
    const Walk walk = merge(shape, both, places);
    REQUIRE(walk.count == ir::volume(shape));
    for (std::int64_t i = 0; i < walk.count; ++i) {
      const ir::Index at = ir::unravel(i, shape);
      std::int64_t want = 0;
      for (std::size_t d = 0; d < at.size(); ++d) want += at[d] * other.strides[d];
      CHECK(offset_of(walk, places[0], i) == i);
      CHECK(offset_of(walk, places[1], i) == want);
    }
  }
}

TEST_CASE("contiguous regions have one dimension, of any size") {
  const ir::Shape shape{5, 1, 7, 3};
  const Strided dense[] = {contiguous(nullptr, shape)};
  Place place[1];
  CHECK(merge(shape, dense, place).rank == 1);
  CHECK(place[0].stride[0] == 1);
  const ir::Shape huge{std::int64_t{1} << 20, 3, std::int64_t{1} << 20};
  Strided padded[] = {contiguous(nullptr, huge)};
  padded[0].strides[0] += 5;
  const Walk walk = merge(huge, padded, place);
  CHECK(walk.wide == 1);
  CHECK(offset_of(walk, place[0], walk.count - 1) ==
        ((std::int64_t{1} << 20) - 1) * padded[0].strides[0] + 3 * (std::int64_t{1} << 20) - 1);
}

TEST_CASE("division by multiplication is exact below 2^31") {
  Prng prng(12);
  for (int round = 0; round < 200'000; ++round) {
    const std::int64_t divisor = prng.between(2, prng.chance(0.5) ? 1000 : 1 << 30);
    Walk walk;
    walk.rank = 2;
    walk.extent[0] = 1;
    walk.extent[1] = divisor;
    set_divisors(walk);
    Place place;
    place.stride[0] = 1;
    const std::int64_t n = prng.between(0, (std::int64_t{1} << 31) - 1);
    for (const std::int64_t at :
         {n, n / divisor * divisor, std::max<std::int64_t>(0, n / divisor * divisor - 1)})
      CHECK(offset_of(walk, place, at) == at / divisor);
  }
}
