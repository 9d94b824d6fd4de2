// Arrays joined, taken apart, repeated and rolled, new ones of every kind, against plain loops, on every form of cluster.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;
using Complex = std::complex<double>;

// rows x columns, row by row.
Doubles table(std::int64_t rows, std::int64_t columns,
              const std::function<double(std::int64_t, std::int64_t)>& f) {
  Doubles out;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) out.push_back(f(i, j));
  return out;
}

Doubles rolled(const Doubles& a, std::int64_t shift) {
  const auto n = static_cast<std::int64_t>(a.size());
  Doubles out(a.size());
  for (std::int64_t i = 0; i < n; ++i)
    out[static_cast<std::size_t>(((i + shift) % n + n) % n)] = a[static_cast<std::size_t>(i)];
  return out;
}

}  // namespace

TEST_CASE("joined and taken apart: any number of arrays, flattened ones, several axes at once") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 13, n = 9;
    const Doubles a = numbers(m * n, 1);
    const auto at = [&](std::int64_t i, std::int64_t j) { return a[static_cast<std::size_t>(i * n + j)]; };
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 4}});

    const std::vector<Array> rows = unstack(x), columns = unstack(x, -1);
    REQUIRE(rows.size() == 13);
    REQUIRE(columns.size() == 9);
    CHECK(rows[4].get<double>() == Doubles(a.begin() + 4 * n, a.begin() + 5 * n));
    CHECK(stack(columns, 1).get<double>() == a);
    CHECK(unstack(s.zeros({0, 3})).empty());

    Doubles both = a;
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < m; ++i) both.push_back(at(i, j));
    both.push_back(7);
    CHECK(concat({x, x.T(), s.full({}, 7.0)}, std::nullopt).get<double>() == both);

    // More than an op takes, and more than its square root of them in a group.
    for (const std::int64_t count : {64, 65, 130, 1000}) {
      CAPTURE(count);
      std::vector<Array> parts, lines;
      Doubles want;
      for (std::int64_t i = 0; i < count; ++i) {
        parts.push_back(x.index({i % m, Range{0, 1 + i % 3}}));
        lines.push_back(x[i % m]);
        for (std::int64_t j = 0; j <= i % 3; ++j) want.push_back(at(i % m, j));
      }
      CHECK(concat(parts).get<double>() == want);
      CHECK(stack(lines, -1).get<double>() == table(n, count, [&](auto j, auto i) { return at(i % m, j); }));
      parts.push_back(s.ones({1}, {.dtype = DType::kComplex64}));
      CHECK(concat(parts).dtype() == DType::kComplex128);
    }

    const Array cube = x.index({kEllipsis, Range{0, 8}}).reshape({13, 2, 4});
    const Array turned = moveaxis(cube, {0, 1}, {-1, 0});
    CHECK(turned.shape() == Shape{2, 4, 13});
    CHECK(turned.get<double>() == cube.permute({1, 2, 0}).get<double>());
    CHECK(moveaxis(cube, {2, 0}, {0, 1}).get<double>() == cube.permute({2, 0, 1}).get<double>());
    CHECK(moveaxis(cube, std::vector<int>{}, std::vector<int>{}).shape() == cube.shape());
    const Array thin = x.index({kNewAxis, kEllipsis, kNewAxis, kNewAxis});
    CHECK(thin.squeeze({0, -1}).shape() == Shape{m, n, 1});
    CHECK(thin.squeeze({-1, 0, 3}).get<double>() == a);
    CHECK(thin.squeeze().shape() == Shape{m, n});
    CHECK(x.squeeze().shape() == Shape{m, n});

    const std::vector<Array> wide = broadcast_arrays(
        {x, x.slice(0, 2, 3), s.arange(n), s.full({}, 2.0), x.expand_dims(1).slice(2, 0, 1)});
    for (const Array& w : wide) CHECK(w.shape() == Shape{m, m, n});
    CHECK(wide[2].index({3, 4}).get<std::int64_t>() == s.arange(n).get<std::int64_t>());
    CHECK(wide[4].index({3, 4}).get<double>() == Doubles(static_cast<std::size_t>(n), at(3, 0)));
    CHECK(broadcast_arrays({}).empty());
  }
}

