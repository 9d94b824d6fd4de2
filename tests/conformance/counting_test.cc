// Additions at indices that come several times, and what is made of them, against plain loops, on every form of cluster.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

// Numbers whose sum depends on the order of additions in its last bits.
Doubles uneven(std::int64_t n) {
  Doubles out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<double>((i * 7919) % 1009 - 500) * (i % 3 == 0   ? 1e-7
                                                                  : i % 3 == 1 ? 1.1
                                                                               : 1e6));
  return out;
}

Ints scattered(std::int64_t n, std::int64_t extent) {
  Ints out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back((i * 31 + i * i % 17) % extent);
  return out;
}

}  // namespace

TEST_CASE("put_add: one after the other along any axis, the same bits on every form and cut") {
  const std::int64_t m = 17, n = 14, k = 200;
  const Doubles a = uneven(m * n), v = uneven(k * n);
  const Ints rows = scattered(k, m);
  Doubles want = a, columns = a;
  for (std::int64_t j = 0; j < k; ++j)
    for (std::int64_t c = 0; c < n; ++c)
      want[static_cast<std::size_t>(rows[static_cast<std::size_t>(j)] * n + c)] +=
          v[static_cast<std::size_t>(j * n + c)];
  for (std::int64_t j = 0; j < k; ++j)
    for (std::int64_t r = 0; r < m; ++r)
      columns[static_cast<std::size_t>(r * n + rows[static_cast<std::size_t>(j)] % n)] +=
          v[static_cast<std::size_t>(j)];
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const std::int64_t cut : {3, 64, 500}) {
      const Array x = s.from_memory(a, {m, n}, {.block = {cut, 5}});
      const Array at = s.from_memory(rows, {k}, {.block = {cut}});
      const Array values = s.from_memory(v, {k, n}, {.block = {cut + 1, 4}});
      CHECK(put_add(x, at, values, 0).get<double>() == want);
      CHECK(put_add(x.T(), at - m, values.T(), -1).T().get<double>() == want);  // from the end
      CHECK(put_add(x, at % n, values.reshape({-1}).slice(0, 0, k), 1).get<double>() == columns);
      CHECK(x.get<double>() == a);
    }
    const Array x = s.zeros({5}, {.block = {2}});
    CHECK(put_add(x, s.zeros({0}, {.dtype = DType::kInt64}), s.zeros({0})).get<double>() == Doubles(5, 0));
    CHECK(put_add(x, s.from_memory(Ints{1, 4, 1}, {3}), s.full({}, 2.5)).get<double>() ==
          Doubles{0, 5, 0, 0, 2.5});
    CHECK(put_add(s.zeros({0, 3}), s.zeros({0}, {.dtype = DType::kInt64}), s.ones({3}), 0).size() == 0);
    const Doubles special = put_add(x, s.from_memory(Ints{0, 0, 1, 2, 2}, {5}),
                                    s.from_memory(Doubles{kInf, -kInf, kInf, kNan, 1}, {5}))
                                .get<double>();
    CHECK((std::isnan(special[0]) && special[1] == kInf && std::isnan(special[2]) && special[3] == 0));
  }
}

TEST_CASE("put_add of every dtype: integers wrap, 16-bit floats are rounded once") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t k = 3000;  // more than 16-bit floats and bytes can count
    const Array at = s.from_memory(scattered(k, 3), {k}, {.block = {700}});
    Doubles counts(3, 0);
    for (const std::int64_t i : scattered(k, 3)) counts[static_cast<std::size_t>(i)] += 1;
    for (int t = 0; t < ir::kDTypeCount; ++t) {
      const auto dtype = static_cast<DType>(t);
      CAPTURE(std::string(name_of(dtype)));
      const Array x = s.zeros({3}, {.dtype = dtype, .block = {2}});
      if (dtype == DType::kBool) {
        CHECK(code_of([&] { put_add(x, at, s.full({}, true)); }) == Errc::kInvalidArgument);
        continue;
      }
      const Array got = put_add(x, at, s.full({}, 1));
      CHECK(got.dtype() == dtype);
      const Array want = s.from_memory(counts, {3}).astype(DType::kInt64).astype(dtype);
      CHECK(all(got == want).item<bool>());
    }
    using C = std::complex<float>;
    const std::vector<C> z = {{1, 2}, {3, -1}, {-2, 5}};
    CHECK(put_add(s.zeros({2}, {.dtype = DType::kComplex64}), s.from_memory(Ints{1, 0, 1}, {3}),
                  s.from_memory(z, {3}))
              .get<C>() == std::vector<C>{{3, -1}, {-1, 7}});
  }
}

