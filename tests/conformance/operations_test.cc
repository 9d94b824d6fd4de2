// Breadth: operations and dtypes through the whole engine, on ragged blocks, against plain loops.
#include "clusters.h"

#include <doctest/doctest.h>
#include <cmath>
#include <functional>
#include <set>

using namespace tilewise;

namespace {

const std::int64_t kN = 57;

template <class T> std::vector<T> numbers(std::int64_t n, int shift) {
  std::vector<T> out(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    out[static_cast<std::size_t>(i)] = static_cast<T>((i * 37 + shift) % 23 - 9);
  return out;
}

// The same expression on arrays of T with different cuts, and element by element.
template <class T> void check_arithmetic(Session& s) {
  const std::vector<T> a = numbers<T>(kN, 1), b = numbers<T>(kN, 5);
  const Array x = s.from_memory(a, {kN}, {.block = {10}}), y = s.from_memory(b, {kN}, {.block = {16}});
  const std::vector<T> sum_of = (x * y + x - y).template get<T>(), low = minimum(x, y).template get<T>(),
                       high = maximum(x, y).template get<T>(), chosen = where(x < y, x, y).template get<T>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(sum_of[i] == static_cast<T>(a[i] * b[i] + a[i] - b[i]));
    CHECK(low[i] == std::min(a[i], b[i]));
    CHECK(high[i] == std::max(a[i], b[i]));
    CHECK(chosen[i] == (a[i] < b[i] ? a[i] : b[i]));
  }
  CHECK(min(x).template item<T>() == *std::min_element(a.begin(), a.end()));
  CHECK(max(x).template item<T>() == *std::max_element(a.begin(), a.end()));
  // A product small enough to be exact in every dtype.
  const std::int64_t m = 9, k = 11, n = 7;
  const std::vector<T> left = numbers<T>(m * k, 2), right = numbers<T>(k * n, 3);
  const std::vector<T> product =
      matmul(s.from_memory(left, {m, k}, {.block = {4, 3}}), s.from_memory(right, {k, n}, {.block = {5, 4}}))
          .template get<T>();
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      T expected = 0;
      for (std::int64_t q = 0; q < k; ++q)
        expected += left[static_cast<std::size_t>(i * k + q)] * right[static_cast<std::size_t>(q * n + j)];
      CHECK(product[static_cast<std::size_t>(i * n + j)] == expected);
    }
  }
}

}  // namespace

TEST_CASE("arithmetic, comparison, selection and products in every number dtype") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    check_arithmetic<std::int32_t>(cluster.session);
    check_arithmetic<std::int64_t>(cluster.session);
    check_arithmetic<float>(cluster.session);
    check_arithmetic<double>(cluster.session);
  }
}

TEST_CASE("an array that is full of a value has the value's dtype, and bools come and go") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  CHECK(s.full({2}, true).dtype() == DType::kBool);
  CHECK(s.full({2}, 5).dtype() == DType::kInt64);
  CHECK(s.full({}, (std::int64_t{1} << 53) + 1).item<std::int64_t>() == (std::int64_t{1} << 53) + 1);
  CHECK(s.full({}, UINT64_MAX).item<std::uint64_t>() == UINT64_MAX);
  CHECK(s.full({2}, 5.0f).dtype() == DType::kFloat64);
  CHECK(s.full({2}, std::complex<double>(1, 2)).dtype() == DType::kComplex128);
  CHECK(s.full({2}, 5, {.dtype = DType::kFloat32}).dtype() == DType::kFloat32);
  const std::vector<bool> bits{true, false, true};
  const Array b = s.from_memory(bits, {3});
  CHECK(b.get<bool>() == bits);
  CHECK(s.from_memory((!b).get<bool>(), {3}).get<bool>() == std::vector<bool>{false, true, false});
}

TEST_CASE("integer division, logic on bools, casts and functions") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::vector<std::int64_t> a = numbers<std::int64_t>(kN, 4);
    const Array x = s.from_memory(a, {kN}, {.block = {11}});
    const std::vector<std::int64_t> quotient = floor_divide(x, 4).get<std::int64_t>(),
                                    rest = (x % 4).get<std::int64_t>();
    const std::vector<bool> both = ((x > 0) & !(x > 5)).get<bool>();
    const std::vector<double> tanhs = tanh(x.astype(DType::kFloat64) / 3.0).get<double>();
    const std::vector<double> powers = power(x.astype(DType::kFloat64), 3.0).get<double>();
    const std::vector<std::int32_t> narrow = x.astype(DType::kInt32).get<std::int32_t>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto floor = static_cast<std::int64_t>(std::floor(static_cast<double>(a[i]) / 4));
      CHECK(quotient[i] == floor);
      CHECK(rest[i] == a[i] - 4 * floor);
      CHECK(both[i] == (a[i] > 0 && a[i] <= 5));
      CHECK(tanhs[i] == doctest::Approx(std::tanh(static_cast<double>(a[i]) / 3)).epsilon(1e-14));
      CHECK(powers[i] == doctest::Approx(std::pow(static_cast<double>(a[i]), 3)).epsilon(1e-14));
      CHECK(narrow[i] == a[i]);
    }
    CHECK((x / 2).dtype() == DType::kFloat64);
    CHECK(sum(x > 0).item<std::int64_t>() == std::count_if(a.begin(), a.end(), [](auto v) { return v > 0; }));
    CHECK(log(exp(s.full({3}, 2.0))).get<double>()[1] == doctest::Approx(2.0));
    CHECK(cos(s.zeros({2})).get<double>()[0] == 1.0);
    CHECK(prod(s.full({7, 3}, 2.0, {.block = {2, 2}})).item<double>() == 2'097'152.0);
    CHECK(prod(s.ones({0})).item<double>() == 1.0);
    CHECK_THROWS_AS(min(s.zeros({0})), ArrayError);
  }
}

