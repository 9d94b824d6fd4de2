#include "index/pick.h"

#include <doctest/doctest.h>
#include <tilewise/base/prng.h>

#include <limits>

using tilewise::kernels::index::Buckets;

TEST_CASE("entries that were never written name no place outside of the line and the block") {
  std::array<std::int64_t, 1025> entries;
  for (const std::int64_t garbage :
       {std::int64_t{-1}, std::int64_t{0}, INT64_MAX, std::int64_t{2046}, std::int64_t{3} << 40}) {
    entries.fill(garbage);
    tilewise::Prng rng(static_cast<std::uint64_t>(garbage));
    for (const bool random : {false, true}) {
      if (random)
        for (std::int64_t& entry : entries) entry = static_cast<std::int64_t>(rng.next());
      const Buckets parts(entries.data(), 1025, 5000);
      for (std::int64_t lo = 0; lo < 5000; lo += 500)
        parts.within(lo, 500, [&](const tilewise::kernels::index::Picks& picks) {
          for (std::size_t k = 0; k < static_cast<std::size_t>(picks.count); ++k) {
            CHECK((picks.which[k] >= 0 && picks.which[k] < 1025));
            CHECK((picks.where[k] >= 0 && picks.where[k] < 500));
          }
        });
    }
  }
}

TEST_CASE("an index and its number fit into one entry, or are not kept") {
  CHECK(Buckets::fit(std::int64_t{1} << 31, std::int64_t{1} << 32));
  CHECK_FALSE(Buckets::fit(std::int64_t{1} << 32, std::int64_t{1} << 32));
  CHECK(Buckets::fit(0, 0));
  CHECK(Buckets::fit(1, std::numeric_limits<std::int64_t>::max()));
}