TEST_CASE("meshgrid holds every element, in both orders of the first two dimensions") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Doubles a = numbers(5, 1), b = numbers(7, 2), c = numbers(3, 3);
    const std::vector<Array> v = {s.from_memory(a, {5}, {.block = {2}}),
                                  s.from_memory(b, {7}, {.block = {3}}), s.from_memory(c, {3})};
    const auto wanted = [&](std::size_t which, bool xy, std::size_t rank) {
      Doubles out;
      const std::size_t first = xy ? 7 : 5, second = xy ? 5 : 7;
      for (std::size_t i = 0; i < first; ++i)
        for (std::size_t j = 0; j < second; ++j)
          for (std::size_t k = 0; k < (rank == 3 ? 3 : 1); ++k)
            out.push_back(which == 0 ? a[xy ? j : i] : which == 1 ? b[xy ? i : j] : c[k]);
      return out;
    };
    for (const bool xy : {true, false})
      for (const std::size_t rank : {std::size_t{2}, std::size_t{3}}) {
        const std::vector<Array> given(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(rank));
        const std::vector<Array> got = xy ? meshgrid(given) : meshgrid(given, "ij");
        REQUIRE(got.size() == rank);
        for (std::size_t d = 0; d < rank; ++d) {
          CHECK(got[d].shape().size() == rank);
          CHECK(got[d].shape()[0] == (xy ? 7 : 5));
          CHECK(got[d].get<double>() == wanted(d, xy, rank));
        }
      }
    CHECK(meshgrid({v[0]}).front().get<double>() == a);
    CHECK(meshgrid({}).empty());
  }
}

TEST_CASE(
    "what is rolled keeps its cuts, and a step of a stencil is of few ops however many there were before") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::int64_t n = 60;
    std::vector<double> want = numbers(n * n, 3);
    Array x = s.from_memory(want, {n, n}, {.block = {17, 25}});
    x.persist();
    const Grid cuts = x.grid();
    CHECK(roll(x, 1, 0).grid() == cuts);
    CHECK(roll(x.T(), -20, 0).grid() == x.T().grid());
    CHECK(roll(x, {1, 3}, {0, 1}).grid() == cuts);
    for (int step = 0; step < 4; ++step) {
      const Array next =
          x + 0.25 * (roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 1, 1) + roll(x, -1, 1) - 4.0 * x);
      const Explanation plan = s.explain(next);
      CHECK_MESSAGE(plan.account().op_count == 5, plan.text());  // four copies, and one expression of all
      CHECK(next.grid() == cuts);
      std::vector<double> stepped;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const auto at = [&](std::int64_t r, std::int64_t c) { return want[(r + n) % n * n + (c + n) % n]; };
          stepped.push_back(
              at(i, j) + 0.25 * (at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + at(i, j + 1) - 4 * at(i, j)));
        }
      want = stepped;
      x = next;
      x.persist();
      REQUIRE(x.get<double>() == want);
    }
  }
}

TEST_CASE(
    "arrays that grow row by row, and edges put on and cut off again, keep a bounded number of blocks") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::vector<double> row = numbers(4, 1);
    Array grown = s.from_memory(numbers(36, 2), {9, 4}, {.block = {3, 2}});
    std::vector<double> want = grown.get<double>();
    for (int i = 0; i < 40; ++i) {
      grown = concat({grown, s.from_memory(row, {1, 4})});
      want.insert(want.end(), row.begin(), row.end());
    }
    CHECK(grown.grid().dim(0) == *ir::DimGrid::uniform(49, 3));
    CHECK(grown.get<double>() == want);

    std::vector<double> line = numbers(50, 5);
    Array y = s.from_memory(line, {50}, {.block = {8}});
    for (int i = 0; i < 40; ++i) {
      const Array p = concat({y.slice(0, 0, 1), y, y.slice(0, -1)});
      y = 0.5 * (p.slice(0, 2) + p.slice(0, 0, -2));
      const std::vector<double> old = line;
      for (std::size_t k = 0; k < 50; ++k)
        line[k] = 0.5 * (old[k == 49 ? 49 : k + 1] + old[k == 0 ? 0 : k - 1]);
      CHECK(y.grid().dim(0).count() <= 2 * 52 / 8 + 1);
    }
    CHECK(y.get<double>() == line);
  }
}

