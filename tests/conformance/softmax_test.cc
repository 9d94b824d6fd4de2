// Exponentials that are summed, against plain loops in long double, on every form of cluster.
#include <doctest/doctest.h>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;

double plain_logsumexp(const Doubles& line) {
  long double most = -kInf;
  for (const double v : line) {
    if (std::isnan(v)) return kNan;
    most = std::max<long double>(most, v);
  }
  if (std::isinf(most)) return static_cast<double>(most);
  long double total = 0;
  for (const double v : line) total += std::exp(v - most);
  return static_cast<double>(std::log(total) + most);
}

}  // namespace

TEST_CASE("softmax, log_softmax and logsumexp of rows and columns") {
  const std::int64_t m = 13, n = 29;
  Doubles a = numbers(m * n, 3);
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = a[i] * 1.7 + (i % 5 == 0 ? 1000 : 0);  // exp(1000) overflows
  Doubles sums, columns, shares, logs;
  for (std::int64_t i = 0; i < m; ++i)
    sums.push_back(plain_logsumexp(Doubles(a.begin() + i * n, a.begin() + (i + 1) * n)));
  for (std::int64_t j = 0; j < n; ++j) {
    Doubles column;
    for (std::int64_t i = 0; i < m; ++i) column.push_back(a[static_cast<std::size_t>(i * n + j)]);
    columns.push_back(plain_logsumexp(column));
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    logs.push_back(a[i] - sums[i / static_cast<std::size_t>(n)]);
    shares.push_back(std::exp(logs.back()));
  }
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 8}});
    check_near(logsumexp(x, 1).get<double>(), sums, 1e-14);
    check_near(logsumexp(x, 0, true).get<double>(), columns, 1e-14);
    check_near(logsumexp(x).get<double>(), {plain_logsumexp(a)}, 1e-14);
    check_near(softmax(x).get<double>(), shares, 1e-12);
    check_near(log_softmax(x).get<double>(), logs, 1e-12);
    check_near(softmax(x.T(), 0).T().get<double>(), shares, 1e-12);
    check_near(sum(softmax(x, {0, 1})).get<double>(), {1}, 1e-12);
    check_near(logsumexp(x.slice(0, 0, 1).astype(DType::kFloat32)).astype(DType::kFloat64).get<double>(),
               {sums[0]}, 1e-5);
    const Array half =
        s.zeros({2000}, {.dtype = DType::kFloat16, .block = {300}});  // exponentials sum to 2000
    CHECK(logsumexp(half).astype(DType::kFloat64).item<double>() ==
          doctest::Approx(std::log(2000.0)).epsilon(1e-3));
    check_near(logsumexp(s.arange(5)).get<double>(), {plain_logsumexp({0, 1, 2, 3, 4})}, 1e-14);
    check_near(softmax(s.from_memory(std::vector<std::uint8_t>{0, 3}, {2})).get<double>(),
               {1 / (1 + std::exp(3.0)), 1 / (1 + std::exp(-3.0))}, 1e-14);
  }
}

TEST_CASE("infinities, NaN and nothing") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Doubles rows = {0,     -kInf, 1,     -kInf,  // one that counts for nothing
                          -kInf, -kInf, -kInf, -kInf,  // nothing at all
                          0,     kInf,  1,     -kInf,  // one that is all
                          kNan,  0,     1,     2};
    const Array x = s.from_memory(rows, {4, 4}, {.block = {3, 3}});
    const double both = std::log1p(std::exp(1.0));
    check_near(logsumexp(x, 1).get<double>(), {both, -kInf, kInf, kNan}, 1e-14);
    const double share = 1 / (1 + std::exp(1.0));
    check_near(
        softmax(x).get<double>(),
        {share, 0, 1 - share, 0, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan},
        1e-14);
    check_near(log_softmax(x).get<double>(),
               {-both, -kInf, 1 - both, -kInf, kNan, kNan, kNan, kNan, -kInf, kNan, -kInf, -kInf, kNan, kNan,
                kNan, kNan},
               1e-14);
    const Array none = s.zeros({3, 0});
    check_near(logsumexp(none, 1).get<double>(), Doubles(3, -kInf), 0);
    CHECK(logsumexp(none, 0).get<double>().empty());
    CHECK(softmax(none).get<double>().empty());
    CHECK(softmax(none, 0).get<double>().empty());
    check_near(log_softmax(s.full({}, 3.0), Axes{}).get<double>(), Doubles{0}, 0);
  }
}

TEST_CASE("one_hot: a row of classes for each index") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::vector<std::int32_t> classes = {2, 0, 5, -1, 1, 99, 2};
    const Array index = s.from_memory(classes, {7}, {.block = {3}});
    Doubles want;
    for (const std::int32_t c : classes)
      for (std::int32_t k = 0; k < 6; ++k) want.push_back(c == k ? 1 : 0);
    CHECK(one_hot(index, 6).get<double>() == want);
    CHECK(one_hot(index, 6, DType::kFloat64, 0).T().get<double>() == want);
    CHECK(one_hot(index.reshape({7, 1}), 6, DType::kFloat64, 1).get<double>() == want);
    CHECK(sum(one_hot(index, 6, DType::kBool), 0).get<std::int64_t>() ==
          std::vector<std::int64_t>{1, 1, 2, 0, 0, 1});
    CHECK(one_hot(s.full({}, 1), 3, DType::kInt64).get<std::int64_t>() == std::vector<std::int64_t>{0, 1, 0});
    const Array wide = s.from_memory(std::vector<std::uint64_t>{~std::uint64_t{0}, 1}, {2});
    CHECK(one_hot(wide, 2, DType::kInt64).get<std::int64_t>() == std::vector<std::int64_t>{0, 0, 0, 1});
    CHECK(one_hot(index, 0).get<double>().empty());
    CHECK(one_hot(s.zeros({0}, {.dtype = DType::kInt64}), 4).shape() == Shape{0, 4});
  }
}
