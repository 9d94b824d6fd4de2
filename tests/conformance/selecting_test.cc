// Results whose size depends on data, against plain loops, on every form of cluster.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a mask selects elements in order, whatever the cuts") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 37, n = 12;
    const Doubles a = numbers(m * n, 2);
    const Array x = s.from_memory(a, {m, n}, {.block = {6, 5}});
    const auto check = [&](const Array& from, const Array& mask, const std::function<bool(double)>& wanted,
                           const Doubles& in_order) {
      Doubles want;
      std::copy_if(in_order.begin(), in_order.end(), std::back_inserter(want), wanted);
      const Array got = boolean_index(from, mask);
      CHECK(got.shape() == Shape{static_cast<std::int64_t>(want.size())});
      CHECK(got.get<double>() == want);
      CHECK((got * 2.0).reblock({7}).size() == got.size());
    };
    check(
        x, x > 3.0, [](double v) { return v > 3; }, a);
    check(
        x, x > 100.0, [](double) { return false; }, a);
    check(
        x, x < 100.0, [](double) { return true; }, a);
    Doubles turned;
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < m; ++i) turned.push_back(a[static_cast<std::size_t>(i * n + j)]);
    check(
        x.T(), x.T() <= 0.0, [](double v) { return v <= 0; }, turned);
    // Whole rows, by a mask of the first dimension that is cut otherwise.
    std::vector<std::uint8_t> rows;
    Doubles want;
    for (std::int64_t i = 0; i < m; ++i) {
      rows.push_back(i % 9 == 4 || i > 30);
      if (rows.back()) want.insert(want.end(), a.begin() + i * n, a.begin() + (i + 1) * n);
    }
    const Array mask = s.from_memory(rows, {m}, {.block = {11}}) != 0;
    const Array some = boolean_index(x, mask);
    CHECK(some.shape() == Shape{static_cast<std::int64_t>(want.size()) / n, n});
    CHECK(some.get<double>() == want);
    CHECK(boolean_index(x.astype(DType::kComplex128), mask).get<std::complex<double>>().size() ==
          want.size());
    // Its results go on as any array does.
    CHECK(sum(boolean_index(x, x > 3.0)).item<double>() == sum(where(x > 3.0, x, 0.0)).item<double>());
    CHECK(boolean_index(s.zeros({0, 3}), s.zeros({0, 3}) > 0.0).get<double>().empty());
    CHECK(code_of([&] { boolean_index(x, x); }) == Errc::kInvalidArgument);
    CHECK(code_of([&] { boolean_index(x, x.T() > 0.0); }) == Errc::kShapeMismatch);
  }
}

TEST_CASE("nonzero gives an index a dimension") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 9, n = 5, k = 7;
    Doubles a = numbers(m * n * k, 4);
    const Array x = s.from_memory(a, {m, n, k}, {.block = {4, 2, 3}});
    const std::vector<Array> at = nonzero(x);
    REQUIRE(at.size() == 3);
    Ints want[3];
    for (std::int64_t i = 0; i < m * n * k; ++i) {
      if (a[static_cast<std::size_t>(i)] == 0) continue;
      want[0].push_back(i / (n * k));
      want[1].push_back(i / k % n);
      want[2].push_back(i % k);
    }
    for (std::size_t d = 0; d < 3; ++d) CHECK(at[d].get<std::int64_t>() == want[d]);
    CHECK(nonzero(s.zeros({4, 0, 2}))[1].get<std::int64_t>().empty());
    CHECK(nonzero(s.zeros({5}))[0].get<std::int64_t>().empty());
    CHECK(code_of([&] { nonzero(s.zeros({})); }) == Errc::kInvalidArgument);
  }
}

