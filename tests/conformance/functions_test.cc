// Functions made of others, against plain loops, on every form of cluster; their mistakes.
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

// rows x columns, row by row.
Doubles table(std::int64_t rows, std::int64_t columns,
              const std::function<double(std::int64_t, std::int64_t)>& f) {
  Doubles out;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) out.push_back(f(i, j));
  }
  return out;
}

}  // namespace

TEST_CASE("structure: axes moved, reversed, rolled, repeated, tiled, cut along diagonals") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 13, n = 9;
    const Doubles a = numbers(m * n, 1);
    const auto at = [&](std::int64_t i, std::int64_t j) { return a[static_cast<std::size_t>(i * n + j)]; };
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 4}});
    CHECK(flip(x).get<double>() == table(m, n, [&](auto i, auto j) { return at(m - 1 - i, n - 1 - j); }));
    CHECK(flip(x, -1).get<double>() == table(m, n, [&](auto i, auto j) { return at(i, n - 1 - j); }));
    for (const std::int64_t shift : {0, 1, 4, -3, 9, 100, -100}) {
      CAPTURE(shift);
      CHECK(roll(x, shift, 1).get<double>() ==
            table(m, n, [&](auto i, auto j) { return at(i, ((j - shift) % n + n) % n); }));
    }
    CHECK(roll(x, 2, 0).get<double>() == table(m, n, [&](auto i, auto j) { return at((i + m - 2) % m, j); }));
    CHECK(repeat(x, 3, 0).get<double>() == table(3 * m, n, [&](auto i, auto j) { return at(i / 3, j); }));
    CHECK(repeat(x, 2, -1).get<double>() == table(m, 2 * n, [&](auto i, auto j) { return at(i, j / 2); }));
    CHECK(tile(x, {2, 3}).get<double>() ==
          table(2 * m, 3 * n, [&](auto i, auto j) { return at(i % m, j % n); }));
    CHECK(repeat(x, 0, 0).shape() == Shape{0, n});
    CHECK(tile(x, {1, 1}).get<double>() == a);
    CHECK(tile(x, {0, 2}).shape() == Shape{0, 2 * n});
    CHECK(tile(x, {2, 1}).grid().dim(1) == x.grid().dim(1));  // blocks stay
    for (const std::int64_t count : {16, 17, 33, 300})
      CHECK(tile(x.slice(0, 2, 5, 2), {1, count}).get<double>() ==
            table(2, count * n, [&](auto i, auto j) { return at(2 + 2 * i, j % n); }));
    CHECK(tile(s.arange(3), {100'000}).grid().block_count() <
          10);  // of something small several copies a block
    const Array most = x.slice(0, 0, 12).reshape({2, 3, 1, 2, 3, 1, 3, 1});
    CHECK(repeat(most, 2, 4).get<double>() ==
          repeat(x.slice(0, 0, 12).reshape({12, 3, 3}), 2, 1).get<double>());
    CHECK(repeat(most.reshape({1, 2, 3, 2, 1, 3, 3, 1}), 2, 1).get<double>() ==
          repeat(x.slice(0, 0, 12).reshape({2, 54}), 2, 0).get<double>());
    const Array full = tile(most, {1, 1, 2, 1, 1, 2, 1, 2});
    CHECK(full.shape() == Shape{2, 3, 2, 2, 3, 2, 3, 2});
    CHECK(full.slice(2, 1).slice(5, 0, 1).slice(7, 1).get<double>() == most.get<double>());
    for (const int axis : {0, 3, 7}) {
      const Array thrice = repeat(full, 3, axis);
      for (const std::int64_t k : {0, 1, 2})
        CHECK(thrice.slice(axis, k, {}, 3).get<double>() == full.get<double>());
    }
    CHECK(diff(x, 0).get<double>() ==
          table(m - 1, n, [&](auto i, auto j) { return at(i + 1, j) - at(i, j); }));
    for (const std::int64_t k : {0, 2, -3, 50, -50}) {
      CAPTURE(k);
      CHECK(tril(x, k).get<double>() ==
            table(m, n, [&](auto i, auto j) { return j - i > k ? 0 : at(i, j); }));
      CHECK(triu(x, k).get<double>() ==
            table(m, n, [&](auto i, auto j) { return j - i < k ? 0 : at(i, j); }));
      double sum = 0;
      for (std::int64_t i = 0; i < m; ++i) sum += i + k >= 0 && i + k < n ? at(i, i + k) : 0;
      CHECK(trace(x, k).item<double>() == sum);
    }
    CHECK(tril(x.T()).get<double>() == table(n, m, [&](auto i, auto j) { return j > i ? 0 : at(j, i); }));
    const Array cube = x.reshape({13, 3, 3});
    CHECK(moveaxis(cube, 0, -1).shape() == Shape{3, 3, 13});
    CHECK(swapaxes(cube, 0, 2).get<double>()[13] == at(0, 3));
    CHECK(moveaxis(cube, -1, 0).at(0, 1).get<double>() ==
          table(m, 3, [&](auto i, auto j) { return at(i, 3 * j + 1); }));
  }
}

