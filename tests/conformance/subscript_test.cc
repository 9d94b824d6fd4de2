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

TEST_CASE("arrays of integers as terms: broadcast together, beside slices, integers and new axes") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 7, n = 10, k = 6;
    const Doubles a = numbers(m * n * k, 3);
    const auto at = [&](std::int64_t p, std::int64_t q, std::int64_t r) {
      return a[static_cast<std::size_t>(((p + m) % m * n + (q + n) % n) * k + (r + k) % k)];
    };
    const Array x = s.from_memory(a, {m, n, k}, {.block = {3, 4, 6}});
    const Ints i = {0, -1, 3, 6, -7}, j = {9, 0, -10, 4, 4}, row = {2, 5, -3};
    const Array ai = s.from_memory(i, {5}, {.block = {2}}), aj = s.from_memory(j, {5}, {.block = {3}}),
                column = s.from_memory(row, {3, 1});
    const auto each = [&](auto&& f) {
      Doubles out;
      for (std::size_t p = 0; p < 5; ++p) f(out, p);
      return out;
    };
    // Along one axis, with indices of any rank.
    CHECK(x.index({ai}).get<double>() == take(x, ai, 0).get<double>());
    CHECK(x.index({kEllipsis, column}).shape() == Shape{m, n, 3, 1});
    CHECK(x.index({3, Range{}, s.full({}, 2, {.dtype = DType::kUInt8})}).get<double>() ==
          x.at(0, 3).at(1, 2).get<double>());
    const Array grid = s.from_memory(Ints{0, 1, -1, 5, 4, 4}, {2, 3}, {.block = {1, 2}});
    CHECK(take(x, grid, 1).shape() == Shape{m, 2, 3, k});
    CHECK(take(x, grid, 1).get<double>() == take(x, grid.reshape({-1}), 1).get<double>());
    CHECK(take(x, grid.T(), 2).get<double>() == take(x, grid.T().reshape({-1}), 2).get<double>());
    CHECK(take(x, s.full({}, 4, {.dtype = DType::kInt64}), 1).get<double>() == x.at(1, 4).get<double>());
    CHECK(take(x, s.zeros({2, 0}, {.dtype = DType::kInt64}), 0).shape() == Shape{2, 0, n, k});
    // Pairs of them.
    CHECK(x.index({ai, aj}).shape() == Shape{5, k});
    CHECK(x.index({ai, aj}).get<double>() == each([&](Doubles& out, std::size_t p) {
            for (std::int64_t r = 0; r < k; ++r) out.push_back(at(i[p], j[p], r));
          }));
    CHECK(x.index({kEllipsis, aj, 1}).get<double>() == x.index({Range{}, aj, Range{1, 2}}).get<double>());
    CHECK(x.index({ai, aj, s.full({}, -1, {.dtype = DType::kInt8})}).get<double>() ==
          each([&](Doubles& out, std::size_t p) { out.push_back(at(i[p], j[p], -1)); }));
    CHECK(x.index({2, ai, 3}).get<double>() ==
          each([&](Doubles& out, std::size_t p) { out.push_back(at(2, i[p], 3)); }));
    Doubles table;
    for (const std::int64_t r : row)
      for (const std::int64_t p : i) table.push_back(at(p, 1, r));
    CHECK(x.index({ai, 1, column}).shape() == Shape{3, 5});
    CHECK(x.index({ai, 1, column}).get<double>() == table);
    // Behind what stays, and apart from each other: then in front.
    CHECK(x.index({Range{1, 3}, ai, column}).shape() == Shape{2, 3, 5});
    CHECK(x.index({Range{1, 3}, ai, column}).get<double>() ==
          concat({x[1].index({ai, column}).expand_dims(0), x[2].index({ai, column}).expand_dims(0)})
              .get<double>());
    const Array apart = x.index({ai, Range{8, {}, -3}, aj.slice(0, 1, 2), kNewAxis});
    CHECK(apart.shape() == Shape{5, 3, 1});
    CHECK(apart.get<double>() == each([&](Doubles& out, std::size_t p) {
            for (const std::int64_t q : {8, 5, 2}) out.push_back(at(i[p], q, 0));
          }));
    CHECK(x.index({0, Range{}, column}).shape() == Shape{3, 1, n});
    CHECK(x.index({0, Range{}, column}).get<double>() ==
          x[0].index({Range{}, column.squeeze()}).T().get<double>());
    CHECK(x.index({kNewAxis, ai, aj, Range{0, 2}}).shape() == Shape{1, 5, 2});
    // Every dtype of data and of indices.
    for (int t = 0; t < ir::kDTypeCount; ++t) {
      const auto dtype = static_cast<DType>(t);
      CAPTURE(std::string(name_of(dtype)));
      const Array y = (x > 0.0).astype(dtype);
      CHECK(real(y.index({ai, aj}).astype(DType::kComplex64)).astype(DType::kFloat64).get<double>() ==
            (x > 0.0).astype(DType::kFloat64).index({ai, aj}).get<double>());
      if (ir::is_integer(dtype))
        CHECK(x.index({abs(ai % 7).astype(dtype), 3}).get<double>() == x.index({ai % 7, 3}).get<double>());
    }
    // A mask is an index of its own.
    CHECK(x.index({x > 3.0}).get<double>() == boolean_index(x, x > 3.0).get<double>());
  }
}

