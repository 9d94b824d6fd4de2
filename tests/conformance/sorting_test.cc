// Order across blocks, against plain loops, on every form of cluster.
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

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// NaN last, equal ones in their order.
Ints sorted_indices(const Doubles& line, bool descending) {
  Ints index(line.size());
  std::iota(index.begin(), index.end(), 0);
  std::stable_sort(index.begin(), index.end(), [&](std::int64_t a, std::int64_t b) {
    const double x = line[static_cast<std::size_t>(a)], y = line[static_cast<std::size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return descending ? y < x : x < y;
  });
  return index;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Numbers that make life hard for whoever shares them out: of line position i, in blocks of `block`.
struct Pattern {
  const char* name;
  std::function<double(std::int64_t i, std::int64_t n, std::int64_t block)> at;
};
const Pattern kPatterns[] = {
    {"in order", [](auto i, auto, auto) { return static_cast<double>(i); }},
    {"backwards", [](auto i, auto n, auto) { return static_cast<double>(n - i); }},
    {"all equal", [](auto, auto, auto) { return 7.0; }},
    {"two values", [](auto i, auto, auto) { return i * 7919 % 3 == 0 ? -0.0 : 1.0; }},
    {"zeros of both signs", [](auto i, auto, auto) { return i % 2 == 0 ? 0.0 : -0.0; }},
    {"a period of the blocks' number",
     [](auto i, auto n, auto block) { return static_cast<double>(i % ((n + block - 1) / block)); }},
    {"each block a comb of the whole",
     [](auto i, auto n, auto block) {
       return static_cast<double>(i % block * ((n + block - 1) / block) + i / block);
     }},
    {"up and down", [](auto i, auto n, auto) { return static_cast<double>(std::min(i, n - i)); }},
    {"many NaN",
     [](auto i, auto, auto) { return i % 5 < 2 ? kNoNumber : static_cast<double>(i * 7919 % 1009); }},
    // In each block one card more than a whole round of them is small: the first column has as many too many as it can have.
    {"a card too many",
     [](auto i, auto n, auto block) {
       const std::int64_t blocks = (n + block - 1) / block, small = block / 2 / blocks * blocks + 1;
       return static_cast<double>(i % block * blocks + i / block) + (i % block < small ? 0 : 1e6);
     }},
};

void check_line(const Session& s, const Doubles& a, std::int64_t block) {
  const auto n = static_cast<std::int64_t>(a.size());
  const Array x = s.from_memory(a, {n}, {.block = {block}});
  for (const bool descending : {false, true}) {
    CAPTURE(descending);
    const Ints want = sorted_indices(a, descending);
    CHECK(argsort(x, 0, descending).get<std::int64_t>() == want);
    const Array sorted = sort(x, 0, descending);
    const Doubles got = sorted.get<double>();
    REQUIRE(got.size() == a.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      wrong += same(got[i], a[static_cast<std::size_t>(want[i])]) ? 0 : 1;
    CHECK(wrong == 0);
    // -0 before +0, or behind where the order falls.
    std::size_t zeros = 0;
    for (std::size_t i = 1; i < got.size(); ++i)
      if (got[i - 1] == 0 && got[i] == 0)
        zeros +=
            std::signbit(descending ? got[i - 1] : got[i]) && !std::signbit(descending ? got[i] : got[i - 1]);
    CHECK(zeros == 0);
  }
}

}  // namespace

TEST_CASE("sort, argsort and topk across blocks, NaN last, equal ones in their order") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const std::int64_t block : {1000, 100, 23, 7}) {
      CAPTURE(block);
      const std::int64_t n = 211;
      Doubles a = numbers(n, 2);
      for (std::size_t i = 5; i < a.size(); i += 31) a[i] = kNoNumber;
      a[17] = std::numeric_limits<double>::infinity();
      a[18] = -std::numeric_limits<double>::infinity();
      a[40] = -0.0;
      const Array x = s.from_memory(a, {n}, {.block = {block}});
      for (const bool descending : {false, true}) {
        const Ints want = sorted_indices(a, descending);
        CHECK(argsort(x, -1, descending).get<std::int64_t>() == want);
        const Doubles got = sort(x, 0, descending).get<double>();
        bool right = got.size() == a.size();
        for (std::size_t i = 0; right && i < got.size(); ++i)
          right = same(got[i], a[static_cast<std::size_t>(want[i])]);
        CHECK(right);
        for (const std::int64_t k : {0, 1, 6, 50, 211}) {
          const TopK best = topk(x, k, -1, descending);
          CHECK(best.indices.get<std::int64_t>() == Ints(want.begin(), want.begin() + k));
          CHECK(best.values.get<double>().size() == static_cast<std::size_t>(k));
        }
      }
    }
    // Along either axis of a ragged matrix seen transposed and sliced, and every dtype.
    const std::int64_t m = 26, n = 33;
    const Doubles b = numbers(m * n, 9);
    const Array y = s.from_memory(b, {m, n}, {.block = {8, 6}}).slice(0, 1).T();  // (33, 25)
    const Doubles down = sort(y, 0).get<double>(), across = sort(y, 1, true).get<double>();
    for (std::int64_t j = 0; j < m - 1; ++j) {
      Doubles line;
      for (std::int64_t i = 0; i < n; ++i) line.push_back(b[static_cast<std::size_t>((j + 1) * n + i)]);
      std::sort(line.begin(), line.end());
      for (std::int64_t i = 0; i < n; ++i)
        CHECK(down[static_cast<std::size_t>(i * (m - 1) + j)] == line[static_cast<std::size_t>(i)]);
    }
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 1; j < m - 1; ++j)
        CHECK(across[static_cast<std::size_t>(i * (m - 1) + j - 1)] >=
              across[static_cast<std::size_t>(i * (m - 1) + j)]);
    for (int t = 0; t < ir::kDTypeCount; ++t) {
      const DType dtype = static_cast<DType>(t);
      if (ir::is_complex(dtype)) continue;
      CAPTURE(std::string(name_of(dtype)));
      // Negative ones too, where there are any.
      const Array z = (ir::is_unsigned_integer(dtype) ? y + 11.0 : y).astype(dtype).reshape({-1});
      const Array flat = z.astype(DType::kFloat64);
      for (const bool descending : {false, true}) {
        const Ints want = sorted_indices(flat.get<double>(), descending);
        CHECK(argsort(z, 0, descending).get<std::int64_t>() == want);
        CHECK(sort(z, 0, descending).dtype() == dtype);
        CHECK(sort(z, 0, descending).astype(DType::kFloat64).get<double>() ==
              take(flat, s.from_memory(want, {33 * 25})).get<double>());
        const TopK best = topk(z, 9, 0, descending);
        CHECK(best.values.dtype() == dtype);
        CHECK(best.indices.get<std::int64_t>() == Ints(want.begin(), want.begin() + 9));
        CHECK(best.values.astype(DType::kFloat64).get<double>() ==
              take(flat, s.from_memory(Ints(want.begin(), want.begin() + 9), {9})).get<double>());
      }
    }
  }
}

