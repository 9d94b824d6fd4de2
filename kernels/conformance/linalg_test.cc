// Linear algebra of single blocks: the host's beside plain loops in long double, stacks of any layout.
#include <tilewise/ir/linalg.h>
#include <tilewise/kernels/plugin.h>

#include <cmath>

#include "conformance/calls.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;

struct Factorising {
  Factorising() { REQUIRE(table.add(builtin_kernels()).has_value()); }
  PluginTable table;
  std::unique_ptr<KernelSet> host = make_host_kernels(&table);
  std::unique_ptr<device::Device> device =
      device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 28});
  Subject subject{.kernels = *host, .device = *device};
  Prng prng{61};
};

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128};
double epsilon(DType t) { return ir::real_dtype(t) == DType::kFloat32 ? 0x1p-23 : 0x1p-52; }

ir::Shape with(ir::Shape stack, std::int64_t m, std::int64_t n) {
  stack.push_back(m), stack.push_back(n);
  return stack;
}
// In memory by rows, by columns, or with gaps; nothing twice. A diagonal of `more` beside numbers in (-1, 1).
Array random(Prng& prng, DType t, const ir::Shape& shape, double more = 0) {
  Array a = Array::contiguous(t, shape);
  const std::size_t rank = shape.size();
  if (prng.chance(0.5)) {
    std::swap(a.strides[rank - 1], a.strides[rank - 2]);
    a.strides[rank - 1] = shape[rank - 2];
    a.strides[rank - 2] = 1;
  }
  if (prng.chance(0.3)) {
    for (std::int64_t& s : a.strides) s *= 2;
    a.bytes.resize(2 * a.bytes.size());
  }
  const std::int64_t m = shape[rank - 2], n = shape[rank - 1];
  for (std::int64_t e = 0; e < a.volume(); ++e) {
    const bool diagonal = e % (m * n) / n == e % n;
    a.set(e, prng.uniform() * 2 - 1 + (diagonal ? more : 0), 0,
          diagonal && more > 0 ? 0 : prng.uniform() * 2 - 1);
  }
  return a;
}

// Outputs as near to the reference's as `limit` times the largest number of each.
void check(const Factorising& setup, const char* kernel, std::vector<Array> inputs,
           std::vector<Array> outputs, double limit, std::uint32_t flags = 0, std::int64_t off_diagonal = 0,
           std::vector<Array>* results = nullptr) {
  const DType t = inputs[0].dtype;
  const ir::Shape space = outputs[0].shape;
  Step step = kernel_step(kernel, ir::linalg::params("check", flags).bytes(), space, std::move(inputs),
                          std::move(outputs));
  step.output_boxes = {ir::box_of(step.outputs[0].shape)};
  step.output_boxes[0].lo.back() += off_diagonal, step.output_boxes[0].hi.back() += off_diagonal;
  Step want = step;
  run(setup.subject, step);
  run_reference(want);
  for (std::size_t o = 0; o < want.outputs.size(); ++o) {
    const Array &got = step.outputs[o], &plain = want.outputs[o];
    double scale = 1, worst = 0;
    for (std::int64_t e = 0; e < plain.volume(); ++e) {
      scale = std::max(scale, std::hypot(plain.as_double(e), plain.imaginary(e)));
      const double off =
          std::hypot(got.as_double(e) - plain.as_double(e), got.imaginary(e) - plain.imaginary(e));
      worst = std::isfinite(off) ? std::max(worst, off) : HUGE_VAL;
    }
    CHECK_MESSAGE(worst <= limit * epsilon(t) * scale,
                  std::string(kernel)
                      << " of " << ir::name_of(t) << " " << ir::to_string(space) << ", output " << o << ": "
                      << worst / epsilon(t) / scale << " epsilon, not " << limit);
  }
  if (results != nullptr) *results = step.outputs;
}

// Definite, Hermitian; its other triangle is not read.
Array definite(Prng& prng, DType t, const ir::Shape& stack, std::int64_t n) {
  return random(prng, t, with(stack, n, n), 2 * static_cast<double>(n));
}

}  // namespace

TEST_CASE("equations, determinants, triangles and updates of single blocks") {
  Factorising s;
  for (int round = 0; round < 120; ++round) {
    const DType t = kDTypes[round % 4];
    ir::Shape stack;
    for (std::uint64_t d = s.prng.below(3); d > 0; --d) stack.push_back(s.prng.between(1, 3));
    const std::int64_t n = s.prng.between(1, 24), k = s.prng.between(1, 9), m = s.prng.between(1, 24);
    const double limit = 40 * static_cast<double>(n);
    check(s, "tilewise.cholesky", {definite(s.prng, t, stack, n)}, {result(t, with(stack, n, n))}, limit);
    const Array a = random(s.prng, t, with(stack, n, n), 4);
    check(s, "tilewise.solve", {a, random(s.prng, t, with(stack, n, k))}, {result(t, with(stack, n, k))},
          50 * limit);
    const ir::Shape one = with(stack, 1, 1);
    check(s, "tilewise.det", {a}, {result(t, one), result(ir::real_dtype(t), one), result(t, one)},
          50 * limit);
    const std::uint32_t upper = s.prng.chance(0.5) ? ir::linalg::kUpper : 0,
                        conjugate = s.prng.chance(0.5) ? ir::linalg::kConjugate : 0;
    check(
        s, "tilewise.trsm",
        {random(s.prng, t, with(stack, n, n), static_cast<double>(n)), random(s.prng, t, with(stack, n, k))},
        {result(t, with(stack, n, k))}, 10 * limit, upper | conjugate);
    std::vector<Array> in{random(s.prng, t, with(stack, m, k)), random(s.prng, t, with(stack, k, n))};
    if (s.prng.chance(0.5)) in.insert(in.begin(), random(s.prng, t, with(stack, m, n)));
    const bool lower = s.prng.chance(0.3);
    check(s, "tilewise.update", std::move(in), {result(t, with(stack, m, n))}, 20 * static_cast<double>(k),
          conjugate | (lower ? ir::linalg::kLower : 0), lower ? s.prng.between(0, 1) * m : 0);
  }
}