TEST_CASE("updates at an index: what it shows becomes the value, and nothing else") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Shape shape = {7, 10, 6};
    const Doubles a = numbers(7 * 10 * 6, 3);
    const Array x = s.from_memory(a, shape, {.block = {3, 4, 6}});
    // What an index reads of the positions tells which elements it names.
    const Array positions = s.arange(7 * 10 * 6).reshape({7, 10, 6});
    const auto check = [&](const std::vector<IndexTerm>& terms) {
      const Array there = positions.index(terms);
      const Ints named = there.get<std::int64_t>();
      CAPTURE(named.size());
      Doubles value, want = a, filled = a;
      for (std::size_t p = 0; p < named.size(); ++p) {
        value.push_back(1000 + static_cast<double>(p));
        want[static_cast<std::size_t>(named[p])] = value.back();  // of equal places the last
        filled[static_cast<std::size_t>(named[p])] = -5;
      }
      CHECK(set_index(x, terms, s.from_memory(value, there.shape())).get<double>() == want);
      const Array got = set_index(x, terms, -5);
      CHECK(got.dtype() == DType::kFloat64);
      CHECK(got.shape() == x.shape());
      CHECK(got.get<double>() == filled);
    };
    const Array i = s.from_memory(Ints{0, -1, 3, 6, -7}, {5}, {.block = {2}}),
                j = s.from_memory(Ints{9, 0, -10, 4, 4}, {5}), column = s.from_memory(Ints{2, 5, -3}, {3, 1});
    check({});
    check({3});
    check({-1, kNewAxis, Range{8, 1, -3}});
    check({kEllipsis, kNewAxis, -2});
    check({1, 2, 3});
    check({Range{2, 2}});
    check({Range{1, {}, 3}, kEllipsis, Range{{}, {}, -1}});
    check({i});
    check({Range{}, j});
    check({column});
    check({kEllipsis, column});
    check({i, j});
    check({i, j, column});
    check({Range{1, 5, 2}, i, column});
    check({i, Range{8, {}, -3}, column});
    check({0, Range{}, column});
    check({kNewAxis, column, 4, Range{{}, {}, 2}});
    check({s.full({}, 6, {.dtype = DType::kInt16})});
    check({s.zeros({0}, {.dtype = DType::kInt64}), j.slice(0, 0, 1)});
    // Values broadcast, and are cast.
    CHECK(set_index(x.astype(DType::kInt32), {i, j}, s.full({5, 1}, 2.7))
              .at(0, 3)
              .at(0, 0)
              .get<std::int32_t>() == std::vector<std::int32_t>(6, 2));
  }
}

