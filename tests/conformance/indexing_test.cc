// Indexing by arrays, updates and order, against plain loops, on every form of cluster; their mistakes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("take gathers along any axis, with indices and data over many blocks") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 31, n = 17, k = 43;
    const Doubles a = numbers(m * n, 3);
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 4}});
    Ints at;
    for (std::int64_t j = 0; j < k; ++j) at.push_back((j * 29) % m - (j % 3 == 0 ? m : 0));
    const Array indices = s.from_memory(at, {k}, {.block = {10}});
    const Doubles rows = take(x, indices, 0).get<double>();
    const Doubles columns = take(x.T(), indices, 1).get<double>();
    const Doubles strided = take(x.slice(1, {}, {}, -2), indices, -2).get<double>();
    REQUIRE(rows.size() == static_cast<std::size_t>(k * n));
    for (std::int64_t j = 0; j < k; ++j)
      for (std::int64_t c = 0; c < n; ++c) {
        const std::int64_t i = (at[static_cast<std::size_t>(j)] + m) % m;
        CHECK(rows[static_cast<std::size_t>(j * n + c)] == a[static_cast<std::size_t>(i * n + c)]);
        CHECK(columns[static_cast<std::size_t>(c * k + j)] == a[static_cast<std::size_t>(i * n + c)]);
        if (c % 2 == 0)
          CHECK(strided[static_cast<std::size_t>(j * 9 + (n - 1 - c) / 2)] ==
                a[static_cast<std::size_t>(i * n + c)]);
      }
    // Other dtypes of data and of indices; a vector needs no axis; nothing of nothing.
    const Array flat = s.from_memory(a, {m * n}, {.block = {50}});
    CHECK(
        take(flat.astype(DType::kComplex128), indices.astype(DType::kInt8)).get<std::complex<double>>()[2] ==
        a[static_cast<std::size_t>(at[2])]);
    CHECK(take(flat.astype(DType::kInt16), s.arange(3)).get<std::int16_t>().size() == 3);
    CHECK(take(flat, s.arange(0)).get<double>().empty());
  }
}

TEST_CASE("take_along_axis follows each line's own indices, and sorts with argsort") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 12, n = 29;
    const Doubles a = numbers(m * n, 5);
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 7}});
    CHECK(take_along_axis(x, argsort(x)).get<double>() == sort(x).get<double>());
    CHECK(take_along_axis(x, argsort(x, 0), 0).get<double>() == sort(x, 0).get<double>());
    const Ints at = {3, -1, 0, 28};
    const Doubles one = take_along_axis(x, s.from_memory(at, {1, 4})).get<double>();
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < 4; ++j)
        CHECK(one[static_cast<std::size_t>(i * 4 + j)] ==
              a[static_cast<std::size_t>(i * n + (at[static_cast<std::size_t>(j)] + n) % n)]);
  }
}

TEST_CASE("put and set change what they name and nothing else") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 19, n = 14;
    const Doubles a = numbers(m * n, 7);
    const Array x = s.from_memory(a, {m, n}, {.block = {6, 5}});
    const Ints at = {4, 18, -1, 0, 7, 4};
    Doubles v(6 * static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = 1000 + static_cast<double>(i);
    Doubles want = a;
    for (std::size_t j = 0; j < at.size(); ++j)
      for (std::int64_t c = 0; c < n; ++c)
        want[static_cast<std::size_t>((at[j] + m) % m * n + c)] =
            v[j * static_cast<std::size_t>(n) + static_cast<std::size_t>(c)];
    const Array indices = s.from_memory(at, {6}, {.block = {4}});
    CHECK(put(x, indices, s.from_memory(v, {6, n}, {.block = {4, 3}}), 0).get<double>() == want);
    CHECK(put(x.T(), indices, s.from_memory(v, {6, n}).T(), 1).T().get<double>() == want);

    const auto check = [&](const std::vector<Slice>& where, std::int64_t r0, std::int64_t r1, std::int64_t rs,
                           std::int64_t c0, std::int64_t c1, std::int64_t cs) {
      Doubles w = a;
      for (std::int64_t i = r0; rs > 0 ? i < r1 : i > r1; i += rs)
        for (std::int64_t j = c0; cs > 0 ? j < c1 : j > c1; j += cs)
          w[static_cast<std::size_t>(i * n + j)] = -5;
      const Array got = set(x, where, s.full({}, -5, {.dtype = DType::kInt64}));
      CHECK(got.dtype() == DType::kFloat64);
      CHECK(got.get<double>() == w);
    };
    check({{0, 3, 11}, {1, 2, 9}}, 3, 11, 1, 2, 9, 1);
    check({{-1, 4, {}}}, 0, m, 1, 4, n, 1);
    check({{0, {}, {}, 3}}, 0, m, 3, 0, n, 1);
    check({{0, -2, 3, -4}, {1, 1, {}, 5}}, m - 2, 3, -4, 1, n, 5);
    check({{0, 5, 5}}, 0, 0, 1, 0, 0, 1);
    check({}, 0, m, 1, 0, n, 1);
  }
}

