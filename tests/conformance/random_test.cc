// Random arrays: the same numbers whatever the grid and the cluster, of the distribution they claim.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

// Kolmogorov and Smirnov: the greatest distance from the distribution, times sqrt(n). Above 1.95 with a chance of 0.001;
// the seeds are fixed, so a test that passes once passes always.
double distance(Doubles sample, const std::function<double(double)>& distribution) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double most = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double f = distribution(sample[i]);
    most = std::max({most, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
  }
  return most * std::sqrt(n);
}

// The regularised incomplete gamma function, by its series: for moderate x.
double gamma_distribution(double alpha, double x) {
  if (x <= 0) return 0;
  double term = 1 / alpha, sum = term;
  for (int k = 1; k < 500; ++k) sum += term *= x / (alpha + k);
  return sum * std::exp(-x + alpha * std::log(x) - std::lgamma(alpha));
}

double chi_square(const Ints& counts, double expected) {
  double x = 0;
  for (const std::int64_t c : counts)
    x += (static_cast<double>(c) - expected) * (static_cast<double>(c) - expected) / expected;
  return x;
}

}  // namespace

TEST_CASE("numbers depend on seed and position alone") {
  Doubles gamma, exponential;
  Ints order, chosen;
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const Shape& block : {Shape{}, Shape{7, 10}, Shape{30, 3}}) {
      const Doubles g = s.random.gamma(2.5, {30, 20}, {.seed = 3, .block = block}, 2).get<double>();
      const Doubles e = s.random.exponential({30, 20}, {.seed = 3, .block = block}).get<double>();
      const Ints p = s.random.permutation(100, {.seed = 4, .block = block.empty() ? block : Shape{block[0]}})
                         .get<std::int64_t>();
      const Ints c = s.random.choice(s.arange(1000), {6, 5}, {.seed = 5}, false).get<std::int64_t>();
      if (gamma.empty()) gamma = g, exponential = e, order = p, chosen = c;
      // The reference rounds its logarithms otherwise.
      if (form.options.reference_kernels)
        for (std::size_t i = 0; i < g.size(); ++i) CHECK(std::abs(g[i] - gamma[i]) <= 1e-13 * gamma[i]);
      else
        CHECK(g == gamma);
      for (std::size_t i = 0; i < e.size(); ++i)
        CHECK(std::abs(e[i] - exponential[i]) <= 1e-15 * exponential[i]);
      CHECK(p == order);
      CHECK(c == chosen);
    }
    CHECK(s.random.gamma(1, {3}).get<double>() !=
          s.random.gamma(1, {3}).get<double>());  // streams of their own
  }
  Ints sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) CHECK(sorted[i] == static_cast<std::int64_t>(i));
  CHECK(order != sorted);
  std::sort(chosen.begin(), chosen.end());
  CHECK(std::adjacent_find(chosen.begin(), chosen.end()) == chosen.end());
}