TEST_CASE("statistics and products") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 40, n = 11;
    const Doubles a = numbers(m * n, 3), b = numbers(n, 5);
    const auto at = [&](std::int64_t i, std::int64_t j) { return a[static_cast<std::size_t>(i * n + j)]; };
    const Array x = s.from_memory(a, {m, n}, {.block = {16, 6}}), y = s.from_memory(b, {n}, {.block = {4}});
    // A large mean costs no digits.
    const Array far = x + 1e9;
    const Doubles got = var(far, 0, 1).get<double>();
    REQUIRE(got.size() == static_cast<std::size_t>(n));
    for (std::int64_t j = 0; j < n; ++j) {
      double mean = 0, want = 0;
      for (std::int64_t i = 0; i < m; ++i) mean += at(i, j) / static_cast<double>(m);
      for (std::int64_t i = 0; i < m; ++i) want += (at(i, j) - mean) * (at(i, j) - mean);
      CHECK(got[static_cast<std::size_t>(j)] ==
            doctest::Approx(want / static_cast<double>(m - 1)).epsilon(1e-6));
    }
    // The mean and the variance of an expression, together and apart: the same bits.
    const Array middle = mean(far, 0), v = var(far, 0, 1), alone = mean(x + 1e9, 0) + 0.0;
    s.persist({middle, v}).wait();
    CHECK(middle.get<double>() == alone.get<double>());
    CHECK(v.get<double>() == got);
    const Array half = s.from_memory(numbers(2000, 9), {2000}, {.block = {700}}).astype(DType::kBFloat16);
    CHECK(var(half).dtype() == DType::kBFloat16);
    CHECK(var(half).astype(DType::kFloat64).item<double>() ==
          doctest::Approx(var(half.astype(DType::kFloat64)).item<double>()).epsilon(0x1p-8));
    CHECK(var(x.astype(DType::kFloat32), {}, 0).item<float>() ==
          doctest::Approx(var(x).item<double>()).epsilon(1e-5));
    CHECK(std::isnan(var(where(x == x.at(0, 0), std::numeric_limits<double>::infinity(), x)).item<double>()));
    CHECK(var(x, Axes{}, 0).item<double>() ==
          doctest::Approx(var(x.reshape({-1}).reblock({m * n})).item<double>()).epsilon(1e-13));
    CHECK(stddev(s.full({10, 10}, 3.0)).item<double>() == 0);
    CHECK(var(x, {}, 0, true).shape() == Shape{1, 1});
    CHECK(std::isnan(var(s.ones({1}), {}, 1).item<double>()));
    CHECK(var(s.arange(4)).item<double>() == 1.25);
    CHECK(count_nonzero(x).item<std::int64_t>() ==
          std::count_if(a.begin(), a.end(), [](double v) { return v != 0; }));
    CHECK(count_nonzero(x > 0.0, 1).get<std::int64_t>()[0] ==
          std::count_if(a.begin(), a.begin() + n, [](double v) { return v > 0; }));
    CHECK(vector_norm(s.from_memory(Doubles{3, 4}, {2})).item<double>() == 5);
    CHECK(vector_norm(s.arange(3, 5)).item<double>() == 5);
    CHECK(clip(x, -2, 3).get<double>() ==
          table(m, n, [&](auto i, auto j) { return std::clamp(at(i, j), -2.0, 3.0); }));
    CHECK(clip(x, {}, 0).dtype() == DType::kFloat64);
    CHECK(clip(x, y - 4.0, y + 1.0).get<double>() == table(m, n, [&](auto i, auto j) {
            const double bound = b[static_cast<std::size_t>(j)];
            return std::clamp(at(i, j), bound - 4, bound + 1);
          }));
    CHECK(clip(x, Array(), y).get<double>() ==
          table(m, n, [&](auto i, auto j) { return std::min(at(i, j), b[static_cast<std::size_t>(j)]); }));
    CHECK(clip(s.arange(5), 1, 3).get<std::int64_t>() == std::vector<std::int64_t>{1, 1, 2, 3, 3});
    CHECK(outer(y, y).get<double>() == table(n, n, [&](auto i, auto j) {
            return b[static_cast<std::size_t>(i)] * b[static_cast<std::size_t>(j)];
          }));
    Doubles dots;
    for (std::int64_t i = 0; i < m; ++i) {
      dots.push_back(std::inner_product(b.begin(), b.end(), a.begin() + i * n, 0.0));
    }
    CHECK(vecdot(x, y).get<double>() == dots);
    CHECK(tensordot(x, y, 1).get<double>() == dots);
    CHECK(tensordot(x, x, 2).item<double>() == std::inner_product(a.begin(), a.end(), a.begin(), 0.0));
    CHECK(tensordot(y, y, 0).get<double>() == outer(y, y).get<double>());
    const Array cube = x.reshape({5, 8, 11});
    CHECK(tensordot(cube, y, 1).shape() == Shape{5, 8});
    CHECK(tensordot(cube, y, 1).get<double>() == dots);
    CHECK(atan(s.ones({1})).item<double>() == std::atan(1.0));
    CHECK(reciprocal(s.full({1}, 4.0)).item<double>() == 0.25);
  }
}