TEST_CASE("put, set and searchsorted in every dtype") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 19, n = 14;
    const Doubles a = numbers(m * n, 7), v = numbers(4 * n, 2);
    const auto doubles = [](const Array& x) {
      return (ir::is_complex(x.dtype()) ? real(x) : x).astype(DType::kFloat64).get<double>();
    };
    const Ints at = {4, -1, 0, 7};
    for (int t = 0; t < ir::kDTypeCount; ++t) {
      const DType dtype = static_cast<DType>(t);
      CAPTURE(std::string(name_of(dtype)));
      const double up = ir::is_unsigned_integer(dtype) ? 11 : 0;
      const Array x = (s.from_memory(a, {m, n}, {.block = {6, 5}}) + up).astype(dtype);
      const Array values = (s.from_memory(v, {4, n}, {.block = {3, 14}}) + up).astype(dtype);
      const Doubles from = doubles(x), given = doubles(values);
      Doubles put_rows = from, set_box = from, set_steps = from;
      for (std::size_t j = 0; j < 4; ++j)
        for (std::int64_t c = 0; c < n; ++c) {
          const double value = given[j * static_cast<std::size_t>(n) + static_cast<std::size_t>(c)];
          put_rows[static_cast<std::size_t>((at[j] + m) % m * n + c)] = value;
          set_box[(j + 5) * static_cast<std::size_t>(n) + static_cast<std::size_t>(c)] = value;
          set_steps[(4 * j + 2) * static_cast<std::size_t>(n) + static_cast<std::size_t>(c)] = value;
        }
      const Array put_there = put(x, s.from_memory(at, {4}, {.block = {3}}), values, 0);
      CHECK(put_there.dtype() == dtype);
      CHECK(doubles(put_there) == put_rows);
      CHECK(doubles(set(x, {{0, 5, 9}}, values)) == set_box);
      CHECK(doubles(set(x, {{0, 2, 15, 4}}, values)) == set_steps);
      const Array line = x.reshape({-1}), probes = values.reshape({2, 2 * n});
      if (ir::is_complex(dtype)) {
        CHECK(code_of([&] { searchsorted(line, probes); }) == Errc::kInvalidArgument);
        continue;
      }
      Ints left, right;
      for (const double p : given) {
        left.push_back(std::count_if(from.begin(), from.end(), [&](double e) { return e < p; }));
        right.push_back(std::count_if(from.begin(), from.end(), [&](double e) { return e <= p; }));
      }
      CHECK(searchsorted(sort(line), probes).get<std::int64_t>() == left);
      CHECK(searchsorted(sort(line), probes, "right").get<std::int64_t>() == right);
    }
  }
}

TEST_CASE("searchsorted counts what comes before") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    Doubles a = numbers(120, 4);
    a[7] = kNan;
    const Array x = s.from_memory(a, {120}, {.block = {17}});
    const Doubles v = {-20, -11, -3.5, 0, 4, 11, 12, kNan};
    const Array probe = s.from_memory(v, {2, 4}, {.block = {1, 3}});
    Ints left, right;
    for (const double value : v) {
      left.push_back(std::count_if(
          a.begin(), a.end(), [&](double e) { return e < value || (std::isnan(value) && !std::isnan(e)); }));
      right.push_back(
          std::count_if(a.begin(), a.end(), [&](double e) { return e <= value || std::isnan(value); }));
    }
    CHECK(searchsorted(sort(x), probe).get<std::int64_t>() == left);
    CHECK(searchsorted(x, probe, "right", argsort(x)).get<std::int64_t>() == right);
    CHECK(searchsorted(s.zeros({0}), probe).get<std::int64_t>() == Ints(8, 0));
    CHECK(searchsorted(s.arange(10), s.full({}, 4.5)).item<std::int64_t>() == 5);
  }
}

TEST_CASE("calls on listed blocks: any of them, the same one twice, in rows that read each other") {
  const Kernel merge{.name = "tilewise.merge_runs", .version = "1", .params = std::string(56, '\0')};
  const std::int64_t width = 300;
  const ir::Grid ones = *ir::Grid::uniform({1, width}, {1, 1}), pairs = *ir::Grid::uniform({2 * width}, {2});
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Doubles values = numbers(static_cast<std::size_t>(width), 7);
    Array row = s.from_memory(values, {1, width}, {.block = {1, 1}});
    std::uint64_t draw = 1;
    Doubles expected;
    for (const int turn : {0, 1, 2}) {
      BlockLists lists{row, {}};
      Doubles next;
      for (std::int64_t p = 0; p < width; ++p) {
        const auto any = [&] {
          return static_cast<std::int64_t>((draw = draw * 6364136223846793005u + 1442695040888963407u) >>
                                           33) %
                 width;
        };
        const std::int64_t a = any(), b = p % 3 == 0 ? a : any();
        lists.blocks.push_back({a, b});
        const auto of = [&](std::int64_t block) { return turn == 0 ? values[block] : expected[2 * block]; };
        next.push_back(std::min(of(a), of(b)));
        next.push_back(std::max(of(a), of(b)));
      }
      const Array merged = map_blocks(merge, {lists}, {{DType::kFloat64, pairs}}).front();
      expected = next;
      CHECK(merged.get<double>() == expected);
      row = merged.slice(0, 0, 2 * width, 2).expand_dims(0).reblock({1, 1});  // the smaller of each
    }
    // Nothing but the order of tasks: none may wait for ever.
    for (int turn = 0; turn < 8; ++turn) {
      BlockLists lists{row, {}};
      for (std::int64_t p = 0; p < width; ++p)
        lists.blocks.push_back({(7 * p) % width, p, p, (7 * p) % width});
      row = map_blocks({.name = "tilewise.noop", .version = "1"}, {lists}, {{DType::kFloat64, ones}}).front();
    }
    row.persist().wait({.timeout = std::chrono::seconds(60)});
  }
}

