#include "index/pick.h"

#include <doctest/doctest.h>

#include <limits>

using tilewise::kernels::index::Buckets;

TEST_CASE("an index and its number fit into one entry, or are not kept") {
  CHECK(Buckets::fit(std::int64_t{1} << 31, std::int64_t{1} << 32));
  CHECK_FALSE(Buckets::fit(std::int64_t{1} << 32, std::int64_t{1} << 32));
  CHECK(Buckets::fit(0, 0));
  CHECK(Buckets::fit(1, std::numeric_limits<std::int64_t>::max()));
}
