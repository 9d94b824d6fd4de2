// Running sums and products, stacks of matrices and products of every dtype, against plain loops, on every form of cluster.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

template <class T> std::vector<T> numbers(std::int64_t n, int seed) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<T>(static_cast<double>((i * 37 + seed) % 11) - 5));
  return out;
}

// Running sums or products along an axis of three dimensions, the plain way.
template <class T> std::vector<T> running(std::vector<T> x, const Shape& shape, int axis, bool product) {
  const std::int64_t stride =
      std::accumulate(shape.begin() + axis + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) / stride % shape[static_cast<std::size_t>(axis)];
    if (at > 0)
      x[i] = product ? x[i - static_cast<std::size_t>(stride)] * x[i]
                     : x[i - static_cast<std::size_t>(stride)] + x[i];
  }
  return x;
}

}  // namespace

TEST_CASE("running sums and products along any axis of ragged blocks") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Shape shape{13, 9, 10};
    const auto values = numbers<double>(13 * 9 * 10, 1);
    const Array x = s.from_memory(values, shape, {.block = {5, 4, 3}});
    for (int axis = 0; axis < 3; ++axis) {
      CAPTURE(axis);
      CHECK(cumulative_sum(x, axis).get<double>() == running(values, shape, axis, false));
      CHECK(cumulative_sum(x, axis - 3).grid() == x.grid());
    }
    auto signs = values;
    for (double& v : signs) v = v > 0 ? 2 : v < -3 ? 0.5 : -1;
    const Array y = s.from_memory(signs, shape, {.block = {5, 4, 3}});
    for (int axis = 0; axis < 3; ++axis)
      CHECK(cumulative_prod(y, axis).get<double>() == running(signs, shape, axis, true));
    // Through views; of other dtypes; with the initial element.
    CHECK(cumulative_sum(flip(x, 1), 1).get<double>() ==
          cumulative_sum(x.slice(1, {}, {}, -1), 1).get<double>());
    CHECK(cumulative_sum(x.T(), 2).get<double>() == cumulative_sum(x, 0).T().get<double>());
    const Array bits = s.arange(4).reblock({3}) != 1;
    CHECK(cumulative_sum(bits).get<std::int64_t>() == std::vector<std::int64_t>{1, 1, 2, 3});
    const auto bytes = numbers<std::int8_t>(700, 3);
    const Array narrow = s.from_memory(bytes, {700}, {.block = {50}});
    CHECK(cumulative_sum(narrow).get<std::int64_t>() ==
          running(std::vector<std::int64_t>(bytes.begin(), bytes.end()), {700}, 0, false));
    CHECK(cumulative_sum(narrow, {}, DType::kInt8).dtype() == DType::kInt8);
    CHECK(cumulative_sum(narrow.astype(DType::kUInt8)).dtype() == DType::kUInt64);
    CHECK(cumulative_sum(narrow.astype(DType::kFloat16)).dtype() == DType::kFloat16);
    CHECK(cumulative_sum(s.ones({5000}, {.dtype = DType::kFloat16}).reblock({1000}))
              .astype(DType::kFloat64)
              .get<double>()[4999] == 5000);
    const Array z = complex(s.from_memory(numbers<double>(40, 2), {40}, {.block = {7}}), s.ones({40}));
    std::vector<std::complex<double>> turned;
    for (const double v : numbers<double>(40, 2)) turned.emplace_back(v, 1);
    CHECK(cumulative_sum(z).get<std::complex<double>>() == running(turned, {40}, 0, false));
    CHECK(cumulative_prod(z.slice(0, 0, 9)).get<std::complex<double>>()[8] ==
          running(turned, {40}, 0, true)[8]);
    const Array from = cumulative_sum(x, 1, {}, true);
    CHECK(from.shape() == Shape{13, 10, 10});
    CHECK(from.at(1, 0).get<double>() == std::vector<double>(130, 0.0));
    CHECK(from.slice(1, 1).get<double>() == running(values, shape, 1, false));
    CHECK(cumulative_prod(s.full({3}, 2.0), {}, {}, true).get<double>() == std::vector<double>{1, 2, 4, 8});
    CHECK(cumulative_sum(s.zeros({0, 3}), 0, {}, true).get<double>() == std::vector<double>(3, 0.0));
    CHECK(cumulative_sum(s.zeros({0, 3}), 0).shape() == Shape{0, 3});
  }
}