TEST_CASE("uniform numbers stay below their upper bound in every dtype, with the same bits everywhere") {
  struct Bounds {
    double low, high;
    DType dtype;
    double last;  // the largest number below `high`
  };
  const std::vector<Bounds> all = {
      {1000, 1001, DType::kFloat32, std::nextafter(1001.0f, 0.0f)},
      {1, 1 + 0x1p-20, DType::kFloat32, 1 + 0x1p-20 - 0x1p-23},
      {-1 - 0x1p-20, -1, DType::kFloat32, -1 - 0x1p-23},
      {0.1, 0.7, DType::kFloat32, std::nextafter(0.7f, 0.0f)},
      {-0x1p-148, 0, DType::kFloat32, -0x1p-149},
      {3, 3, DType::kFloat32, 3},
      {1, 1 + 1e-12, DType::kFloat32, 1},
      {1, 1 + 0x1p-50, DType::kFloat64, 1 + 3 * 0x1p-52},
      {-0x1p60, -0x1p60 + 1024, DType::kFloat64, -0x1p60 + 1024 - 128},
      {0, 1, DType::kFloat16, 1 - 0x1p-11},
      {100, 101, DType::kFloat16, 101 - 0x1p-4},
      {-65504, 65504, DType::kFloat16, 65472},
      {-1, 0, DType::kFloat16, -0x1p-24},
      {0, 1, DType::kBFloat16, 1 - 0x1p-8},
      {-3, -2, DType::kBFloat16, -2 - 0x1p-6},
      {-1, 0, DType::kBFloat16, -0x1p-133},
  };
  std::vector<Doubles> known(all.size());
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Bounds& b = all[i];
      INFO(b.low, " to ", b.high, " as ", std::string(name_of(b.dtype)));
      const Array x = cluster.session.random.uniform(
          {100, 400}, {.seed = 5, .block = {50, 100}, .dtype = b.dtype}, b.low, b.high);
      CHECK(x.dtype() == b.dtype);
      const Doubles got = x.astype(DType::kFloat64).get<double>();
      if (known[i].empty()) known[i] = got;
      CHECK(got == known[i]);
      const auto [least, most] = std::minmax_element(got.begin(), got.end());
      CHECK(*least >= static_cast<double>(static_cast<float>(b.low)));
      CHECK(*most <= b.last);
      // Rounding is at work in the narrow ranges, so that their last number comes often.
      const bool narrow = b.high - b.low <= 0x1p-20 || (is_half(b.dtype) && b.high != 0);
      if (narrow) CHECK(*most == b.last);
    }
  }
  TestCluster cluster(kForms[0]);
  const Random& random = cluster.session.random;
  CHECK(code_of([&] { random.uniform({3}, {}, 2, 1); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { random.uniform({3}, {}, std::nan(""), 1); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { random.uniform({3}, {}, -1e308, 1e308); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { random.uniform({3}, {.dtype = DType::kFloat16}, 0, 1e5); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { random.uniform({3}, {.dtype = DType::kInt32}); }) == Errc::kInvalidArgument);
}

TEST_CASE("samples follow their distributions") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const std::int64_t n = 20'000;
  CHECK(distance(s.random.uniform({n}, {.seed = 1}, -1, 3).get<double>(),
                 [](double x) { return (x + 1) / 4; }) < 1.95);
  CHECK(distance(s.random.normal({n}, {.seed = 2}, 5, 2).get<double>(),
                 [](double x) { return 0.5 * std::erfc((5 - x) / 2 / std::sqrt(2.0)); }) < 1.95);
  CHECK(distance(s.random.exponential({n}, {.seed = 3}, 0.5).get<double>(),
                 [](double x) { return -std::expm1(-2 * x); }) < 1.95);
  for (const double alpha : {0.3, 1.0, 2.5, 20.0}) {
    CAPTURE(alpha);
    CHECK(distance(s.random.gamma(alpha, {n}, {.seed = 4}, 3).get<double>(),
                   [&](double x) { return gamma_distribution(alpha, x / 3); }) < 1.95);
  }
  CHECK(distance((s.random.gamma(2.5, {n}, {.seed = 6, .dtype = DType::kFloat32}).astype(DType::kFloat64))
                     .get<double>(),
                 [](double x) { return gamma_distribution(2.5, x); }) < 1.95);
  Ints counts(50);
  for (const std::int64_t v : s.random.integers(-10, 40, {n}, {.seed = 7}).get<std::int64_t>()) {
    REQUIRE((v >= -10 && v < 40));
    ++counts[static_cast<std::size_t>(v + 10)];
  }
  CHECK(chi_square(counts, n / 50.0) < 85.4);  // 49 degrees of freedom: above with a chance of 0.001
  // Where a permutation puts 0, and what a choice takes.
  Ints places(10), taken(10);
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    ++places[static_cast<std::size_t>(s.random.permutation(10, {.seed = seed}).get<std::int64_t>()[0])];
  CHECK(chi_square(places, 30) < 27.9);  // 9 degrees
  for (const std::int64_t v : s.random.choice(s.arange(10), {n}, {.seed = 9}).get<std::int64_t>())
    ++taken[static_cast<std::size_t>(v)];
  CHECK(chi_square(taken, n / 10.0) < 27.9);
}

TEST_CASE("a permutation of rows moves whole rows; mistakes are typed") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const Array x = s.arange(60).reshape({20, 3});
  const Ints got = s.random.permutation(x, {.seed = 1}).get<std::int64_t>();
  Ints rows;
  for (std::size_t i = 0; i < got.size(); i += 3) {
    CHECK(got[i] % 3 == 0);
    CHECK((got[i + 1] == got[i] + 1 && got[i + 2] == got[i] + 2));
    rows.push_back(got[i]);
  }
  std::sort(rows.begin(), rows.end());
  CHECK(std::adjacent_find(rows.begin(), rows.end()) == rows.end());
  CHECK(s.random.permutation(0).get<std::int64_t>().empty());
  CHECK(code_of([&] { s.random.gamma(0, {3}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { s.random.gamma(1, {3}, {.dtype = DType::kInt32}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { s.random.exponential({3}, {}, -1); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { s.random.permutation(-1); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { s.random.choice(s.arange(3), {4}, {}, false); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { s.random.choice(x, {4}); }) == Errc::kShapeMismatch);
}