TEST_CASE("rolled, repeated and tiled: several axes, flattened arrays, counts of their own") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 13, n = 9;
    const Doubles a = numbers(m * n, 1);
    const auto at = [&](std::int64_t i, std::int64_t j) { return a[static_cast<std::size_t>(i * n + j)]; };
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 4}});

    for (const std::int64_t shift : {0, 1, -40, 1000}) {
      const Array got = roll(x, shift);
      CHECK(got.shape() == x.shape());
      CHECK(got.get<double>() == rolled(a, shift));
    }
    CHECK(roll(x, {2, -3}, {0, 1}).get<double>() ==
          table(m, n, [&](auto i, auto j) { return at((i + m - 2) % m, (j + 3) % n); }));
    CHECK(roll(x, {2, 5, 2}, {0, -1, 0}).get<double>() ==
          table(m, n, [&](auto i, auto j) { return at((i + m - 4) % m, (j + n - 5) % n); }));
    CHECK(roll(x, 1, {0, 1}).get<double>() ==
          table(m, n, [&](auto i, auto j) { return at((i + m - 1) % m, (j + n - 1) % n); }));
    CHECK(roll(s.full({}, 3.0), 5).item<double>() == 3);

    Doubles thrice;
    for (const double v : a) thrice.insert(thrice.end(), 3, v);
    CHECK(repeat(x, 3).get<double>() == thrice);
    Ints counts;
    Doubles want;
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < m; ++i) {
      counts.push_back(i * i % 5);
      total += counts.back();
      for (std::int64_t k = 0; k < counts.back(); ++k)
        want.insert(want.end(), a.begin() + i * n, a.begin() + (i + 1) * n);
    }
    CHECK(repeat(x, counts, 0).shape() == Shape{total, n});
    CHECK(repeat(x, counts, 0).get<double>() == want);
    CHECK(repeat(x.T(), counts, -1).T().get<double>() == want);
    const Array many = s.from_memory(counts, {m}, {.block = {4}});
    CHECK(repeat(x, many, 0).get<double>() == want);
    CHECK(repeat(x, many.astype(DType::kUInt8), 0).get<double>() == want);
    CHECK(repeat(x, s.full({1}, 3, {.dtype = DType::kInt32})).get<double>() == thrice);
    CHECK(repeat(x, Ints(static_cast<std::size_t>(m), 0), 0).shape() == Shape{0, n});
    CHECK(repeat(x, s.zeros({n}, {.dtype = DType::kInt64}), 1).shape() == Shape{m, 0});
    CHECK(repeat(s.zeros({0}), s.zeros({0}, {.dtype = DType::kInt64})).size() == 0);
    Ints each;
    Doubles spread;
    for (std::size_t i = 0; i < a.size(); ++i) {
      each.push_back(static_cast<std::int64_t>(i % 4));
      spread.insert(spread.end(), i % 4, a[i]);
    }
    CHECK(repeat(x, each).get<double>() == spread);

    CHECK(tile(x, {2}).get<double>() == table(m, 2 * n, [&](auto i, auto j) { return at(i, j % n); }));
    CHECK(tile(x, {}).get<double>() == a);
    const Array blocks = tile(x, {2, 1, 3});
    CHECK(blocks.shape() == Shape{2, m, 3 * n});
    CHECK(blocks.get<double>() == table(2 * m, 3 * n, [&](auto i, auto j) { return at(i % m, j % n); }));
    CHECK(tile(s.full({}, 2.0), {3, 2}).get<double>() == Doubles(6, 2));
    CHECK(tile(x, {0, 1, 1}).shape() == Shape{0, m, n});
  }
}

