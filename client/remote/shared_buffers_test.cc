#include "shared_buffers.h"

#include <doctest/doctest.h>

namespace tilewise::remote {
namespace {

struct Taking {
  std::shared_ptr<SharedBuffers> buffers = std::make_shared<SharedBuffers>();
  std::vector<std::pair<std::uint32_t, std::int64_t>> announced;
  std::shared_ptr<std::byte> take(std::int64_t bytes) {
    return buffers
        ->take(bytes, [&](std::uint32_t n, const device::Slab& s) { announced.emplace_back(n, s.bytes); })
        .value();
  }
};

TEST_CASE("a buffer is a slab that is announced once, and used again, zeroed, when it was let go") {
  Taking t;
  auto first = t.take(10'000);
  auto second = t.take(10'000);
  CHECK(first != second);
  REQUIRE(t.announced.size() == 2);
  CHECK(t.announced[1] == std::pair<std::uint32_t, std::int64_t>(1, 10'000));
  std::byte* const at = second.get();
  at[77] = std::byte{7};
  second.reset();
  auto third = t.take(9'000);
  CHECK(third.get() == at);
  CHECK(at[77] == std::byte{0});
  CHECK(t.announced.size() == 2);
  third.reset();
  CHECK(t.take(100).get() != at);  // too large for that: it would stay taken for little
  CHECK(t.announced.size() == 3);
}

TEST_CASE("bytes are found in the slab that they lie in, whole") {
  Taking t;
  const auto a = t.take(8'192), b = t.take(8'192);
  const auto place = t.buffers->find({b.get() + 100, 50});
  REQUIRE(place.has_value());
  CHECK(place->slab == 1);
  CHECK(place->offset == 100);
  CHECK(t.buffers->find({a.get(), 8'192})->slab == 0);
  CHECK(!t.buffers->find({a.get() + 8'000, 8'192}).has_value());  // beyond its end
  const std::vector<std::byte> elsewhere(10);
  CHECK(!t.buffers->find(elsewhere).has_value());
  CHECK(t.take(0) != nullptr);
}

TEST_CASE("a buffer outlives whoever gave it") {
  Taking t;
  auto kept = t.take(5'000);
  t.buffers.reset();
  kept.get()[4'999] = std::byte{1};
  CHECK(kept.get()[4'999] == std::byte{1});
}

}  // namespace
}  // namespace tilewise::remote