TEST_CASE("mistakes of indexing and order are typed, and name what and where") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const Array x = s.from_memory(numbers(12, 1), {4, 3}, {.block = {2, 2}});
  std::string what;
  CHECK(code_of(
            [&] {
              take(x, s.from_memory(Ints{0, 4}, {2}), 0).get<double>();
            },
            &what) == Errc::kOutOfRange);
  CHECK(what.find("index 4 is out of bounds for axis 0 with size 4") != std::string::npos);
  CHECK(code_of([&] { take(x, s.from_memory(Ints{-4}, {1}), 1).get<double>(); }, &what) == Errc::kOutOfRange);
  CHECK(what.find("index -4") != std::string::npos);
  CHECK(code_of([&] { put(x, s.from_memory(Ints{3}, {1}), s.zeros({}), 1).get<double>(); }) ==
        Errc::kOutOfRange);
  CHECK(code_of([&] {
          take_along_axis(x, s.full({4, 1}, 3, {.dtype = DType::kInt64})).get<double>();
        }) == Errc::kOutOfRange);
  CHECK(code_of([&] { take(s.zeros({0}), s.zeros({1}, {.dtype = DType::kInt64})).get<double>(); }) ==
        Errc::kOutOfRange);
  CHECK(code_of([&] { take(x, s.arange(2)); }) == Errc::kInvalidArgument);      // no axis
  CHECK(code_of([&] { take(x, s.zeros({2}), 0); }) == Errc::kInvalidArgument);  // floats
  CHECK(code_of([&] { take(x, s.arange(2), 2); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { set(x, {{0, 0, 2}}, s.zeros({5})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { set(x, {{0, 0, 2}, {-2, 1, 2}}, s.zeros({})); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { sort(x.astype(DType::kComplex64)); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { sort(x, 2); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { sort(s.zeros({})); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { topk(x, 5, 0); }) == Errc::kOutOfRange);
  CHECK(code_of([&] { topk(x.astype(DType::kComplex64), 0); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("have no order") != std::string::npos, what);
  CHECK(code_of([&] { searchsorted(x, x); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { searchsorted(s.arange(3), x, "middle"); }) == Errc::kInvalidArgument);
  CHECK(x.get<double>().size() == 12);  // the session goes on
}

TEST_CASE("order, indices and masks of data that half fill the devices, without a disk") {
  // Two workers of two devices each: a share is 8 of 32 blocks of 64 KiB, an arena two shares and what two tasks hold.
  const std::int64_t block = 8192, n = 32 * block;
  const Form form = {"twice the share",
                     {.workers = 2,
                      .host_devices = 2,
                      .use_cuda = false,
                      .memory_bytes = (2 * 8 + 6) * block * 8,
                      .spin_ns = 0}};
  TestCluster cluster(form);
  const Session& s = cluster.session;
  Array x = s.random.normal({n}, {.seed = 3, .block = {block}});
  Doubles want = x.get<double>();
  const Doubles plain = want;
  std::sort(want.begin(), want.end());
  {
    Array sorted = sort(x);
    sorted.persist().wait();
    CHECK(sorted.get<double>() == want);
  }
  {
    // From rows to columns: each block of the result has a part of every block.
    const std::int64_t rows = 32, columns = n / rows;
    Array wide = s.random.normal({rows, columns}, {.seed = 4, .block = {1, columns}});
    wide.persist().wait();
    Array cut = wide.reblock({rows, columns / rows});
    cut.persist().wait();
    CHECK(cut.get<double>() == wide.get<double>());
  }
  CHECK(sum(boolean_index(x, x > 0.0)).item<double>() > 0);
  CHECK(boolean_index(x, x > 3.0).size() ==
        std::count_if(plain.begin(), plain.end(), [](double v) { return v > 3; }));
  // Every 7th element, by index: each block of the result sweeps all of the data.
  const std::int64_t k = 4 * block;
  const Array picked = take(x, s.arange(0, 7 * k, 7, {.block = {block}}));
  Doubles every;
  for (std::int64_t i = 0; i < k; ++i) every.push_back(plain[static_cast<std::size_t>(7 * i)]);
  CHECK(picked.get<double>() == every);
}