TEST_CASE("add_at: arrays of indices, slices, integers and masks") {
  const std::int64_t m = 7, n = 9;
  const Doubles a = uneven(m * n);
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array x = s.from_memory(a, {m, n}, {.block = {3, 4}});
    const Ints i = {1, 6, 1, 1}, j = {2, 8, 2, 0};
    const Array at_i = s.from_memory(i, {4}), at_j = s.from_memory(j, {4}, {.block = {3}});
    const auto plain = [&](const std::function<void(Doubles&)>& change) {
      Doubles out = a;
      change(out);
      return out;
    };
    const auto place = [&](std::int64_t r, std::int64_t c) { return static_cast<std::size_t>(r * n + c); };
    CHECK(add_at(x, {at_i, at_j}, s.from_memory(Doubles{1, 2, 3, 4}, {4})).get<double>() ==
          plain([&](Doubles& out) {
            for (std::size_t k = 0; k < 4; ++k) out[place(i[k], j[k])] += static_cast<double>(k + 1);
          }));
    CHECK(add_at(x, {at_i.expand_dims(1), at_j}, 0.1).get<double>() == plain([&](Doubles& out) {
            for (const std::int64_t r : i)
              for (const std::int64_t c : j) out[place(r, c)] += 0.1;
          }));
    CHECK(add_at(x, {at_i, Range{1, 8, 3}}, s.from_memory(Doubles{1, 2, 3}, {3})).get<double>() ==
          plain([&](Doubles& out) {
            for (const std::int64_t r : i)
              for (std::int64_t k = 0; k < 3; ++k) out[place(r, 1 + 3 * k)] += static_cast<double>(k + 1);
          }));
    CHECK(add_at(x, {-1, Range{{}, {}, 2}}, 2.0).get<double>() == plain([&](Doubles& out) {
            for (std::int64_t c = 0; c < n; c += 2) out[place(m - 1, c)] += 2;
          }));
    CHECK(add_at(x, {x > 0.0}, 1.0).get<double>() == plain([&](Doubles& out) {
            for (double& v : out) v += v > 0 ? 1 : 0;
          }));
    const Array row = x.at(0, 0), mask = row > 0.0;
    const Doubles first(a.begin(), a.begin() + n);
    const auto found = std::count_if(first.begin(), first.end(), [](double v) { return v > 0; });
    CHECK(add_at(row, {mask}, s.arange(0, found)).get<double>() == [&] {
      Doubles out = first;
      double next = 0;
      for (double& v : out)
        if (v > 0) v += next++;
      return out;
    }());
    CHECK(add_at(x.astype(DType::kFloat16), {at_i}, 1.0).dtype() == DType::kFloat16);
    CHECK(add_at(s.zeros({2}, {.dtype = DType::kBFloat16}), {s.zeros({1000}, {.dtype = DType::kInt64})}, 1)
              .astype(DType::kFloat64)
              .get<double>() == Doubles{1000, 0});
  }
}