TEST_CASE("clip: numbers, arrays that broadcast, absent bounds, NaN") {
  const double nan = std::nan("");
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 13, n = 9;
    const Doubles a = numbers(m * n, 1), low = numbers(n, 4), high = numbers(m, 2);
    const auto at = [&](std::int64_t i, std::int64_t j) { return a[static_cast<std::size_t>(i * n + j)]; };
    const auto lo = [&](std::int64_t j) { return low[static_cast<std::size_t>(j)] - 10; };
    const auto hi = [&](std::int64_t i) { return high[static_cast<std::size_t>(i)] + 20; };
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 4}});
    const Array from = s.from_memory(low, {n}, {.block = {3}}) - 10, to = s.from_memory(high, {m, 1}) + 20;
    CHECK(clip(x, from, to).get<double>() ==
          table(m, n, [&](auto i, auto j) { return std::clamp(at(i, j), lo(j), hi(i)); }));
    CHECK(clip(x, from).get<double>() ==
          table(m, n, [&](auto i, auto j) { return std::max(at(i, j), lo(j)); }));
    CHECK(clip(x, {}, to).get<double>() ==
          table(m, n, [&](auto i, auto j) { return std::min(at(i, j), hi(i)); }));
    CHECK(clip(x, 0, to).get<double>() ==
          table(m, n, [&](auto i, auto j) { return std::clamp(at(i, j), 0.0, std::max(0.0, hi(i))); }));
    CHECK(clip(x).get<double>() == a);
    // A row of x against bounds of more dimensions: all three meet.
    CHECK(clip(x.at(0, 2), s.full({2, 1, 1}, -1.0), to).shape() == Shape{2, m, n});
    // Bounds below each other: the upper one counts.
    CHECK(clip(x, 5, -5).get<double>() == Doubles(static_cast<std::size_t>(m * n), -5));
    // NaN wherever it is.
    const Array y = s.from_memory(Doubles{nan, 1, 2, 3, -7}, {5});
    const Array below = s.from_memory(Doubles{0, nan, 0, 0, 0}, {5});
    const Array above = s.from_memory(Doubles{5, 5, nan, 2, 5}, {5});
    const Doubles got = clip(y, below, above).get<double>();
    CHECK((std::isnan(got[0]) && std::isnan(got[1]) && std::isnan(got[2])));
    CHECK((got[3] == 2 && got[4] == 0));
    CHECK(std::isnan(clip(y, nan, {}).get<double>()[3]));
    // One dtype stays; others meet.
    const Array small = s.arange(5).astype(DType::kInt8);
    CHECK(clip(small, small - 1, 3).dtype() == DType::kInt8);
    CHECK(clip(small, s.full({5}, 2).astype(DType::kInt8), {}).get<std::int8_t>() ==
          std::vector<std::int8_t>{2, 2, 2, 3, 4});
    CHECK(clip(s.ones({2}, {.dtype = DType::kFloat16}), 0.5, 2).dtype() == DType::kFloat16);
  }
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  CHECK(code_of([&] { clip(s.ones({3}), s.ones({4}), {}); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { clip(complex(s.ones({3}), s.ones({3})), 1, 2); }) == Errc::kInvalidArgument);
}

