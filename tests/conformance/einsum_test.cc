// Sums of products by letters, against loops over all letters, on every form of cluster.
#include <doctest/doctest.h>

#include <algorithm>
#include <complex>
#include <map>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;

struct Case {
  std::string terms, result;  // without dots
  std::vector<Shape> shapes;
};

// Whole numbers, so that every order of additions has the same bits.
Doubles plain_einsum(const Case& c, const std::vector<Doubles>& values) {
  std::vector<std::string> terms(1);
  for (const char ch : c.terms)
    if (ch == ',')
      terms.emplace_back();
    else
      terms.back().push_back(ch);
  std::map<char, std::int64_t> extents, at;
  for (std::size_t i = 0; i < terms.size(); ++i)
    for (std::size_t d = 0; d < terms[i].size(); ++d) {
      std::int64_t& n = extents.try_emplace(terms[i][d], 1).first->second;
      if (c.shapes[i][d] != 1) n = c.shapes[i][d];
    }
  std::string order = c.result;  // these outermost
  for (const auto& [label, n] : extents)
    if (order.find(label) == std::string::npos) order.push_back(label);
  std::int64_t results = 1, all = 1;
  for (const char label : c.result) results *= extents[label];
  for (const auto& [label, n] : extents) all *= n;
  Doubles out(static_cast<std::size_t>(results), 0);
  for (std::int64_t e = 0; e < all; ++e) {
    std::int64_t rest = e;
    for (auto label = order.rbegin(); label != order.rend(); ++label)
      at[*label] = rest % extents[*label], rest /= extents[*label];
    double product = 1;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      std::int64_t place = 0;
      for (std::size_t d = 0; d < terms[i].size(); ++d) {
        const std::int64_t n = c.shapes[i][d];
        place = place * n + (n == 1 ? 0 : at[terms[i][d]]);
      }
      product *= values[i][static_cast<std::size_t>(place)];
    }
    out[static_cast<std::size_t>(e / (all / results))] += product;
  }
  return out;
}

Array cut(const Session& s, const Doubles& values, const Shape& shape, std::int64_t block) {
  Shape blocks = shape;
  for (std::int64_t& n : blocks) n = std::min(std::max<std::int64_t>(1, n), block++);
  return s.from_memory(values, shape, {.block = blocks});
}

}  // namespace

TEST_CASE("einsum: products, sums, diagonals, stacks, broadcasting, several operands") {
  const std::vector<Case> cases = {
      {"ij,jk", "ik", {{5, 7}, {7, 4}}},
      {"ij,jk", "ki", {{5, 7}, {7, 4}}},
      {"ij,kj", "ik", {{5, 7}, {4, 7}}},
      {"bij,bjk", "bik", {{3, 4, 5}, {3, 5, 2}}},
      {"bij,bkj", "kbi", {{3, 4, 5}, {3, 2, 5}}},
      {"abij,abjk", "abik", {{2, 3, 4, 5}, {2, 3, 5, 2}}},
      {"bijk,bkjl", "bil", {{3, 2, 4, 5}, {3, 5, 4, 2}}},
      {"i,i", "", {{30}, {30}}},
      {"i,j", "ij", {{6}, {9}}},
      {"i,i", "i", {{6}, {6}}},
      {"ij,ij", "i", {{6, 8}, {6, 8}}},
      {"ij", "ji", {{6, 8}}},
      {"ij", "j", {{6, 8}}},
      {"ij", "", {{6, 8}}},
      {"ii", "i", {{7, 7}}},
      {"ii", "", {{7, 7}}},
      {"iji", "j", {{4, 5, 4}}},
      {"iii", "i", {{4, 4, 4}}},
      {"iijj", "ij", {{3, 3, 4, 4}}},
      {"ii,i", "i", {{5, 5}, {5}}},
      {"ij,jk,kl", "il", {{4, 6}, {6, 3}, {3, 5}}},
      {"ij,jk,ki", "", {{4, 6}, {6, 3}, {3, 4}}},
      {"ij,ik,il", "jkl", {{4, 2}, {4, 3}, {4, 5}}},
      {"i,ij,j", "", {{5}, {5, 6}, {6}}},
      {"a,b,c,d", "dbca", {{2}, {3}, {2}, {4}}},
      {"ij,jk", "ik", {{5, 1}, {7, 4}}},           // an extent of 1 broadcasts
      {"bij,bjk", "bik", {{1, 4, 5}, {3, 5, 2}}},  // a stack of one
      {"ij,ij", "ij", {{6, 1}, {1, 8}}},
      {"ij,jk", "ik", {{5, 0}, {0, 4}}},
      {"ij,jk", "ik", {{0, 3}, {3, 4}}},
      {"abcdefgh,hgfedcba", "ac", {{2, 1, 2, 1, 2, 1, 2, 2}, {2, 2, 1, 2, 1, 2, 1, 2}}},
      {"abcdefgh,abcdefgh", "abcdefg", {{2, 1, 2, 1, 2, 1, 2, 2}, {2, 1, 2, 1, 2, 1, 2, 2}}},
  };
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const Case& c : cases) {
      CAPTURE(c.terms);
      CAPTURE(c.result);
      std::vector<Doubles> values;
      std::vector<Array> whole, small;
      for (std::size_t i = 0; i < c.shapes.size(); ++i) {
        values.push_back(numbers(ir::volume(c.shapes[i]), static_cast<int>(i) + 3));
        whole.push_back(s.from_memory(values[i], c.shapes[i]));
        small.push_back(cut(s, values[i], c.shapes[i], 2));
      }
      const Doubles want = plain_einsum(c, values);
      CHECK(einsum(c.terms + "->" + c.result, whole).get<double>() == want);
      CHECK(einsum(c.terms + "->" + c.result, small).get<double>() == want);
      for (Array& a : small) a = a.astype(DType::kInt32);
      CHECK(einsum(c.terms + "->" + c.result, small).astype(DType::kFloat64).get<double>() == want);
    }
  }
}