TEST_CASE("updates where a mask is true: one value, one for each, by masks of the first dimensions too") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 23, n = 11;
    const Doubles a = numbers(m * n, 3);
    const Array x = s.from_memory(a, {m, n}, {.block = {6, 4}}), mask = x > 2.0;
    Doubles one = a, each = a, given;
    for (std::size_t p = 0; p < a.size(); ++p) {
      if (a[p] <= 2) continue;
      given.push_back(1000 + static_cast<double>(given.size()));
      one[p] = -1;
      each[p] = given.back();
    }
    const auto count = static_cast<std::int64_t>(given.size());
    const Array values = s.from_memory(given, {count}, {.block = {10}});
    CHECK(set_index(x, {mask}, -1).get<double>() == one);
    CHECK(set_index(x, {mask}, s.full({1}, -1, {.dtype = DType::kInt16})).get<double>() == one);
    CHECK(set_index(x, {mask}, values).get<double>() == each);
    CHECK(set_index(x.T(), {mask.T()}, boolean_index(x.T(), mask.T()) * 2.0).get<double>() ==
          where(x > 2.0, x * 2.0, x).T().get<double>());
    CHECK(set_index(x, {x > 100.0}, s.zeros({0})).get<double>() == a);
    CHECK(set_index(x, {x < 100.0}, x.reshape({-1}) + 1.0).get<double>() == (x + 1.0).get<double>());
    // Whole rows.
    std::vector<std::uint8_t> chosen;
    Doubles row, rows = a, same = a, new_rows;
    for (std::int64_t c = 0; c < n; ++c) row.push_back(500 + static_cast<double>(c));
    for (std::int64_t r = 0; r < m; ++r) {
      chosen.push_back(r % 5 == 2);
      if (r % 5 != 2) continue;
      for (std::int64_t c = 0; c < n; ++c) {
        const auto p = static_cast<std::size_t>(r * n + c);
        new_rows.push_back(2000 + static_cast<double>(p));
        rows[p] = new_rows.back();
        same[p] = row[static_cast<std::size_t>(c)];
      }
    }
    const Array few = s.from_memory(chosen, {m}, {.block = {7}}) != 0;
    const auto found = static_cast<std::int64_t>(new_rows.size()) / n;
    CHECK(set_index(x, {few}, s.from_memory(new_rows, {found, n}, {.block = {2, 3}})).get<double>() == rows);
    CHECK(set_index(x, {few}, s.from_memory(row, {n})).get<double>() == same);
    CHECK(set_index(x, {few}, s.from_memory(row, {1, n})).get<double>() == same);
    CHECK(set_index(x, {few}, boolean_index(x, few)).get<double>() == a);
    const Array cube = s.from_memory(a, {m, n, 1});
    CHECK(set_index(cube, {cube.squeeze(2) > 2.0}, values.expand_dims(1)).get<double>() == each);
    CHECK(set_index(x > 0.0, {mask}, false).get<bool>() == ((x > 0.0) & !mask).get<bool>());
    CHECK(code_of([&] { set_index(x, {mask}, values.slice(0, 1)); }) == Errc::kShapeMismatch);
    CHECK(code_of([&] { set_index(x, {few}, s.zeros({n + 1})); }) == Errc::kShapeMismatch);
    CHECK(code_of([&] { set_index(x, {mask}, s.zeros({1, 1, 1})); }) == Errc::kShapeMismatch);
  }
}

TEST_CASE("masks beside other terms are the indices of what is true in them") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 9, n = 7, d = 5;
    const Doubles a = numbers(m * n * d, 4);
    const Array x = s.from_memory(a, {m, n, d}, {.block = {4, 3, 5}});
    const auto at = [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      return a[static_cast<std::size_t>((i * n + j) * d + k)];
    };
    const Array rows = s.arange(m) % 3 == 1, columns = s.arange(n) > 4;  // 1 4 7; 5 6
    Doubles first, middle, both, pairs;
    for (const std::int64_t i : {1, 4, 7})
      for (std::int64_t j = 0; j < n; ++j) first.push_back(at(i, j, 2));
    for (std::int64_t i = 0; i < m; ++i)
      for (const std::int64_t j : {5, 6})
        for (std::int64_t k = 1; k < 4; ++k) middle.push_back(at(i, j, k));
    CHECK(x.index({rows, Range{}, Range{2, 3}}).shape() == Shape{3, n, 1});
    CHECK(x.index({rows, Range{}, Range{2, 3}}).get<double>() == first);
    CHECK(x.index({kEllipsis, columns, Range{1, 4}}).get<double>() == middle);
    // Of two dimensions, beside an integer and beside indices, which broadcast.
    const Array plane = (x > 0.0).at(2, 0);
    Doubles chosen;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        if (at(i, j, 0) > 0) chosen.push_back(at(i, j, 3)), ++count;
    CHECK(x.index({plane, 3}).get<double>() == chosen);
    CHECK(x.index({plane, s.full({1}, 3, {.dtype = DType::kInt32})}).shape() == Shape{count});
    CHECK(x.index({plane, kEllipsis}).get<double>() == boolean_index(x, plane).get<double>());
    CHECK(x.index({rows, s.from_memory(Ints{0, 2, 6}, {3}), 4}).get<double>() ==
          Doubles{at(1, 0, 4), at(4, 2, 4), at(7, 6, 4)});
    CHECK(x.index({s.arange(m) < 0, Range{}, 0}).shape() == Shape{0, n});
    // The same as an update.
    Doubles set = a;
    for (const std::int64_t i : {1, 4, 7})
      for (std::int64_t j = 0; j < n; ++j) set[static_cast<std::size_t>((i * n + j) * d + 2)] = -1;
    CHECK(set_index(x, {rows, Range{}, 2}, -1.0).get<double>() == set);
  }
}

