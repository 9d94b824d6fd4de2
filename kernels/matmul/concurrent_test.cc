#include <doctest/doctest.h>
#include <tilewise/kernels/kernels.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

using namespace tilewise;

namespace {

// Integers in float64, so that any order of sums gives the same bits. True if every product was right.
bool products_are_right(kernels::KernelSet& set, const ir::Op& op, unsigned seed, int rounds) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t m = 1 + below(40), k = 1 + below(40), n = 1 + below(40);
    const bool a_turned = below(2) == 1, b_turned = below(2) == 1;
    std::vector<double> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
    std::vector<double> c(static_cast<std::size_t>(m * n));
    for (double& v : a) v = static_cast<double>(below(7)) - 3;
    for (double& v : b) v = static_cast<double>(below(7)) - 3;
    const auto a_at = [&](std::int64_t i, std::int64_t p) {
      return a[static_cast<std::size_t>(a_turned ? p * m + i : i * k + p)];
    };
    const auto b_at = [&](std::int64_t p, std::int64_t j) {
      return b[static_cast<std::size_t>(b_turned ? j * k + p : p * n + j)];
    };
    kernels::KernelCall call;
    call.op = &op;
    call.box = ir::box_of({m, n});
    call.space_shape = {m, n};
    call.inputs.push_back(
        {a.data(), ir::DType::kFloat64, {m, k}, a_turned ? ir::Strides{1, m} : ir::Strides{k, 1}});
    call.inputs.push_back(
        {b.data(), ir::DType::kFloat64, {k, n}, b_turned ? ir::Strides{1, k} : ir::Strides{n, 1}});
    call.outputs.push_back({c.data(), ir::DType::kFloat64, {m, n}, {n, 1}});
    if (set.run(call).has_error()) return false;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double want = 0;
        for (std::int64_t p = 0; p < k; ++p) want += a_at(i, p) * b_at(p, j);
        if (c[static_cast<std::size_t>(i * n + j)] != want) return false;
      }
    }
  }
  return true;
}

}  // namespace

// OpenBLAS's serial build fails this without BlasTurn in about two of three runs.
TEST_CASE("products of several executors at once do not disturb each other") {
  const auto set = kernels::make_host_kernels(nullptr);
  ir::Op op;
  op.kind = ir::OpKind::kMatmul;
  op.attrs = ir::MatmulAttrs{};
  std::atomic<int> right{0};
  std::vector<std::thread> executors;
  for (unsigned i = 0; i < 6; ++i) {
    executors.emplace_back([&, i] { right += products_are_right(*set, op, i, 10'000) ? 1 : 0; });
  }
  for (std::thread& executor : executors) executor.join();
  CHECK(right == 6);
}