TEST_CASE("einsum: dots, results that are implied, complex numbers and 16-bit floats") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Doubles a = numbers(2 * 3 * 4, 1), b = numbers(2 * 4 * 5, 2);
    const Array x = cut(s, a, {2, 3, 4}, 2), y = cut(s, b, {2, 4, 5}, 2);
    const Doubles product = matmul(x, y).get<double>();
    CHECK(einsum("...ij,...jk->...ik", {x, y}).get<double>() == product);
    CHECK(einsum("...ij,...jk", {x, y}).get<double>() == product);
    CHECK(einsum("hij,...jk", {x.slice(1, 0, 1), y.slice(0, 0, 1)}).shape() == Shape{1, 2, 1, 5});
    CHECK(einsum("...,...", {x, y.at(2, 0).at(0, 0)}).get<double>() ==
          (x * y.at(2, 0).at(0, 0)).get<double>());
    CHECK(einsum("i...->...", {x}).get<double>() == sum(x, 0).get<double>());
    CHECK(einsum("i...j->j...i", {x}).get<double>() == x.T().get<double>());
    CHECK(einsum("ba", {x.at(0, 0)}).get<double>() == x.at(0, 0).T().get<double>());
    CHECK(einsum("ij,jh", {x.at(0, 0), y.at(0, 0)}).get<double>() ==
          matmul(x.at(0, 0), y.at(0, 0)).T().get<double>());  // h before i
    const Array z = complex(x, x * 2.0), w = complex(y, y * -1.0);
    CHECK(einsum("aij,bjk->aik", {z, w.slice(0, 0, 1)}).get<std::complex<double>>() ==
          matmul(z, w.at(0, 0)).get<std::complex<double>>());
    // The sum of many products of 16-bit floats is rounded once.
    const Array half = s.ones({3000}, {.dtype = DType::kFloat16, .block = {700}});
    CHECK(einsum("i,i->", {half, half}).astype(DType::kFloat64).item<double>() == 3000);
    CHECK(einsum("i,i,i->", {half, half, half}).astype(DType::kFloat64).item<double>() == 3000);
    CHECK(einsum("i->", {half}).astype(DType::kFloat64).item<double>() == 3000);
    CHECK(einsum("i,i,i->", {half, half, half}).dtype() == DType::kFloat16);
    const Array bytes = s.full({300}, 3, {.dtype = DType::kInt64}).astype(DType::kUInt8);
    CHECK(einsum("i,i->", {bytes, bytes}).item<std::uint8_t>() == (2700 & 255));  // integers wrap
  }
}