TEST_CASE("segment_sum: ids in any order, those outside left out") {
  const std::int64_t n = 1000, d = 3;
  const Doubles v = uneven(n * d);
  Ints ids = scattered(n, 11);
  ids[5] = -1, ids[77] = 11, ids[78] = 1'000'000, ids[999] = -12;
  Doubles want(11 * d, 0), few(8 * d, 0);
  Ints counts(11 * d, 0);
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t c = 0; c < d; ++c) {
      const std::int64_t id = ids[static_cast<std::size_t>(j)];
      const double value = v[static_cast<std::size_t>(j * d + c)];
      if (id >= 0 && id < 11) want[static_cast<std::size_t>(id * d + c)] += value;
      if (id >= 0 && id < 8) few[static_cast<std::size_t>(id * d + c)] += value;
      if (id >= 0 && id < 11)
        counts[static_cast<std::size_t>(id * d + c)] += static_cast<std::int64_t>(value);
    }
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const std::int64_t cut : {7, 300, 1000}) {
      const Array x = s.from_memory(v, {n, d}, {.block = {cut, 2}}),
                  at = s.from_memory(ids, {n}, {.block = {130}});
      CHECK(segment_sum(x, at, 11).get<double>() == want);
      CHECK(segment_sum(x, at, 8).get<double>() == few);
      CHECK(segment_sum(x.astype(DType::kInt64), at, 11).get<std::int64_t>() == counts);
      CHECK(segment_sum(x.at(1, 0).astype(DType::kInt64), at, 11).get<std::int64_t>() ==
            segment_sum(x.astype(DType::kInt64), at, 11).at(1, 0).get<std::int64_t>());
      const Array bytes = (x * 0.0 + 3.0).astype(DType::kInt8);  // 3 * 90 passes 127
      CHECK(segment_sum(bytes, at, 11).dtype() == DType::kInt8);
      CHECK(segment_sum(bytes, at, 11).get<std::int8_t>() ==
            segment_sum(bytes.astype(DType::kInt64), at, 11).astype(DType::kInt8).get<std::int8_t>());
    }
    const Array x = s.arange(6, {.block = {4}}),
                at = s.from_memory(Ints{2, 0, 2, -3, 0, 2}, {6}, {.block = {5}});
    CHECK(segment_sum(x, at).get<std::int64_t>() == Ints{5, 0, 7});
    CHECK(segment_sum(x, at, 0).size() == 0);
    CHECK(segment_sum(x, at - 5).size() == 0);  // all are negative
    CHECK(segment_sum(x, at, 5).get<std::int64_t>() == Ints{5, 0, 7, 0, 0});
    CHECK(segment_sum(s.zeros({0, 2}), s.zeros({0}, {.dtype = DType::kInt8}), 2).get<double>() ==
          Doubles(4, 0));
    CHECK(segment_sum(s.zeros({0}), s.zeros({0}, {.dtype = DType::kInt8})).size() == 0);
    CHECK(segment_sum(s.ones({5000}, {.dtype = DType::kFloat16, .block = {600}}),
                      s.zeros({5000}, {.dtype = DType::kUInt8}), 1)
              .astype(DType::kFloat64)
              .get<double>() == Doubles{5000});
  }
}

TEST_CASE("bincount: counts, weights, a least length") {
  const std::int64_t n = 3000;
  const Ints ids = scattered(n, 40);
  const Doubles w = uneven(n);
  Ints counts(40, 0);
  Doubles sums(40, 0);
  for (std::size_t j = 0; j < ids.size(); ++j)
    ++counts[static_cast<std::size_t>(ids[j])], sums[static_cast<std::size_t>(ids[j])] += w[j];
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const std::int64_t cut : {16, 501, 3000}) {
      const Array x = s.from_memory(ids, {n}, {.block = {cut}}),
                  weights = s.from_memory(w, {n}, {.block = {400}});
      CHECK(bincount(x).get<std::int64_t>() == counts);
      CHECK(bincount(x.astype(DType::kUInt8), weights).get<double>() == sums);
      CHECK(bincount(x.slice(0, {}, {}, -1)).get<std::int64_t>() == counts);
      Ints longer = counts;
      longer.resize(100, 0);
      CHECK(bincount(x, {}, 100).get<std::int64_t>() == longer);
      CHECK(bincount(x, {}, 3).get<std::int64_t>() == counts);
      CHECK(bincount(x, weights > 0.0).dtype() == DType::kFloat64);
    }
    const Array none = s.zeros({0}, {.dtype = DType::kInt64});
    CHECK(bincount(none).get<std::int64_t>().empty());
    CHECK(bincount(none, {}, 2).get<std::int64_t>() == Ints{0, 0});
    CHECK(bincount(s.zeros({3}, {.dtype = DType::kInt32})).get<std::int64_t>() == Ints{3});
  }
}

