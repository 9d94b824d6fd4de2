#include "random_world.h"

#include <doctest/doctest.h>
#include <tilewise/ir/placement.h>

#include <map>

using namespace tilewise;
using namespace tilewise::ir;
using namespace tilewise::ir::testing;

namespace {

Rule random_rule(Prng& rng, int rank) {
  Rule rule;
  std::int64_t places = 1;
  for (int d = 0; d < rank; ++d) {
    rule.parts.push_back(static_cast<std::int32_t>(rng.between(1, 4)));
    rule.cyclic.push_back(rng.chance(0.5));
    places *= rule.parts.back();
  }
  const bool repeat = rng.chance(0.3);
  for (std::int64_t i = 0; i < places; ++i)
    rule.devices.push_back(DeviceId(static_cast<std::uint32_t>(repeat ? rng.between(1, 3) : i + 1)));
  return rule;
}

Placement random_placement(Prng& rng, const Shape& counts) {
  std::vector<Piece> pieces{{box_of(counts), random_rule(rng, static_cast<int>(counts.size()))}};
  for (int k = 0; k < 2 && !counts.empty() && rng.chance(0.6); ++k) {  // split one piece in two
    const std::size_t i = rng.below(pieces.size());
    const int d = static_cast<int>(rng.below(counts.size()));
    Piece low = pieces[i], high = pieces[i];
    low.box.hi[d] = high.box.lo[d] = rng.between(low.box.lo[d], low.box.hi[d]);
    high.rule = random_rule(rng, static_cast<int>(counts.size()));
    pieces[i] = low;
    pieces.push_back(high);
  }
  return Placement(std::move(pieces));
}

}  // namespace

TEST_CASE("contiguous and cyclic deals, as written in the header") {
  const DeviceId a(1), b(2), c(3);
  const Placement tiles = Placement::whole({10}, {{3}, {0}, {a, b, c}});
  std::string owners;
  for (std::int64_t i = 0; i < 10; ++i) owners += static_cast<char>('0' + tiles.owner({i}).value);
  CHECK(owners == "1111222333");
  const Placement round = Placement::whole({4, 2}, {{2, 1}, {1, 0}, {a, b}});
  CHECK(round.owner({2, 1}) == a);
  CHECK(round.owner({3, 0}) == b);
  CHECK(round.nth(b, 3) == Index{3, 1});
  CHECK(round.ordinal(b, {3, 1}) == 3);
  CHECK(round.owned_count(c) == 0);
  CHECK(round.owned_count(DeviceId(0xFFFFFFFFu)) == 0);
  CHECK(Placement::whole({}, Rule::constant(0, a)).nth(a, 0).empty());
  CHECK_FALSE(Placement().owner({}));
}

TEST_CASE("the verifier of placements") {
  const Rule one = Rule::constant(1, DeviceId(1));
  CHECK(Placement::whole({5}, one).verify({5}).has_value());
  CHECK(Placement::whole({5}, one).verify({6}).error().code == Errc::kInvalidArgument);
  CHECK(Placement::whole({5}, one).verify({5, 1}).error().code == Errc::kInvalidArgument);
  CHECK(Placement({{{{0}, {3}}, one}, {{{2}, {4}}, one}}).verify({5}).error().message.find("overlap") !=
        std::string::npos);
  CHECK(Placement({{{{0}, {3}}, one}, {{{4}, {5}}, one}}).verify({5}).error().message.find("covers 4 of 5") !=
        std::string::npos);
  CHECK(Placement({{{{-1}, {4}}, one}}).verify({5}).has_error());
  CHECK(Placement({{{{0}, {INT64_MAX}}, one}}).verify({5}).has_error());
  Rule wrong = one;
  wrong.parts[0] = 2;
  CHECK(Placement::whole({5}, wrong).verify({5}).has_error());
  wrong.parts[0] = 0;
  CHECK(Placement::whole({5}, wrong).verify({5}).has_error());
  CHECK(Placement::whole({5}, Rule::constant(1, DeviceId(0))).verify({5}).has_error());
  CHECK(Placement(std::vector<Piece>(kMaxPieces + 1, Piece{{{0}, {0}}, one})).verify({0}).error().code ==
        Errc::kLimitExceeded);
  CHECK(Placement(std::vector<Piece>(kMaxPieces, Piece{{{0}, {0}}, one})).verify({0}).has_value());
  CHECK(Placement().verify({0}).has_value());
}