TEST_CASE(
    "running sums have the same bits on every form of cluster, and never fall where nothing is negative") {
  std::vector<double> first;
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Array x = cluster.session.random.uniform({30'000}, {.seed = 3, .block = {1'000}});
    const auto sums = cumulative_sum(x).get<double>();
    if (first.empty()) first = sums;
    CHECK(sums == first);
    CHECK(std::is_sorted(sums.begin(), sums.end()));
  }
}

TEST_CASE("running sums: values that are not finite, and mistakes") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const double inf = INFINITY;
  const auto odd =
      cumulative_sum(s.from_memory(std::vector<double>{-0.0, 1, inf, 2, -inf, 3}, {6}, {.block = {2}}))
          .get<double>();
  CHECK(std::signbit(odd[0]));
  CHECK(odd[2] == inf);
  CHECK(odd[3] == inf);
  CHECK(std::isnan(odd[4]));
  CHECK(std::isnan(odd[5]));
  CHECK(code_of([&] { cumulative_sum(s.ones({3, 4})); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { cumulative_sum(s.ones({})); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { cumulative_prod(s.ones({3, 4}), 2); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { cumulative_sum(s.ones({3}), 0, DType::kBool); }) == Errc::kInvalidArgument);
}

TEST_CASE("stacks of matrices broadcast, in blocks, in every dtype that multiplies") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const auto left = numbers<double>(3 * 2 * 7 * 5, 1), right = numbers<double>(2 * 5 * 6, 4);
    const Array a = s.from_memory(left, {3, 2, 7, 5}, {.block = {2, 2, 4, 2}}),
                b = s.from_memory(right, {2, 5, 6}, {.block = {1, 3, 4}});
    std::vector<double> want;
    for (std::int64_t p = 0; p < 6; ++p)
      for (std::int64_t i = 0; i < 7; ++i)
        for (std::int64_t j = 0; j < 6; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < 5; ++k)
            sum += left[static_cast<std::size_t>((p * 7 + i) * 5 + k)] *
                   right[static_cast<std::size_t>((p % 2 * 5 + k) * 6 + j)];
          want.push_back(sum);
        }
    CHECK(matmul(a, b).shape() == Shape{3, 2, 7, 6});
    CHECK(matmul(a, b).get<double>() == want);
    CHECK(matmul(matrix_transpose(b), matrix_transpose(a)).get<double>() ==
          matrix_transpose(matmul(a, b)).get<double>());
    for (const DType t : {DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt64, DType::kFloat32,
                          DType::kComplex64, DType::kComplex128}) {
      CAPTURE(ir::name_of(t));
      const bool narrow = t == DType::kInt8;  // wraps
      const Array product = matmul(a.astype(t), b.astype(t));
      CHECK(product.dtype() == t);
      const Array back = ir::is_complex(t) ? real(product).astype(DType::kFloat64)
                                           : product.astype(DType::kInt64).astype(DType::kFloat64);
      if (!narrow) CHECK(back.get<double>() == want);
    }
    // A vector on one side; one matrix for the whole stack.
    const Array v = b.at(0, 0).at(1, 2);
    CHECK(matmul(a, v).shape() == Shape{3, 2, 7});
    CHECK(matmul(v, matrix_transpose(a)).get<double>() == matmul(a, v).get<double>());
    CHECK(matmul(a, b.at(0, 1)).at(1, 1).get<double>() == matmul(a, b).at(1, 1).get<double>());
    // i times i.
    const Array i = complex(s.zeros({4, 3, 3}), s.ones({4, 3, 3}));
    CHECK(real(matmul(i, i)).get<double>() == std::vector<double>(36, -3));
    // Sums of 16-bit floats are rounded once, not panel by panel: 4096 + 1 is no float16.
    const Array h = s.ones({2, 4097}, {.dtype = DType::kFloat16}).reblock({2, 512});
    const auto long_sum =
        matmul(h, concat({h.slice(1, 0, 4096), s.full({2, 1}, 3.0).astype(DType::kFloat16)}, 1).T());
    CHECK(long_sum.dtype() == DType::kFloat16);
    CHECK(long_sum.astype(DType::kFloat64).get<double>() == std::vector<double>(4, 4100));
  }
}