TEST_CASE("histogram: bins of one width and given edges, weights, density") {
  const std::int64_t n = 1000;
  Doubles a = numbers(n, 7);  // whole numbers of [-11, 11]
  a[3] = kNan, a[4] = kInf, a[5] = -kInf;
  Doubles weights = uneven(n);
  for (double& w : weights) w = std::floor(w);
  const auto plain = [&](const Doubles& edges, const Doubles& each) {
    Doubles out(edges.size() - 1, 0);
    for (std::size_t j = 0; j < a.size(); ++j)
      for (std::size_t b = 0; b + 1 < edges.size(); ++b)
        if (a[j] >= edges[b] && (a[j] < edges[b + 1] || (b + 2 == edges.size() && a[j] == edges[b + 1])))
          out[b] += each[j];
    return out;
  };
  const auto counts = [](const Histogram& h) { return h.counts.astype(DType::kFloat64).get<double>(); };
  const Doubles ones(static_cast<std::size_t>(n), 1);
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array w = s.from_memory(weights, {50, 20}, {.block = {9, 20}});
    for (const std::int64_t cut : {3, 50}) {
      const Array x = s.from_memory(a, {50, 20}, {.block = {cut, 7}});
      for (const Doubles& edges :
           {Doubles{-11, -3, -3, 0.5, 6, 11}, Doubles{2, 5, 5}, Doubles{0, 1}, Doubles{4}}) {
        const Histogram h = histogram(x, edges);
        CHECK(h.counts.dtype() == DType::kInt64);
        CHECK(counts(h) == plain(edges, ones));
        CHECK(h.edges.get<double>() == edges);
        CHECK(counts(histogram(x, edges, {.weights = w})) == plain(edges, weights));
        CHECK(counts(histogram(x, s.from_memory(edges, {static_cast<std::int64_t>(edges.size())}),
                               {.weights = w.astype(DType::kInt64)})) == plain(edges, weights));
      }
      const Histogram even = histogram(x, 4, {.range = {{-10, 10}}});
      CHECK(even.edges.get<double>() == Doubles{-10, -5, 0, 5, 10});
      CHECK(counts(even) == plain({-10, -5, 0, 5, 10}, ones));
      const Array whole = where(isfinite(x), x, 0.0);
      const Histogram all = histogram(whole.astype(DType::kInt16), 11);
      CHECK(all.edges.dtype() == DType::kFloat64);
      check_near(all.edges.get<double>(), {-11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11}, 1e-14);
      CHECK(sum(all.counts).item<std::int64_t>() == n);
      CHECK(histogram(whole.astype(DType::kFloat32)).edges.dtype() == DType::kFloat32);
      const Histogram dense = histogram(x, Doubles{-11, 0, 1, 11}, {.density = true});
      CHECK(sum(dense.counts * diff(dense.edges)).item<double>() == doctest::Approx(1));
    }
    CHECK(counts(histogram(s.zeros({0}), 3)) == Doubles{0, 0, 0});
    CHECK(histogram(s.zeros({0}), 2).edges.get<double>() == Doubles{0, 0.5, 1});
    CHECK(histogram(s.full({4}, 3.0), 2).edges.get<double>() == Doubles{2.5, 3, 3.5});
    CHECK(counts(histogram(s.full({4}, 3.0), 2)) == Doubles{0, 4});
    CHECK(counts(histogram(s.full({4}, true), 2)) == Doubles{0, 4});
    CHECK(histogram(s.ones({3}), 2, {.weights = s.full({3}, true)}).counts.dtype() == DType::kInt64);
    CHECK(histogram(s.ones({3}), 2, {.weights = s.ones({3}, {.dtype = DType::kComplex64})}).counts.dtype() ==
          DType::kComplex64);
    // Sums of float32 as float64: a float32 would stop at 2^24.
    const Array many = s.zeros({100}, {.block = {30}});
    CHECK(counts(histogram(many, 1, {.weights = s.full({100}, 16777216.0 / 64).astype(DType::kFloat32)})) ==
          Doubles{100 * 16777216.0 / 64});
  }
}