TEST_CASE("mistakes in functions made of others name what was wrong") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const Array x = s.ones({3, 4}), v = s.ones({4});
  CHECK(code_of([&] { roll(x, 1, 2); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { flip(x, -3); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { repeat(x, -1, 0); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { repeat(x, std::int64_t{1} << 62, 0); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { tril(v); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { trace(v); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { outer(x, v); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { vecdot(x, s.ones({3})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { tensordot(x, v, 2); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { tensordot(x, x, 1); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { meshgrid({x}); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { var(Array()); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { var(x.astype(DType::kComplex128)); }) == Errc::kInvalidArgument);
}

TEST_CASE("close and equal arrays, as NumPy says") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const double nan = std::nan(""), inf = HUGE_VAL;
  const Array a = s.from_memory({1.0, 1e-9, nan, inf, -inf, inf, 100.0}, {7}, {.block = {3}});
  const Array b = s.from_memory({1.00001, 0.0, nan, inf, inf, 1.0, 101.0}, {7}, {.block = {2}});
  using Bools = std::vector<bool>;
  CHECK(isclose(a, b).get<bool>() == Bools{true, true, false, true, false, false, false});
  CHECK(isclose(a, b, {.rtol = 0.01, .equal_nan = true}).get<bool>() ==
        Bools{true, true, true, true, false, false, true});
  CHECK_FALSE(allclose(a, b).item<bool>());
  CHECK(allclose(a.slice(0, 0, 2), b.slice(0, 0, 2)).item<bool>());
  CHECK(allclose(s.from_memory({1, 2}, {2}), s.from_memory({1.0, 2.0}, {2})).item<bool>());
  CHECK(allclose(s.from_memory({true}, {1}), s.from_memory({true}, {1})).item<bool>());
  CHECK(allclose(complex(a[0], a[6]), complex(a[0], a[6])).item<bool>());
  CHECK_FALSE(array_equal(a, a).item<bool>());
  CHECK(array_equal(a, a, true).item<bool>());
  CHECK_FALSE(array_equal(a, b, true).item<bool>());
  CHECK_FALSE(array_equal(a, a.slice(0, 1)).item<bool>());
  CHECK(array_equal(s.from_memory({1, 2}, {2}), s.from_memory({1.0, 2.0}, {2})).item<bool>());
  CHECK(angle(s.from_memory({2.0, -2.0}, {2})).get<double>() ==
        std::vector<double>{0.0, std::atan2(0.0, -1.0)});
  CHECK(angle(complex(s.ones({}), s.ones({}))).item<double>() == std::atan2(1.0, 1.0));
}

TEST_CASE("padded: constants, edges, reflected, around; what is padded and cut keeps its cuts") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 7, n = 11;
    const std::vector<double> a = numbers(m * n, 4);
    const Array x = s.from_memory(a, {m, n}, {.block = {3, 4}});
    const auto source = [](std::string_view mode, std::int64_t i, std::int64_t extent) {
      if (mode == "edge" || extent == 1) return std::clamp<std::int64_t>(i, 0, extent - 1);
      if (mode == "wrap") return (i % extent + extent) % extent;
      const std::int64_t turn = 2 * (extent - 1), at = (i % turn + turn) % turn;
      return std::min(at, turn - at);
    };
    struct Ends {
      std::int64_t top, bottom, left, right;
    };
    for (const auto& [top, bottom, left, right] :
         {Ends{1, 1, 1, 1}, Ends{0, 2, 3, 0}, Ends{6, 7, 11, 12}, Ends{20, 9, 0, 35}, Ends{0, 0, 300, 1}})
      for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
        INFO(mode, " ", top, " ", bottom, " ", left, " ", right);
        std::vector<double> want;
        for (std::int64_t i = -top; i < m + bottom; ++i)
          for (std::int64_t j = -left; j < n + right; ++j) {
            const bool inside = i >= 0 && i < m && j >= 0 && j < n;
            want.push_back(mode == std::string_view("constant") && !inside
                               ? 2.5
                               : a[static_cast<std::size_t>(source(mode, i, m) * n + source(mode, j, n))]);
          }
        const Array p = pad(x, {{top, bottom}, {left, right}}, mode, 2.5);
        REQUIRE(p.shape() == Shape{m + top + bottom, n + left + right});
        CHECK(p.get<double>() == want);
      }
    CHECK(pad(x, 2).get<double>() == pad(x, {{2, 2}}).get<double>());
    CHECK(pad(x.slice(0, 2, 3), 2, "reflect").slice(1, 2, -2).get<double>() ==
          tile(x.slice(0, 2, 3), {5, 1}).get<double>());
    CHECK(pad(s.zeros({0, 2}), {{1, 2}, {0, 0}}, "constant", 3).get<double>() == std::vector<double>(6, 3.0));
    CHECK(pad(s.full({}, 4.0), 3).item<double>() == 4.0);
    CHECK(pad(x, 1, "edge").slice(0, 1, -1).slice(1, 1, -1).grid() == x.grid());
    Array y = x;
    for (int step = 0; step < 30; ++step) {
      const Array p = pad(y, {{1, 1}, {0, 0}}, "wrap");
      y = 0.5 * (p.slice(0, 2) + p.slice(0, 0, -2));
      CHECK(y.grid().dim(0).count() <= 5);
    }
    CHECK(sum(y).item<double>() == doctest::Approx(sum(x).item<double>()));
  }
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const Array x = s.zeros({3, 0});
  CHECK(code_of([&] { pad(x, 1, "edge"); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { pad(x, -1); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { pad(x, {{1, 1}, {1, 1}, {1, 1}}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { pad(x, 1, "mean"); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { pad(s.zeros({3}, {.dtype = DType::kUInt8}), 1, "constant", 300); }) ==
        Errc::kOutOfRange);
}
