// x[...]: terms of every kind against plain loops, on every form of cluster; their mistakes.
#include <doctest/doctest.h>

#include <random>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

// The places along an axis of n elements that a range shows, one by one.
Ints places(std::int64_t n, const Range& r) {
  const auto bound = [&](std::optional<std::int64_t> given, std::int64_t otherwise) {
    if (!given) return otherwise;
    const std::int64_t at = *given < 0 ? *given + n : *given;
    return r.step > 0 ? std::clamp<std::int64_t>(at, 0, n) : std::clamp<std::int64_t>(at, -1, n - 1);
  };
  const std::int64_t stop = bound(r.stop, r.step > 0 ? n : -1);
  Ints out;
  for (std::int64_t i = bound(r.start, r.step > 0 ? 0 : n - 1); r.step > 0 ? i < stop : i > stop; i += r.step)
    out.push_back(i);
  return out;
}

// The elements of `a` (C order, `shape`) at the product of these places.
Doubles product(const Doubles& a, const Shape& shape, const std::vector<Ints>& at) {
  Doubles out;
  std::int64_t count = 1;
  for (const Ints& axis : at) count *= static_cast<std::int64_t>(axis.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, offset = 0, stride = 1;
    for (std::size_t d = at.size(); d-- > 0;) {
      const auto n = static_cast<std::int64_t>(at[d].size());
      offset += at[d][static_cast<std::size_t>(rest % n)] * stride;
      rest /= n;
      stride *= shape[d];
    }
    out.push_back(a[static_cast<std::size_t>(offset)]);
  }
  return out;
}

}  // namespace

TEST_CASE("one expression of ranges, integers, an ellipsis and new axes shows what plain loops find") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Shape shape = {7, 10, 6};
    const Doubles a = numbers(7 * 10 * 6, 3);
    const Array x = s.from_memory(a, shape, {.block = {3, 4, 6}});
    CHECK(x.index({}).get<double>() == a);
    CHECK(x.index({kEllipsis}).get<double>() == a);
    const Array some = x.index({-2, kNewAxis, kEllipsis, Range{4, {}, -2}, kNewAxis});
    CHECK(some.shape() == Shape{1, 10, 3, 1});
    CHECK(some.get<double>() == product(a, shape, {{5}, places(10, {}), {4, 2, 0}}));
    CHECK(x.index({kEllipsis, 3}).shape() == Shape{7, 10});
    CHECK(x.index({1, 2, 3}).item<double>() == a[1 * 60 + 2 * 6 + 3]);
    CHECK(x.index({Range{5, 2}}).get<double>().empty());

    // Terms drawn at random.
    std::mt19937 random(11);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    for (int trial = 0; trial < 25; ++trial) {
      CAPTURE(trial);
      std::vector<IndexTerm> terms;
      std::vector<Ints> at;
      Shape want;
      const std::int64_t gap = below(4);  // where an ellipsis stands for one axis, or 3: nowhere
      const std::size_t named = gap == 3 ? static_cast<std::size_t>(below(4)) : 3;
      for (std::size_t d = 0; d < 3; ++d) {
        const std::int64_t n = shape[d];
        if (below(4) == 0 && (d < named || gap != 3)) terms.emplace_back(kNewAxis), want.push_back(1);
        if (static_cast<std::int64_t>(d) == gap || d >= named) {
          if (d < named) terms.emplace_back(kEllipsis);
          at.push_back(places(n, {}));
          want.push_back(n);
        } else if (below(2) == 0) {
          const std::int64_t i = below(2 * n) - n;
          terms.emplace_back(i);
          at.push_back({(i + n) % n});
        } else {
          Range r{{}, {}, below(2) == 0 ? 1 + below(4) : -1 - below(4)};
          if (below(3) > 0) r.start = below(3 * n) - n;
          if (below(3) > 0) r.stop = below(3 * n) - n;
          terms.emplace_back(r);
          at.push_back(places(n, r));
          want.push_back(static_cast<std::int64_t>(at.back().size()));
        }
      }
      const Array got = x.index(terms);
      CHECK(got.shape() == want);
      CHECK(got.get<double>() == product(a, shape, at));
    }
  }
}

TEST_CASE("mistakes in an index name term, axis and shape") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const Array x = s.ones({3, 4});
  std::string what;
  CHECK(code_of([&] { x.index({0, 1, 2}); }, &what) == Errc::kOutOfRange);
  CHECK_MESSAGE(what.find("terms for 3 axes, not 2, of an array of shape (3, 4)") != std::string::npos, what);
  CHECK(code_of([&] { x.index({0, kEllipsis, 1, 1}); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { x.index({kEllipsis, kEllipsis}); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("2 ellipses") != std::string::npos, what);
  CHECK(code_of([&] { x.index({kEllipsis, kNewAxis, 4}); }, &what) == Errc::kOutOfRange);
  CHECK_MESSAGE(what.find("index 4 (term 2, axis 1)") != std::string::npos, what);
  CHECK(code_of([&] { x.index({-4}); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { x.index({~std::uint64_t{0}}); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { x.index({0, Range{1, 2, 0}}); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("step 0 in a slice (term 1, axis 1)") != std::string::npos, what);
  CHECK(code_of([&] { x.index(std::vector<IndexTerm>(7, kNewAxis)); }) == Errc::kLimitExceeded);
  CHECK(code_of([&] { Array().index({0}); }) == Errc::kInvalidArgument);
  CHECK(s.ones({}).index({kNewAxis, kEllipsis}).shape() == Shape{1});
}