TEST_CASE("a mask without dimensions keeps all or nothing") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const Array yes = s.full({}, true), no = s.full({}, false);
  const Array x = s.from_memory(numbers(12, 1), {4, 3}, {.block = {2, 2}}), point = s.full({}, 5.0);
  CHECK(x.index({yes}).shape() == Shape{1, 4, 3});
  CHECK(x.index({yes}).get<double>() == x.get<double>());
  CHECK(x.index({no}).shape() == Shape{0, 4, 3});
  CHECK(boolean_index(point, yes).get<double>() == std::vector<double>{5});
  CHECK(boolean_index(point, no).size() == 0);
  CHECK(x.index({Range{}, yes, 1}).shape() == Shape{4, 1});
  CHECK(x.index({yes, Range{}, 1}).shape() == Shape{1, 4});  // apart: in front
  CHECK(x.index({1, yes}).get<double>() == x.at(0, 1).get<double>());
  CHECK(set_index(x, {yes}, 7).get<double>() == std::vector<double>(12, 7));
  CHECK(set_index(x, {no}, 7).get<double>() == x.get<double>());
  CHECK(set_index(point, {yes}, 7).item<double>() == 7);
}

TEST_CASE("mistakes of index arrays are typed, and name index and axis") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const Array x = s.from_memory(numbers(12, 1), {4, 3}, {.block = {2, 2}});
  const Array i = s.arange(2), mask = x > 0.0;
  std::string what;
  // Out of its own axis, though the position in both would be inside.
  CHECK(code_of(
            [&] {
              x.index({i, s.from_memory(Ints{0, 3}, {2})}).get<double>();
            },
            &what) == Errc::kOutOfRange);
  CHECK_MESSAGE(what.find("index 3 is out of bounds for axis 1 with size 3") != std::string::npos, what);
  CHECK(code_of(
            [&] {
              x.index({0, s.from_memory(Ints{-4}, {1})}).get<double>();
            },
            &what) == Errc::kOutOfRange);
  CHECK_MESSAGE(what.find("index -4 is out of bounds for axis 1 with size 3") != std::string::npos, what);
  CHECK(code_of([&] {
          set_index(x, {s.from_memory(Ints{4}, {1}), 0}, 1.0).get<double>();
        }) == Errc::kOutOfRange);
  CHECK(code_of([&] { x.index({i, s.arange(3)}); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { x.index({i, i, i}); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { x.index({s.ones({2})}); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("float64 (term 0, axis 0)") != std::string::npos, what);
  CHECK(code_of([&] { x.index({mask[0], 0}); }, &what) == Errc::kShapeMismatch);
  CHECK_MESSAGE(what.find("mask of shape (3,) (term 0, from axis 0)") != std::string::npos, what);
  CHECK(code_of([&] { x.index({mask, 0}); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { set_index(x, {mask, kEllipsis}, s.ones({13})); }) == Errc::kShapeMismatch);
  // As unsigned numbers, not as the negative ones that their bits are.
  const Array large = s.from_memory(std::vector<std::uint64_t>{1, ~std::uint64_t{0}}, {2});
  CHECK(code_of([&] { x.index({large, 0}).get<double>(); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { take(x, large, 0).get<double>(); }) == Errc::kOutOfRange);
  CHECK(x.index({large.slice(0, 0, 1), 0}).get<double>() == x.at(0, 1).slice(0, 0, 1).get<double>());
  CHECK(code_of([&] { set_index(x, {mask.T()}, 1.0); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { set_index(x, {i, i}, s.ones({3})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { set_index(x, {0}, s.ones({2, 3})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { set_index(x.astype(DType::kInt8), {0}, 300); }) == Errc::kOutOfRange);
  CHECK(code_of([&] {
          take(x, s.zeros({1, 1, 1, 1, 1, 1, 1, 1}, {.dtype = DType::kInt64}), 0);
        }) == Errc::kLimitExceeded);
  CHECK(code_of([&] { x.index({Array()}); }) == Errc::kInvalidArgument);
  CHECK(x.get<double>().size() == 12);  // the session goes on
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