TEST_CASE("unique values, how often, where first, and which") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 14, n = 11;
    Doubles a = numbers(m * n, 6);
    a[3] = -0.0;
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 4}});
    std::map<double, Ints> found;
    for (std::size_t i = 0; i < a.size(); ++i) found[a[i]].push_back(static_cast<std::int64_t>(i));
    Doubles values;
    Ints counts, first, inverse(a.size());
    for (const auto& [value, where] : found) {
      for (const std::int64_t i : where)
        inverse[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(values.size());
      values.push_back(value);
      counts.push_back(static_cast<std::int64_t>(where.size()));
      first.push_back(where.front());
    }
    CHECK(unique_values(x).get<double>() == values);
    const UniqueCounts c = unique_counts(x);
    CHECK(c.values.get<double>() == values);
    CHECK(c.counts.get<std::int64_t>() == counts);
    const UniqueInverse i = unique_inverse(x);
    CHECK(i.inverse_indices.shape() == x.shape());
    CHECK(i.inverse_indices.get<std::int64_t>() == inverse);
    const UniqueAll all = unique_all(x);
    CHECK(all.values.get<double>() == values);
    CHECK(all.indices.get<std::int64_t>() == first);
    CHECK(all.inverse_indices.get<std::int64_t>() == inverse);
    CHECK(all.counts.get<std::int64_t>() == counts);
    // Every NaN is another one; of nothing there is nothing.
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Array odd = s.from_memory(Doubles{nan, 1, nan, 1}, {4}, {.block = {1}});
    CHECK(unique_counts(odd).counts.get<std::int64_t>() == Ints{2, 1, 1});
    CHECK(unique_values(s.zeros({0})).get<double>().empty());
    CHECK(unique_all(s.zeros({2, 0})).counts.get<std::int64_t>().empty());
    CHECK(unique_values(x > 0.0).get<bool>() == std::vector<bool>{false, true});
    CHECK(unique_values(s.full({40}, 7, {.dtype = DType::kInt32, .block = {3}})).get<std::int32_t>() ==
          std::vector<std::int32_t>{7});
  }
}

TEST_CASE("unique complex numbers are in the order of their parts, and each with a NaN is another one") {
  using Complex = std::complex<double>;
  const auto before = [](const Complex& a, const Complex& b) {
    return a.real() != b.real() ? a.real() < b.real() : a.imag() < b.imag();
  };
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    std::vector<Complex> a;
    for (int i = 0; i < 14 * 11; ++i) a.emplace_back(i * 37 % 5 - 2, i * 11 % 7 - 3);
    a[3] = {-0.0, 1}, a[4] = {0.0, 1}, a[5] = {0, -0.0}, a[6] = {0, 0};
    const Array x = s.from_memory(a, {14, 11}, {.block = {5, 4}});
    std::map<Complex, Ints, decltype(before)> found(before);
    for (std::size_t i = 0; i < a.size(); ++i) found[a[i]].push_back(static_cast<std::int64_t>(i));
    std::vector<Complex> values;
    Ints counts, first, inverse(a.size());
    for (const auto& [value, where] : found) {
      for (const std::int64_t i : where)
        inverse[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(values.size());
      values.push_back(value);
      counts.push_back(static_cast<std::int64_t>(where.size()));
      first.push_back(where.front());
    }
    CHECK(unique_values(x).get<Complex>() == values);
    CHECK(unique_values(x.astype(DType::kComplex64)).astype(DType::kComplex128).get<Complex>() == values);
    const UniqueCounts c = unique_counts(x);
    CHECK(c.values.get<Complex>() == values);
    CHECK(c.counts.get<std::int64_t>() == counts);
    const UniqueInverse i = unique_inverse(x);
    CHECK(i.inverse_indices.shape() == x.shape());
    CHECK(i.inverse_indices.get<std::int64_t>() == inverse);
    CHECK(take(i.values, i.inverse_indices).get<Complex>() == a);
    const UniqueAll all = unique_all(x);
    CHECK(all.values.get<Complex>() == values);
    CHECK(all.indices.get<std::int64_t>() == first);
    CHECK(all.inverse_indices.get<std::int64_t>() == inverse);
    CHECK(all.counts.get<std::int64_t>() == counts);

    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<Complex> odd = {{nan, 1}, {1, nan}, {2, 3}, {nan, 1}, {1, nan}, {2, 3}};
    const UniqueAll some = unique_all(s.from_memory(odd, {6}, {.block = {2}}));
    CHECK(some.counts.get<std::int64_t>() == Ints{1, 1, 2, 1, 1});  // by real parts, NaN last
    CHECK(some.indices.get<std::int64_t>() == Ints{1, 4, 2, 0, 3});
    CHECK(some.inverse_indices.get<std::int64_t>() == Ints{3, 0, 2, 4, 1, 2});
    const Array none = s.zeros({0, 2}, {.dtype = DType::kComplex64});
    CHECK(unique_values(none).size() == 0);
    CHECK(unique_all(none).inverse_indices.shape() == Shape{0, 2});
    CHECK(unique_counts(none).counts.get<std::int64_t>().empty());
  }
}
