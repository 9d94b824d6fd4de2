#include <tilewise/base/prng.h>
#include <tilewise/ir/placement.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <map>

using namespace tilewise;
using namespace tilewise::ir;

TEST_CASE("listed points answer like a plain list of them") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Prng prng(seed);
    Shape counts;
    for (int rank = static_cast<int>(prng.between(0, 3)); rank > 0; --rank)
      counts.push_back(prng.between(1, 6));
    const std::int64_t total = *checked_volume(counts);
    std::map<std::int64_t, DeviceId> owner;
    std::vector<Run> runs;
    for (std::int64_t p = 0; p < total; ++p) {
      const auto device = static_cast<std::uint32_t>(prng.below(4));
      if (device == 0) continue;
      owner[p] = DeviceId{device};
      append(runs, p, DeviceId{device});
    }
    const Placement placement = Placement::of_runs(counts, runs);
    REQUIRE(placement.verify(counts).has_value());
    std::map<DeviceId, std::int64_t> owned;
    for (std::int64_t p = 0; p < total; ++p) {
      const Index at = unravel(p, counts);
      CHECK(placement.owner(at) == (owner.contains(p) ? owner[p] : DeviceId{}));
      if (!owner.contains(p)) continue;
      CHECK(placement.ordinal(owner[p], at) == owned[owner[p]]);
      CHECK(placement.nth(owner[p], owned[owner[p]]++) == at);
    }
    for (std::uint32_t d = 1; d < 5; ++d) CHECK(placement.owned_count(DeviceId{d}) == owned[DeviceId{d}]);
    // Inside a box.
    Box box{Index(counts.size(), 0), Index(counts.size(), 0)};
    for (std::size_t d = 0; d < counts.size(); ++d) {
      box.lo[d] = prng.between(0, counts[d]);
      box.hi[d] = prng.between(box.lo[d], counts[d]);
    }
    std::map<DeviceId, std::int64_t> inside;
    std::map<DeviceId, std::int64_t> first;
    for (const auto& [p, device] : owner) {
      if (!box.contains(unravel(p, counts))) continue;
      ++inside[device];
      first.emplace(device, p);
    }
    std::vector<Placement::Share> shares;
    placement.shares(box, shares);
    CHECK(shares.size() == inside.size());
    for (const auto& share : shares) CHECK(share.points == inside[share.device]);
    for (std::uint32_t d = 1; d < 5; ++d) {
      const auto found = placement.first_owned(DeviceId{d}, box);
      CHECK(found.has_value() == first.contains(DeviceId{d}));
      if (found) CHECK(ravel(*found, counts) == first[DeviceId{d}]);
    }
  }
}

TEST_CASE("wrong runs are refused and answer nothing") {
  const Shape counts{4, 5};
  const std::vector<std::vector<Run>> wrong = {
      {{0, 1, DeviceId{}}},                        // nobody
      {{0, 0, DeviceId{1}}},                       // nothing
      {{-1, 2, DeviceId{1}}},                      // before the first
      {{19, 2, DeviceId{1}}},                      // beyond the last
      {{INT64_MAX, 2, DeviceId{1}}},               //
      {{3, INT64_MAX, DeviceId{1}}},               //
      {{5, 2, DeviceId{1}}, {6, 1, DeviceId{2}}},  // twice
      {{5, 1, DeviceId{1}}, {0, 1, DeviceId{2}}},  // falling
  };
  for (const auto& runs : wrong) {
    const Placement placement = Placement::of_runs(counts, runs);
    CHECK(!placement.verify(counts).has_value());
    CHECK(placement.owned_count(DeviceId{1}) == 0);
  }
  CHECK(!Placement::of_runs(counts, {}).verify({5, 4}).has_value());
  CHECK(Placement::of_runs(counts, {}).verify(counts).has_value());
  CHECK(Placement::of_runs(counts, {}).devices().empty());
}