TEST_CASE("vecdot, tensordot, outer and matrix_transpose as the standard has them") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const auto x = numbers<double>(4 * 3 * 5, 1), y = numbers<double>(5 * 4, 3);
  const Array a = s.from_memory(x, {4, 3, 5}, {.block = {2, 2, 3}}),
              b = s.from_memory(y, {5, 4}, {.block = {2, 3}});
  std::vector<double> want;  // sum over a's axes 2 and 0, b's 0 and 1
  for (std::int64_t j = 0; j < 3; ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t k = 0; k < 5; ++k)
        sum += x[static_cast<std::size_t>((i * 3 + j) * 5 + k)] * y[static_cast<std::size_t>(k * 4 + i)];
    want.push_back(sum);
  }
  CHECK(tensordot(a, b, {2, 0}, {0, 1}).get<double>() == want);
  CHECK(tensordot(a, b, {-1, -3}, {-2, -1}).get<double>() == want);
  CHECK(tensordot(a, b, {2}, {0}).shape() == Shape{4, 3, 4});
  CHECK(tensordot(a.astype(DType::kInt16), b.astype(DType::kInt16), {2}, {0}).dtype() == DType::kInt16);
  CHECK(vecdot(a, b.T().at(0, 1), -1).shape() == Shape{4, 3});
  CHECK(vecdot(a, s.ones({4, 1, 1}), -3).get<double>() == sum(a, 0).get<double>());
  CHECK(vecdot(a.astype(DType::kInt32), a.astype(DType::kInt32), 0).dtype() == DType::kInt32);
  const Array i = complex(s.zeros({3}), s.ones({3}));
  CHECK(vecdot(i, i).item<std::complex<double>>() == std::complex<double>(3, 0));
  const Array h = s.ones({3000}, {.dtype = DType::kFloat16});
  CHECK(vecdot(h, h).dtype() == DType::kFloat16);
  CHECK(vecdot(h, h).astype(DType::kFloat64).item<double>() == 3000);
  CHECK(outer(i, i).get<std::complex<double>>()[4] == std::complex<double>(-1, 0));
  CHECK(matrix_transpose(a).shape() == Shape{4, 5, 3});
  CHECK(code_of([&] { matrix_transpose(s.ones({3})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { matmul(s.ones({2, 3, 4}), s.ones({3, 4, 2})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { matmul(s.ones({2, 3}), s.ones({2, 3})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { matmul(s.ones({}), s.ones({3})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { matmul(s.ones({3}, {.dtype = DType::kBool}), s.ones({3})); }) ==
        Errc::kInvalidArgument);
  CHECK(code_of([&] { vecdot(s.ones({3}, {.dtype = DType::kBool}), s.ones({3})); }) ==
        Errc::kInvalidArgument);
  CHECK(code_of([&] { vecdot(a, b, 0); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { tensordot(a, b, {0, 0}, {0, 1}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { tensordot(a, b, {0}, {0, 1}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { tensordot(a, b, {3}, {0}); }) == Errc::kOutOfRange);
}