TEST_CASE("topk along either axis of a matrix, NaN last, with the values it names") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 26, n = 33, k = 5;
    Doubles a = numbers(m * n, 9);
    for (std::size_t i = 3; i < a.size(); i += 41) a[i] = kNoNumber;
    for (std::int64_t i = 0; i < n; ++i)
      a[static_cast<std::size_t>(4 * n + i)] = i < 3 ? 1 : kNoNumber;  // fewer than k
    const Array x = s.from_memory(a, {m, n}, {.block = {8, 6}});
    for (const bool largest : {true, false})
      for (const int axis : {0, 1, -1, -2}) {
        CAPTURE(largest);
        CAPTURE(axis);
        const bool down = axis == 0 || axis == -2;
        const std::int64_t lines = down ? n : m, length = down ? m : n;
        const TopK best = topk(x, k, axis, largest);
        CHECK(best.values.shape() == (down ? Shape{k, n} : Shape{m, k}));
        // A line a row.
        const Doubles values = (down ? best.values.T() : best.values).get<double>();
        const Ints indices = (down ? best.indices.T() : best.indices).get<std::int64_t>();
        bool right = true;
        for (std::int64_t l = 0; l < lines; ++l) {
          Doubles line;
          for (std::int64_t i = 0; i < length; ++i)
            line.push_back(a[static_cast<std::size_t>(down ? i * n + l : l * n + i)]);
          const Ints want = sorted_indices(line, largest);
          for (std::int64_t i = 0; i < k; ++i) {
            const auto at = static_cast<std::size_t>(l * k + i);
            const std::int64_t from = want[static_cast<std::size_t>(i)];
            right &= indices[at] == from && same(values[at], line[static_cast<std::size_t>(from)]);
          }
        }
        CHECK(right);
      }
  }
}