TEST_CASE("histogram: an edge belongs to the bin behind it, and what is just below to the one before") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64})
      for (const std::int64_t bins : {1, 37, 1000}) {
        CAPTURE(bins);
        const HistogramOptions range{.range = {{-0.7, 0.9}}};
        const Array edges = histogram(s.zeros({1}, {.dtype = dtype}), bins, range).edges;
        Ints want(static_cast<std::size_t>(bins), 1);
        ++want.back();
        CHECK(histogram(edges, bins, range).counts.get<std::int64_t>() == want);
        const Array below = nextafter(edges, s.full({}, -1.0).astype(dtype));
        CHECK(histogram(below, bins, range).counts.get<std::int64_t>() ==
              Ints(static_cast<std::size_t>(bins), 1));  // the first of them is outside
        CHECK(digitize(below, edges).get<std::int64_t>() == s.arange(bins + 1).get<std::int64_t>());
      }
  }
}

TEST_CASE("digitize: bins below, or at and below") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array x = s.from_memory(Doubles{0.2, 6.4, 3, 1, -5, kNan}, {2, 3}, {.block = {1, 2}});
    const Array bins = s.from_memory(Doubles{0, 1, 2.5, 4, 10}, {5}, {.block = {2}});
    CHECK(digitize(x, bins).get<std::int64_t>() == Ints{1, 4, 3, 2, 0, 5});
    CHECK(digitize(x, bins, true).get<std::int64_t>() == Ints{1, 4, 3, 1, 0, 5});
    CHECK(digitize(x, bins).shape() == x.shape());
  }
}

TEST_CASE("an index outside fails the graph, a negative integer the call") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  std::string what;
  CHECK(code_of(
            [&] {
              put_add(s.zeros({3}), s.from_memory(Ints{0, 3}, {2}), s.ones({})).get<double>();
            },
            &what) == Errc::kOutOfRange);
  CHECK_MESSAGE(what.find("index 3 is out of bounds for axis 0 with size 3") != std::string::npos, what);
  CHECK(code_of([&] {
          add_at(s.zeros({3, 2}), {s.from_memory(Ints{-4}, {1}), s.zeros({1}, {.dtype = DType::kInt64})}, 1)
              .get<double>();
        }) == Errc::kOutOfRange);
  CHECK(code_of([&] { bincount(s.from_memory(Ints{2, -7, 1}, {3})); }, &what) == Errc::kOutOfRange);
  CHECK_MESSAGE(what.find("bincount: -7") != std::string::npos, what);
  CHECK(code_of([&] { bincount(s.from_memory(std::vector<std::uint64_t>{~std::uint64_t{0}}, {1})); }) ==
        Errc::kLimitExceeded);
  const Array odd = s.from_memory(Doubles{1, kNan}, {2}), far = s.from_memory(Doubles{1, kInf}, {2});
  CHECK(code_of([&] { histogram(odd); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("histogram: range from nan") != std::string::npos, what);
  CHECK(code_of([&] { histogram(far); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { histogram(s.full({2}, 1e300)); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("too narrow") != std::string::npos, what);
  CHECK(code_of([&] { histogram(odd, s.from_memory(Doubles{2, 1}, {2})); }, &what) == Errc::kInvalidArgument);
  CHECK_MESSAGE(what.find("below the one before") != std::string::npos, what);
  CHECK(code_of([&] { histogram(odd, s.from_memory(Doubles{kNan}, {1})); }) == Errc::kInvalidArgument);
  CHECK(sum(s.ones({3})).item<double>() == 3);  // the session goes on
}
