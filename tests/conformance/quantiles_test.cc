// Quantiles, and statistics of what is not NaN, against plain loops, on every form of cluster.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <numeric>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;

double plain_quantile(Doubles line, double q, const std::string& method) {
  std::sort(line.begin(), line.end());
  const double at = q * static_cast<double>(line.size() - 1), below = std::floor(at);
  const auto number = [&](double i) { return line[static_cast<std::size_t>(i)]; };
  if (method == "lower") return number(below);
  if (method == "higher") return number(std::ceil(at));
  if (method == "nearest") return number(std::nearbyint(at));
  if (at == below) return number(at);
  const double a = number(below), b = number(below + 1);
  return method == "midpoint" ? (a + b) / 2 : a + (b - a) * (at - below);
}

}  // namespace

TEST_CASE("quantiles by every method along rows, columns and both") {
  const std::int64_t m = 12, n = 31;
  Doubles a = numbers(m * n, 5);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += static_cast<double>(i % 7) * 0.37;
  const auto along = [&](int axis, double q, const std::string& method) {
    Doubles out;
    for (std::int64_t k = 0; k < (axis == 0 ? n : m); ++k) {
      Doubles line;
      for (std::int64_t i = 0; i < (axis == 0 ? m : n); ++i)
        line.push_back(a[static_cast<std::size_t>(axis == 0 ? i * n + k : k * n + i)]);
      out.push_back(plain_quantile(line, q, method));
    }
    return out;
  };
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 8}});
    for (const std::string method : {"linear", "lower", "higher", "nearest", "midpoint"})
      for (const double q : {0.0, 0.1, 0.25, 0.5, 0.77, 1.0}) {
        CAPTURE(method);
        CAPTURE(q);
        check_near(quantile(x, q, 0, method).get<double>(), along(0, q, method), 1e-14);
        check_near(quantile(x, q, -1, method, true).get<double>(), along(1, q, method), 1e-14);
        check_near(quantile(x.reshape({3, 4, n}), q, {0, 1}, method).get<double>(), along(0, q, method),
                   1e-14);
      }
    check_near(quantile(x, 0.3).get<double>(), {plain_quantile(a, 0.3, "linear")}, 1e-14);
    check_near(percentile(x, 30).get<double>(), {plain_quantile(a, 0.3, "linear")}, 1e-14);
    const Array several = quantile(x, {0.9, 0.1, 0.9}, 1);
    CHECK(several.shape() == Shape{3, m});
    check_near(several.at(0, 0).get<double>(), along(1, 0.9, "linear"), 1e-14);
    check_near(several.at(0, 1).get<double>(), along(1, 0.1, "linear"), 1e-14);
    check_near(percentile(x, {50.0, 100.0}).get<double>(),
               {plain_quantile(a, 0.5, "linear"), *std::max_element(a.begin(), a.end())}, 1e-14);
    check_near(median(x, 1).get<double>(), along(1, 0.5, "linear"), 0);
    check_near(median(x, 0, true).get<double>(), along(0, 0.5, "midpoint"), 0);
    check_near(median(x).get<double>(), {plain_quantile(a, 0.5, "midpoint")}, 0);
    check_near(quantile(x.astype(DType::kFloat16), 0.5, 1, "lower").astype(DType::kFloat64).get<double>(),
               along(1, 0.5, "lower"), 2e-3);
  }
}

TEST_CASE("quantiles: integers, NaN, infinities, one element") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array i = s.from_memory(std::vector<std::int64_t>{4, -7, INT64_MAX - 1, 1}, {4}, {.block = {3}});
    CHECK(quantile(i, 1.0, 0, "lower").item<std::int64_t>() == INT64_MAX - 1);
    CHECK(quantile(i, 1.0 / 3, 0, "nearest").item<std::int64_t>() == 1);
    CHECK(quantile(i, 0.5).item<double>() == 2.5);
    CHECK(median(i).item<double>() == 2.5);
    CHECK(median(i.astype(DType::kUInt8).slice(0, 0, 1)).item<double>() == 4);
    const Array x = s.from_memory(Doubles{1, kNan, 3,  //
                                          -kInf, kInf, kInf, kInf, kInf, kInf, -kInf, 0, kInf},
                                  {4, 3}, {.block = {2, 2}});
    check_near(median(x, 1).get<double>(), {kNan, kInf, kInf, 0}, 0);
    check_near(quantile(x, 0.75, 1).get<double>(), {kNan, kInf, kInf, kInf}, 0);
    check_near(quantile(x, 0.0, 1, "higher").get<double>(), {kNan, -kInf, kInf, -kInf}, 0);
    check_near(quantile(s.full({}, 2.5), {0.0, 0.3, 1.0}).get<double>(), {2.5, 2.5, 2.5}, 0);
    CHECK(quantile(s.zeros({0, 3}), 0.5, 1).get<double>().empty());
    CHECK(median(s.ones({3, 0}), 0).get<double>().empty());
  }
}

TEST_CASE("statistics of what is not NaN") {
  const std::int64_t m = 9, n = 14;
  Doubles a = numbers(m * n, 2);
  for (std::size_t i = 0; i < a.size(); i += 3) a[i] = kNan;
  for (std::int64_t i = 0; i < m; ++i)
    a[static_cast<std::size_t>(i * n + 4)] = kNan;  // a column of nothing else
  Doubles sums, means, least, most, products;
  for (std::int64_t j = 0; j < n; ++j) {
    Doubles column;
    for (std::int64_t i = 0; i < m; ++i)
      if (const double v = a[static_cast<std::size_t>(i * n + j)]; !std::isnan(v)) column.push_back(v);
    sums.push_back(std::accumulate(column.begin(), column.end(), 0.0));
    products.push_back(std::accumulate(column.begin(), column.end(), 1.0, std::multiplies<>()));
    means.push_back(sums.back() / static_cast<double>(column.size()));
    least.push_back(column.empty() ? kNan : *std::min_element(column.begin(), column.end()));
    most.push_back(column.empty() ? kNan : *std::max_element(column.begin(), column.end()));
  }
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array x = s.from_memory(a, {m, n}, {.block = {4, 5}});
    check_near(nansum(x, 0).get<double>(), sums, 0);
    check_near(nanprod(x, 0).get<double>(), products, 1e-14);
    check_near(nanmean(x, 0).get<double>(), means, 1e-15);
    check_near(nanmin(x, 0, true).get<double>(), least, 0);
    check_near(nanmax(x, 0).get<double>(), most, 0);
    check_near(nanmean(x.astype(DType::kFloat16), 0).astype(DType::kFloat64).get<double>(), means, 1e-3);
    CHECK(nansum(x, {}, false, DType::kFloat32).dtype() == DType::kFloat32);
    CHECK(nanmax(s.arange(4), 0).item<std::int64_t>() == 3);
    CHECK(nansum(s.arange(4)).item<std::int64_t>() == 6);
    CHECK(nanmean(s.arange(4)).item<double>() == 1.5);
    const Array z = complex(x, x * 2.0);
    CHECK(nansum(z).item<std::complex<double>>() ==
          std::complex<double>(nansum(x).item<double>(), 2 * nansum(x).item<double>()));
    CHECK(std::isnan(nanmean(s.full({3}, kNan)).item<double>()));
    CHECK(nanmin(s.from_memory(Doubles{kNan, kInf}, {2})).item<double>() == kInf);
  }
}