TEST_CASE("whatever the data, each element comes to its block") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  for (const Pattern& pattern : kPatterns) {
    CAPTURE(pattern.name);
    // Blocks that divide by their number, that do not, and that are put together first; a last one that is short.
    for (const auto& [n, block] :
         {std::pair<std::int64_t, std::int64_t>{8000, 1000}, {7003, 1009}, {6017, 101}, {20'001, 2000}}) {
      CAPTURE(n);
      Doubles a;
      for (std::int64_t i = 0; i < n; ++i) a.push_back(pattern.at(i, n, block));
      check_line(s, a, block);
    }
  }
}

TEST_CASE("more blocks than a call reads one by one") {
  TestCluster cluster(kForms[1]);
  check_line(cluster.session, numbers(700'000, 11), 20'000);  // 35 of values and as many of numbers
}

// Columns are put in order before windows are cut out of them. Few different values: most neighbours are told apart by their numbers.
TEST_CASE("very many blocks") {
  TestCluster cluster(
      {"room", {.workers = 1, .host_devices = 2, .use_cuda = false, .memory_bytes = 1 << 30}});
  const std::int64_t blocks = 129, block = 272'000, n = (blocks - 1) * block + 1'000;
  std::vector<std::int8_t> a(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    a[static_cast<std::size_t>(i)] = static_cast<std::int8_t>((i * 2'654'435'761u >> 7) % 251 - 125);
  const Array x = cluster.session.from_memory(a, {n}, {.block = {block}});
  const Array order = argsort(x);
  REQUIRE(order.grid().block_count() == blocks);  // they were not put together
  const Ints got = order.get<std::int64_t>();
  REQUIRE(static_cast<std::int64_t>(got.size()) == n);
  std::vector<bool> seen(a.size());
  std::int64_t wrong = 0, again = 0, before = -1;
  for (const std::int64_t i : got) {
    if (i < 0 || i >= n) {
      ++wrong;
      continue;
    }
    const auto at = static_cast<std::size_t>(i);
    again += seen[at];
    seen[at] = true;
    if (before >= 0) {
      const std::int8_t last = a[static_cast<std::size_t>(before)];
      wrong += last > a[at] || (last == a[at] && before > i);
    }
    before = i;
  }
  CHECK(again == 0);
  CHECK(wrong == 0);
}

TEST_CASE("lines of matrices, of stacks, and of arrays that have no dimension to spare") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t lines = 6, n = 900;
    const Doubles a = numbers(lines * n, 21);
    Doubles want = a;
    for (std::int64_t l = 0; l < lines; ++l) std::sort(want.begin() + l * n, want.begin() + (l + 1) * n);
    const Array x = s.from_memory(a, {lines, n}, {.block = {4, 180}});
    const auto check = [&](const Array& given, int axis, const std::function<Array(const Array&)>& back) {
      CHECK(back(sort(given, axis)).get<double>() == want);
      CHECK(back(take_along_axis(given, argsort(given, axis), axis)).get<double>() == want);
    };
    check(x, 1, [](const Array& y) { return y; });
    check(x.T(), 0, [](const Array& y) { return y.T(); });
    const Array plain = x.T().reblock({180, 4});
    check(plain, 0, [](const Array& y) { return y.T(); });
    check(x.reshape({2, 3, n}).reblock({1, 2, 300}), -1, [&](const Array& y) {
      return y.reshape({lines, n});
    });
    const Array middle = moveaxis(x.reshape({2, 3, n}), 2, 1).reblock({2, 300, 2});
    check(middle, 1, [&](const Array& y) { return moveaxis(y, 1, 2).reshape({lines, n}); });
    // Blocks that are short, and have many lines.
    check(x.reblock({6, 20}), 1, [](const Array& y) { return y; });
    const Array deep = x.reshape({1, 2, 1, 3, 1, n, 1, 1}).reblock({1, 1, 1, 2, 1, 300, 1, 1});
    check(deep, 5, [&](const Array& y) { return y.reshape({lines, n}); });
  }
}

TEST_CASE("blocks merged by hand stay inside their lines, be they sorted or not") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const Array x = s.from_memory(Doubles{0, 0, 5, 5, 9, 9, 1, 1}, {2, 4}, {.block = {1, 4}});
  const Kernel merge{.name = "tilewise.merge_runs", .version = "1", .params = std::string(56, '\0')};
  const auto merged = [&](std::int64_t length) {
    return task(merge, {{x, 0}, {x, 1}}, DType::kFloat64, {length}).get<double>();
  };
  Doubles all = merged(8);  // unsorted: in some order
  std::sort(all.begin(), all.end());
  CHECK(all.front() >= 0);
  CHECK(all.back() <= 9);
  std::string what;
  CHECK(code_of([&] { merged(1000); }, &what) == Errc::kTaskFailed);
  CHECK_MESSAGE(what.find("the runs do not have the ranks") != std::string::npos, what);
  const Kernel sort{.name = "tilewise.sort_block", .version = "1", .params = std::string(16, '\0')};
  CHECK(code_of([&] { task(sort, {}, DType::kFloat64, {4}).get<double>(); }) != Errc::kOk);
}