TEST_CASE("differences of any order with ends put on; diagonal matrices") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 13, n = 9;
    const Doubles a = numbers(m * n, 1);
    const auto at = [&](std::int64_t i, std::int64_t j) { return a[static_cast<std::size_t>(i * n + j)]; };
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 4}});
    CHECK(diff(x, 0, 2).get<double>() ==
          table(m - 2, n, [&](auto i, auto j) { return at(i + 2, j) - 2 * at(i + 1, j) + at(i, j); }));
    CHECK(diff(x, 1, 0).get<double>() == a);
    CHECK(diff(x, 1, 9).shape() == Shape{m, 0});
    CHECK(diff(x, 1, 100).shape() == Shape{m, 0});
    // Two columns before, one behind.
    const Array before = s.full({m, 2}, 3.0), behind = s.full({m, 1}, -1, {.dtype = DType::kInt32});
    const auto ends = [&](std::int64_t i, std::int64_t j) {
      return j < 2 ? 3 : j < n + 2 ? at(i, j - 2) : -1;
    };
    CHECK(diff(x, -1, 1, before, behind).get<double>() ==
          table(m, n + 2, [&](auto i, auto j) { return ends(i, j + 1) - ends(i, j); }));
    CHECK(diff(x, -1, 1, {}, behind).shape() == Shape{m, n});

    const Array v = x.at(1, 2);
    for (const std::int64_t k : {0, 1, -1, 4, -6}) {
      CAPTURE(k);
      const std::int64_t size = m + std::abs(k);
      const Array square = diag(v, k);
      CHECK(square.get<double>() ==
            table(size, size, [&](auto i, auto j) { return j - i == k ? at(std::min(i, j), 2) : 0.0; }));
      CHECK(diag(square, k).get<double>() == v.get<double>());
    }
    CHECK(diag(s.zeros({0}), 2).get<double>() == Doubles(4, 0));
    for (const DType t : {DType::kBool, DType::kUInt8, DType::kBFloat16, DType::kComplex64}) {
      const Array d = diag(s.ones({5}, {.dtype = t, .block = {2}}), 1);
      CHECK(d.dtype() == t);
      CHECK(sum(d.astype(DType::kComplex128)).item<Complex>() == Complex(5, 0));
    }
  }
}

TEST_CASE("new arrays: ranges of every dtype, ends left out, complex lines, like others") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (int t = 1; t < ir::kDTypeCount; ++t) {
      const auto dtype = static_cast<DType>(t);
      CAPTURE(std::string(name_of(dtype)));
      const Array r = s.arange(2, 100, 7, {.dtype = dtype, .block = {5}});
      CHECK(r.dtype() == dtype);
      Ints want;
      for (std::int64_t i = 2; i < 100; i += 7) want.push_back(i);
      CHECK(real(r).astype(DType::kInt64).get<std::int64_t>() == want);
    }
    CHECK(s.arange(0, 1, 0.25, {.dtype = DType::kFloat32}).get<float>() ==
          std::vector<float>{0, .25f, .5f, .75f});
    CHECK(s.arange(4, {.dtype = DType::kInt8}).get<std::int8_t>() == std::vector<std::int8_t>{0, 1, 2, 3});

    CHECK(s.linspace(0, 1, 4, {.block = {3}, .endpoint = false}).get<double>() == Doubles{0, .25, .5, .75});
    CHECK(s.linspace(0, 1, 5).get<double>() == Doubles{0, .25, .5, .75, 1});
    CHECK(s.linspace(3, 4, 1, {.endpoint = false}).get<double>() == Doubles{3});
    CHECK(s.linspace(0, 1, 0, {.endpoint = false}).get<double>().empty());
    CHECK(s.linspace(0, 3, 4, {.dtype = DType::kFloat16}).dtype() == DType::kFloat16);
    const Complex from(1, -1), to(2, 3);
    const std::vector<Complex> line = s.linspace(from, to, 11, {.block = {4}}).get<Complex>(),
                               open = s.linspace(from, to, 10, {.endpoint = false}).get<Complex>();
    for (std::size_t i = 0; i <= 10; ++i) {
      const Complex want = from + (to - from) * (static_cast<double>(i) / 10);
      CHECK(std::abs(line[i] - want) < 1e-15);
      if (i < 10) CHECK(std::abs(open[i] - want) < 1e-15);
    }
    CHECK(line.back() == to);
    CHECK(s.linspace(0, Complex(0, 2), 3, {.dtype = DType::kComplex64}).get<std::complex<float>>() ==
          std::vector<std::complex<float>>{0, {0, 1}, {0, 2}});
    CHECK(s.linspace(0, 1, 2, {.dtype = DType::kComplex64}).dtype() == DType::kComplex64);
    CHECK(s.empty({2, 3}).shape() == Shape{2, 3});

    const Array x = s.zeros({6, 5}, {.dtype = DType::kInt16, .block = {4, 2}});
    const Array sevens = full_like(x, 7.9);
    CHECK(sevens.dtype() == DType::kInt16);
    CHECK(sevens.grid() == x.grid());
    CHECK(sevens.get<std::int16_t>() == std::vector<std::int16_t>(30, 7));
    CHECK(full_like(x.T(), Complex(1, 2), {.dtype = DType::kComplex128}).get<Complex>() ==
          std::vector<Complex>(30, {1, 2}));
    CHECK(full_like(x, 1.5, {.dtype = DType::kFloat32, .block = {3, 3}}).grid().counts() == Shape{2, 2});
    CHECK(zeros_like(x.broadcast_to({3, 6, 5})).get<std::int16_t>() == std::vector<std::int16_t>(90, 0));
    CHECK(ones_like(x, {.dtype = DType::kBool}).get<bool>() == std::vector<bool>(30, true));
    CHECK(empty_like(x).shape() == x.shape());
  }
}