TEST_CASE("elimination of some columns, and of the others by it") {
  Factorising s;
  for (int round = 0; round < 80; ++round) {
    const DType t = kDTypes[round % 4];
    ir::Shape stack;
    if (s.prng.chance(0.4)) stack.push_back(s.prng.between(1, 3));
    const std::int64_t k = s.prng.between(1, 9), m = k + s.prng.between(0, 12), n = s.prng.between(1, 9);
    std::vector<Array> panel;
    check(s, "tilewise.lu_panel", {random(s.prng, t, with(stack, m, k))},
          {result(t, with(stack, m, k)), result(DType::kInt64, with(stack, m, 1)),
           result(t, with(stack, 1, 1))},
          400, 0, 0, &panel);
    std::vector<Array> outputs{result(t, with(stack, k, n))};
    if (m > k) outputs.push_back(result(t, with(stack, m - k, n)));
    check(s, "tilewise.lu_update", {panel[0], panel[1], random(s.prng, t, with(stack, m, n))},
          std::move(outputs), 400);
  }
}

TEST_CASE("reflectors: of matrices tall and wide, applied to what has as many rows, fewer and more") {
  Factorising s;
  for (int round = 0; round < 160; ++round) {
    const DType t = kDTypes[round % 4];
    ir::Shape stack;
    if (s.prng.chance(0.4)) stack.push_back(s.prng.between(1, 3));
    // Past 32 columns LAPACK applies reflectors in blocks.
    const std::int64_t m = s.prng.between(1, s.prng.chance(0.2) ? 150 : 30),
                       n = s.prng.between(1, s.prng.chance(0.2) ? 90 : 30), k = std::min(m, n);
    const double limit = 60 * static_cast<double>(std::max(m, n));
    const Array a = random(s.prng, t, with(stack, m, n));
    const std::int64_t c = s.prng.chance(0.5) ? k : std::max(m, n);
    check(s, "tilewise.qr", {a}, {result(t, with(stack, m, c)), result(t, with(stack, c, n))}, 10 * limit);
    const std::int64_t more = s.prng.between(0, 3);
    std::vector<Array> f;
    check(s, "tilewise.geqrf", {a},
          {result(t, a.shape), result(t, with(stack, k + more, 1)), result(t, with(stack, k + more, n))},
          10 * limit, 0, 0, &f);
    const std::int64_t p = s.prng.chance(0.4) ? m : s.prng.between(1, m + 5),
                       q = s.prng.chance(0.4) ? m : s.prng.between(1, m + 5), right = s.prng.between(1, 40);
    for (const std::uint32_t adjoint : {std::uint32_t{0}, ir::linalg::kAdjoint})
      check(s, "tilewise.ormqr", {f[0], f[1], random(s.prng, t, with(stack, p, right))},
            {result(t, with(stack, q, right))}, limit, adjoint);
  }
}

// Q^H Q C is C, and Q R is A: the two directions undo each other, and mean the Q that qr forms.
TEST_CASE("reflectors that are applied there and back change nothing") {
  Factorising s;
  for (int round = 0; round < 40; ++round) {
    const DType t = kDTypes[round % 4];
    const std::int64_t m = s.prng.between(1, 60), n = s.prng.between(1, 40), k = std::min(m, n);
    const Array a = random(s.prng, t, {m, n}), c = random(s.prng, t, {m, 7});
    const auto call = [&](const char* kernel, std::vector<Array> in, std::vector<Array> out,
                          std::uint32_t flags = 0) {
      const ir::Shape space = out[0].shape;
      Step step = kernel_step(kernel, ir::linalg::params("check", flags).bytes(), space, std::move(in),
                              std::move(out));
      run(s.subject, step);
      return step.outputs;
    };
    const auto near = [&](const Array& got, const Array& want) {
      for (std::int64_t e = 0; e < want.volume(); ++e)
        REQUIRE(std::hypot(got.as_double(e) - want.as_double(e), got.imaginary(e) - want.imaginary(e)) <=
                60 * static_cast<double>(m) * epsilon(t));
    };
    const auto f = call("tilewise.geqrf", {a}, {result(t, {m, n}), result(t, {k, 1}), result(t, {k, n})});
    near(call("tilewise.ormqr", {f[0], f[1], f[2]}, {result(t, {m, n})})[0], a);
    const auto there = call("tilewise.ormqr", {f[0], f[1], c}, {result(t, {m, 7})});
    near(call("tilewise.ormqr", {f[0], f[1], there[0]}, {result(t, {m, 7})}, ir::linalg::kAdjoint)[0], c);
  }
}

}  // namespace tilewise::kernels::conformance