TEST_CASE("axes: keepdims, permute, broadcast_to, vectors, and an empty inner extent") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const Array x = s.arange(0, 24).reshape({2, 3, 4}).reblock({1, 2, 3});
    CHECK(sum(x, {0, 2}, true).shape() == Shape{1, 3, 1});
    CHECK(sum(x, {0, 2}).get<std::int64_t>() == std::vector<std::int64_t>{60, 92, 124});
    const std::vector<std::int64_t> moved = x.permute({2, 0, 1}).get<std::int64_t>();
    CHECK(moved[0] == 0);
    CHECK(moved[1] == 4);
    CHECK(moved[6] == 1);
    CHECK((s.arange(0, 4).broadcast_to({3, 4}) + s.zeros({3, 1}, {.dtype = DType::kInt64}))
              .get<std::int64_t>()[9] == 1);
    const Array v = s.arange(0, 10).astype(DType::kFloat64);
    CHECK(matmul(v, v).item<double>() == 285.0);
    CHECK(matmul(s.zeros({3, 0}), s.zeros({0, 2})).get<double>() == std::vector<double>(6, 0.0));
  }
}

TEST_CASE("random numbers do not depend on cuts, and integers stay in range") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    CHECK(s.random.uniform({31, 17}, {.seed = 8, .block = {31, 17}}).get<double>() ==
          s.random.uniform({31, 17}, {.seed = 8, .block = {4, 5}}).get<double>());
    const std::vector<std::int64_t> draws =
        s.random.integers(-3, 4, {500}, {.seed = 2, .block = {64}}).get<std::int64_t>();
    CHECK(std::set<std::int64_t>(draws.begin(), draws.end()) ==
          std::set<std::int64_t>{-3, -2, -1, 0, 1, 2, 3});
  }
}

TEST_CASE("large partial results are combined in pairs, in the order of their tree, on any cluster") {
  constexpr std::int64_t kRows = 11, kWide = 9'000;  // 72 kB a row
  std::vector<std::vector<double>> first;
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Array x =
        cluster.session.random.uniform({kRows, kWide}, {.seed = 4, .block = {1, kWide}}) * 1e3 - 500.0;
    const std::vector<double> values = x.get<double>();
    std::vector<std::vector<double>> got{sum(x, 0).get<double>(), max(x, 0).get<double>()};
    for (std::int64_t j = 0; j < kWide; j += 7) {
      std::vector<double> level;
      for (std::int64_t i = 0; i < kRows; ++i)
        level.push_back(values[static_cast<std::size_t>(i * kWide + j)]);
      while (level.size() > 1) {
        std::vector<double> next;
        for (std::size_t i = 0; i < level.size(); i += 2)
          next.push_back(i + 1 < level.size() ? level[i] + level[i + 1] : level[i]);
        level = std::move(next);
      }
      REQUIRE(got[0][static_cast<std::size_t>(j)] == level[0]);
    }
    // Two and four arrays side by side are more than a little memory has room for.
    const bool roomy = form.options.memory_bytes > (1 << 20);
    if (roomy) got.push_back(argmax(x, 0).astype(DType::kFloat64).get<double>());
    if (roomy && !form.options.reference_kernels) got.push_back(var(x, 0).get<double>());
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) CHECK((got[i] == first[i]));
  }
}

TEST_CASE("explicit placement wins, and a device that does not exist is named") {
  TestCluster cluster(kForms[1]);
  Session& s = cluster.session;
  REQUIRE(s.wait_for_devices(6, std::chrono::seconds(20)));
  const std::vector<Device> devices = s.devices();
  const Array x = s.random.uniform({60, 60}, {.seed = 1, .block = {20, 20}});
  const double everywhere = sum(x).item<double>();
  CHECK(sum((x + 0.0).on(devices[4])).item<double>() == everywhere);
  CHECK(sum((x + 0.0).on(std::vector<DeviceId>{devices[1].id, devices[5].id})).item<double>() == everywhere);
  try {
    (void)(x + 1.0).on(DeviceId{999}).get<double>();
    FAIL("no error");
  } catch (const ArrayError& e) {
    CHECK(std::string(e.what()).find("999") != std::string::npos);
  }
}