TEST_CASE("mistakes in structure name what was wrong") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const Array x = s.ones({3, 4}), v = s.ones({4});
  std::string what;
  std::vector<Array> many(70, x);
  many[68] = s.ones({3, 5});
  CHECK(code_of([&] { concat(many, 0); }, &what) == Errc::kShapeMismatch);
  CHECK_MESSAGE(what.find("(3, 4) and float64 (3, 5)") != std::string::npos, what);
  CHECK(code_of([&] { stack(many); }) == Errc::kShapeMismatch);
  CHECK(concat(many, 1).shape() == Shape{3, 281});
  CHECK(code_of([&] { concat(std::vector<Array>(70, x), 2); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { stack(std::vector<Array>(70, x), 3); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { concat(std::vector<Array>{}, std::nullopt); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { unstack(x, 2); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { unstack(s.ones({})); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { x.expand_dims(0).squeeze({0, 1}); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("axis 1 has an extent of 3, of an array of shape (1, 3, 4)") != std::string::npos,
                what);
  CHECK(code_of([&] { x.expand_dims(0).squeeze({0, -3}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { moveaxis(x, {0, 1}, {0}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { moveaxis(x, {0, -2}, {0, 1}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { moveaxis(x, {0, 1}, {1, 2}); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { broadcast_arrays({x, s.ones({3})}); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { meshgrid({v}, "yx"); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { roll(x, {1, 2}, {0}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { roll(x, {1, 2}, {0, 2}); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { repeat(x, Ints{1, 2}, 0); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { repeat(x, Ints{1, 2, -1}, 0); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { repeat(x, Ints(3, std::int64_t{1} << 62), 0); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { repeat(x, s.arange(-1, 2), 0); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("repeat -1 times") != std::string::npos, what);
  CHECK(code_of([&] { repeat(x, s.full({3}, std::int64_t{1} << 62, {.dtype = DType::kInt64}), 0); }) ==
        Errc::kOutOfRange);
  CHECK(code_of([&] { repeat(x, s.ones({3}), 0); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { repeat(x, s.ones({1, 3}, {.dtype = DType::kInt64}), 0); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { tile(x, {2, -1}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { tile(x, Ints(9, 1)); }) == Errc::kLimitExceeded);
  CHECK(code_of([&] { diff(x, 0, -1); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { diff(x, 0, 1, s.ones({1, 5})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { diag(s.ones({2, 2, 2})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { diag(v, INT64_MIN); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { s.arange(0, 3, 1, {.dtype = DType::kBool}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { s.linspace(0, 1, 3, {.dtype = DType::kInt64}); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { s.linspace(0, Complex(1, 1), 3, {.dtype = DType::kFloat64}); }) ==
        Errc::kInvalidArgument);
  CHECK(code_of([&] { full_like(x, 1, {.block = {2}}); }) == Errc::kShapeMismatch);
}