TEST_CASE("property: nth, ordinal, owned_count and shares against enumeration of owner") {
  const std::uint64_t seed = 99;
  INFO("seed ", seed);
  Prng rng(seed);
  for (int round = 0; round < 1500; ++round) {
    const Shape counts = random_shape(rng, static_cast<int>(rng.below(4)), 7);
    const Placement p = random_placement(rng, counts);
    REQUIRE(p.verify(counts).has_value());
    std::map<DeviceId, std::vector<Index>> owned;
    for_each_index(counts, [&](const Index& i) { owned[p.owner(i)].push_back(i); });
    REQUIRE(owned.count(DeviceId{}) == 0);
    for (const DeviceId device : p.devices()) {
      REQUIRE(p.owned_count(device) == static_cast<std::int64_t>(owned[device].size()));
      std::vector<Index> listed;
      for (std::int64_t n = 0; n < p.owned_count(device); ++n) {
        listed.push_back(p.nth(device, n));
        REQUIRE(p.owner(listed.back()) == device);
        REQUIRE(p.ordinal(device, listed.back()) == n);
      }
      std::sort(listed.begin(), listed.end());
      REQUIRE(listed == owned[device]);
    }
    Box box;
    for (const std::int64_t n : counts) {
      box.lo.push_back(rng.between(0, n));
      box.hi.push_back(rng.between(box.lo.back(), n));
    }
    std::map<DeviceId, std::int64_t> expected;
    for_each_index(counts, [&](const Index& i) {
      if (box.contains(i)) ++expected[p.owner(i)];
    });
    std::vector<Placement::Share> shares{{DeviceId(9), 9}};
    p.shares(box, shares);
    REQUIRE(shares.size() == expected.size());
    for (const Placement::Share& s : shares) REQUIRE(expected[s.device] == s.points);
    for (const DeviceId device : p.devices()) REQUIRE(p.owned_count(device, box) == expected[device]);
  }
}

TEST_CASE("in one piece that names each device once, nth is C order") {
  const Placement p = Placement::whole(
      {5, 7},
      {{2, 3}, {1, 0}, {DeviceId(1), DeviceId(2), DeviceId(3), DeviceId(4), DeviceId(5), DeviceId(6)}});
  for (const DeviceId device : p.devices())
    for (std::int64_t n = 1; n < p.owned_count(device); ++n) CHECK(p.nth(device, n - 1) < p.nth(device, n));
}

// Not a check but a figure, printed: workers ask these for every task and every block they see.
TEST_CASE("how long a question takes") {
  std::vector<DeviceId> devices;
  for (std::uint32_t i = 1; i <= 64; ++i) devices.push_back(DeviceId(i));
  const Placement p = Placement::whole({256, 256}, {{8, 8}, {0, 1}, devices});
  std::int64_t sink = 0;
  std::vector<Placement::Share> shares;
  const double owner = nanoseconds([&](std::int64_t i) { sink += p.owner({i & 255, (i >> 8) & 255}).value; });
  const double nth = nanoseconds([&](std::int64_t i) { sink += p.nth(DeviceId(9), i & 1023)[1]; });
  const double ordinal = nanoseconds([&](std::int64_t i) {
    sink += p.ordinal(DeviceId(1), {i & 31, i & 248});
  });
  const double count = nanoseconds([&](std::int64_t i) { sink += p.owned_count(DeviceId(1 + (i & 63))); });
  const double row = nanoseconds([&](std::int64_t i) {
    p.shares({{i & 255, 0}, {(i & 255) + 1, 256}}, shares);
    sink += static_cast<std::int64_t>(shares.size());
  });
  MESSAGE("owner " << owner << " ns, nth " << nth << " ns, ordinal " << ordinal << " ns, owned_count "
                   << count << " ns, shares of a row over 8 devices " << row << " ns");
  CHECK(sink > 0);
}
