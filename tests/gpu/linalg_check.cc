// Linear algebra on CUDA: what is unique is compared with the host's, decompositions with their definitions; then blocks of
// cut matrices and errors through the whole engine.
#include <doctest/doctest.h>
#include <tilewise/embedded/cluster.h>
#include <tilewise/ir/linalg.h>
#include <tilewise/tilewise.h>

#include <cmath>
#include <complex>
#include <limits>
#include <utility>

#include "pair.h"

namespace tilewise::gpu {
namespace {

using ir::DType;
using Number = std::complex<double>;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128};

double epsilon(DType t) { return ir::real_dtype(t) == DType::kFloat32 ? 0x1p-23 : 0x1p-52; }

// One matrix of a stack in plain numbers.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<Number> values;

  Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  Matrix(const Array& a, std::int64_t number)
      : Matrix(a.shape[a.shape.size() - 2], a.shape[a.shape.size() - 1]) {
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t e = number * rows * columns + i;
      values[static_cast<std::size_t>(i)] = {a.as_double(e), ir::is_complex(a.dtype) ? a.imaginary(e) : 0};
    }
  }
  Number& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  Number at(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  Matrix adjoint() const {
    Matrix out(columns, rows);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) out.at(j, i) = std::conj(at(i, j));
    return out;
  }
};
Matrix operator*(const Matrix& a, const Matrix& b) {
  REQUIRE(a.columns == b.rows);
  Matrix out(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j) out.at(i, j) += a.at(i, k) * b.at(k, j);
  return out;
}
Matrix identity(std::int64_t n) {
  Matrix out(n, n);
  for (std::int64_t i = 0; i < n; ++i) out.at(i, i) = 1;
  return out;
}
double off(const Matrix& a, const Matrix& b) {
  REQUIRE(a.rows == b.rows);
  REQUIRE(a.columns == b.columns);
  double worst = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    worst = std::max(worst, std::abs(a.values[i] - b.values[i]));
  return std::isfinite(worst) ? worst : HUGE_VAL;
}

Array result(DType t, const ir::Shape& shape) {
  Array a = Array::contiguous(t, shape);
  for (std::byte& b : a.bytes) b = std::byte{0x5A};
  return a;
}
Array random(Prng& prng, DType t, const ir::Shape& shape) {
  Array a = kernels::conformance::random_layout(prng, t, shape, prng.chance(0.3));
  for (std::int64_t e = 0; e < a.volume(); ++e)
    a.set(e, prng.uniform() * 2 - 1, 0, ir::is_complex(t) ? prng.uniform() * 2 - 1 : 0);
  return a;
}
void put(Array& a, std::int64_t number, const Matrix& m) {
  for (std::int64_t i = 0; i < m.rows * m.columns; ++i) {
    const Number v = m.values[static_cast<std::size_t>(i)];
    a.set(number * m.rows * m.columns + i, v.real(), 0, v.imag());
  }
}
// Hermitian and positive definite, one a matrix of the stack; contiguous, or stored turned.
Array definite(Prng& prng, DType t, const ir::Shape& stack, std::int64_t n) {
  ir::Shape shape = stack;
  shape.push_back(n), shape.push_back(n);
  Array a = Array::contiguous(t, shape);
  for (std::int64_t i = 0; i < ir::volume(stack); ++i) {
    const Matrix m(random(prng, t, {n, n}), 0);
    Matrix p = m * m.adjoint();
    for (std::int64_t d = 0; d < n; ++d) p.at(d, d) += 1.0;
    put(a, i, p);
  }
  return a;
}

struct LinalgPair : Pair {
  explicit LinalgPair(Prng& p) : prng(p) {}
  Prng& prng;

  Step step(const char* kernel, std::vector<Array> inputs, std::vector<Array> outputs,
            std::uint32_t flags = 0) {
    const ir::Shape space = outputs.front().shape;
    return kernel_step(kernel, ir::linalg::params("check", flags, 0).bytes(), space, std::move(inputs),
                       std::move(outputs));
  }
  // The host's outputs; the GPU's are left in `s`. Both alike within `limit`.
  void agree(Step& s, double limit, const std::string& what) {
    Step want = s;
    run(gpu, s);
    run(cpu, want);
    for (std::size_t o = 0; o < s.outputs.size(); ++o)
      for (std::int64_t i = 0; i < stacked(s.outputs[o]); ++i) {
        const Matrix got(s.outputs[o], i), host(want.outputs[o], i);
        double scale = 1;
        for (const Number& v : host.values) scale = std::max(scale, std::abs(v));
        const double worst = off(got, host);
        CHECK_MESSAGE(worst <= limit * scale, what << ", output " << o << ", matrix " << i << ": " << worst);
      }
  }
  static std::int64_t stacked(const Array& a) {
    return a.volume() / std::max<std::int64_t>(1, a.shape[a.shape.size() - 2] * a.shape.back());
  }
};

ir::Shape with(ir::Shape stack, std::int64_t m, std::int64_t n) {
  stack.push_back(m), stack.push_back(n);
  return stack;
}

// Compiled together where that is cheaper (conformance_check.cc).
void prepare_all(LinalgPair& pair) {
  for (const DType t : kDTypes) {
    const Array a = Array::contiguous(t, {2, 2}), w = Array::contiguous(ir::real_dtype(t), {2, 1});
    must(pair.cuda->prepare(pair.step("tilewise.cholesky", {a}, {a}).op), "cholesky");
    must(pair.cuda->prepare(pair.step("tilewise.qr", {a}, {a, a}).op), "qr");
    must(pair.cuda->prepare(pair.step("tilewise.eigh", {a}, {w, a}).op), "eigh");
  }
}

void equations(LinalgPair& pair, DType t, const ir::Shape& stack, std::int64_t n) {
  Prng& prng = pair.prng;
  const std::int64_t k = prng.between(1, 5);
  const std::string what = std::string(name_of(t)) + ir::to_string(with(stack, n, n));
  const double limit = 200 * static_cast<double>(n) * epsilon(t);
  const Array p = definite(prng, t, stack, n);
  Step cholesky = pair.step("tilewise.cholesky", {p}, {result(t, p.shape)});
  pair.agree(cholesky, limit, "cholesky of " + what);
  Step solve =
      pair.step("tilewise.solve", {p, random(prng, t, with(stack, n, k))}, {result(t, with(stack, n, k))});
  pair.agree(solve, limit * static_cast<double>(n), "solve of " + what);
  const ir::Shape one = with(stack, 1, 1);
  Step det = pair.step("tilewise.det", {random(prng, t, with(stack, n, n))},
                       {result(t, one), result(ir::real_dtype(t), one), result(t, one)});
  pair.agree(det, limit * static_cast<double>(n), "det of " + what);
  Array& a = det.inputs[0];  // a row of zeros
  for (std::int64_t i = 0; i < LinalgPair::stacked(a); ++i) {
    Matrix m(a, i);
    for (std::int64_t c = 0; c < n; ++c) m.at(n / 2, c) = 0;
    put(a, i, m);
  }
  run(pair.gpu, det);
  for (std::int64_t i = 0; i < LinalgPair::stacked(a); ++i) {
    CHECK(Matrix(det.outputs[0], i).at(0, 0) == 0.0);
    CHECK(Matrix(det.outputs[1], i).at(0, 0).real() == -HUGE_VAL);
    CHECK(Matrix(det.outputs[2], i).at(0, 0) == 0.0);
  }
  // A triangle whose diagonal is not small; the other triangle is not read.
  for (const bool upper : {false, true})
    for (const bool conjugated : {false, true}) {
      Array a = random(prng, t, with(stack, n, n));
      for (std::int64_t i = 0; i < LinalgPair::stacked(a); ++i) {
        Matrix m(a, i);
        for (std::int64_t r = 0; r < n; ++r)
          for (std::int64_t c = 0; c < n; ++c)
            m.at(r, c) = r == c ? m.at(r, c) + 3.0 : m.at(r, c) / static_cast<double>(n);
        put(a, i, m);
      }
      Step trsm =
          pair.step("tilewise.trsm", {a, random(prng, t, with(stack, n, k))}, {result(t, with(stack, n, k))},
                    (upper ? ir::linalg::kUpper : 0) | (conjugated ? ir::linalg::kConjugate : 0));
      pair.agree(trsm, limit, "trsm of " + what);
    }
}

void updates(LinalgPair& pair, DType t, const ir::Shape& stack, std::int64_t n) {
  Prng& prng = pair.prng;
  const std::int64_t m = prng.between(1, n + 3), k = prng.between(1, n);
  const double limit = 20 * static_cast<double>(k) * epsilon(t);
  for (const bool plus : {false, true})
    for (const bool conjugated : {false, true}) {
      std::vector<Array> in{random(prng, t, with(stack, m, k)), random(prng, t, with(stack, k, n))};
      if (plus) in.insert(in.begin(), random(prng, t, with(stack, m, n)));
      Step update = pair.step("tilewise.update", std::move(in), {result(t, with(stack, m, n))},
                              conjugated ? ir::linalg::kConjugate : 0);
      pair.agree(update, limit, "update of " + std::string(name_of(t)) + ir::to_string(with(stack, m, n)));
    }
  // One that begins on the diagonal is zero above it.
  Step on = pair.step("tilewise.update",
                      {random(prng, t, {n, n}), random(prng, t, {n, k}), random(prng, t, {k, n})},
                      {result(t, {n, n})}, ir::linalg::kLower);
  pair.agree(on, limit, "an update on the diagonal");
  // A block above the diagonal is zero.
  Step above = pair.step("tilewise.update", {random(prng, t, {3, k}), random(prng, t, {k, n})},
                         {result(t, {3, n})}, ir::linalg::kLower);
  above.output_boxes = {ir::box_of({3, n})};
  above.output_boxes[0].lo[1] += 7, above.output_boxes[0].hi[1] += 7;
  pair.agree(above, 0, "an update above the diagonal");
}

// The factors of some columns with their exchanges, then what they leave of others.
void eliminations(LinalgPair& pair, DType t, const ir::Shape& stack, std::int64_t m, std::int64_t k) {
  Prng& prng = pair.prng;
  const std::int64_t n = prng.between(1, 7);
  const double limit = 400 * static_cast<double>(m) * epsilon(t);
  const std::string what = std::string(name_of(t)) + ir::to_string(with(stack, m, k));
  Array a = Array::contiguous(t, with(stack, m, k));  // other layouts may repeat rows
  for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, prng.uniform() * 2 - 1, 0, prng.uniform() * 2 - 1);
  const auto fresh = [&] {
    return std::vector<Array>{result(t, a.shape), result(DType::kInt64, with(stack, m, 1)),
                              result(t, with(stack, 1, 1))};
  };
  Step panel = pair.step("tilewise.lu_panel", {a}, fresh());
  pair.agree(panel, limit, "LU of " + what);
  std::vector<Array> out{result(t, with(stack, k, n))};
  if (m > k) out.push_back(result(t, with(stack, m - k, n)));
  Step update =
      pair.step("tilewise.lu_update",
                {panel.outputs[0], panel.outputs[1], random(prng, t, with(stack, m, n))}, std::move(out));
  pair.agree(update, 10 * limit, "what LU leaves of " + what);
  for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, 0, 0);
  Step none = pair.step("tilewise.lu_panel", {a}, fresh(), ir::linalg::kSingularToo);
  pair.agree(none, 0, "LU of zeros");
}

void decompositions(LinalgPair& pair, DType t, const ir::Shape& stack, std::int64_t m, std::int64_t n) {
  Prng& prng = pair.prng;
  const std::int64_t k = std::min(m, n);
  const double limit = 100 * static_cast<double>(std::max(m, n)) * epsilon(t);
  const Array a = random(prng, t, with(stack, m, n));
  const auto near = [&](const Matrix& got, const Matrix& want, const std::string& what) {
    const double worst = off(got, want);
    CHECK_MESSAGE(worst <= limit, what << " of " << name_of(t) << " " << m << " x " << n << ": " << worst);
  };
  // Reduced, complete, and one with more columns than rows that a tree of factorisations asks for.
  for (const std::int64_t q : {k, m, std::max(m, n)}) {
    Step qr = pair.step("tilewise.qr", {a}, {result(t, with(stack, m, q)), result(t, with(stack, q, n))});
    run(pair.gpu, qr);
    for (std::int64_t i = 0; i < LinalgPair::stacked(a); ++i) {
      const Matrix left(qr.outputs[0], i), right(qr.outputs[1], i);
      near(left * right, Matrix(a, i), "Q R");
      const Matrix gram = left.adjoint() * left;
      Matrix want = identity(q);
      for (std::int64_t d = m; d < q; ++d) want.at(d, d) = 0;  // there are no more than m
      near(gram, want, "Q^H Q");
      Matrix lower = right;
      for (std::int64_t r = 0; r < q; ++r)
        for (std::int64_t c = r; c < n; ++c) lower.at(r, c) = 0;
      CHECK(off(lower, Matrix(q, n)) == 0);
    }
  }
  Step values = pair.step("tilewise.svd", {a}, {result(ir::real_dtype(t), with(stack, k, 1))});
  pair.agree(values, limit, "singular values");
  for (const bool full : {false, true}) {
    const std::int64_t c = full ? m : k, d = full ? n : k;
    Step svd = pair.step("tilewise.svd", {a},
                         {result(ir::real_dtype(t), with(stack, k, 1)), result(t, with(stack, m, c)),
                          result(t, with(stack, d, n))});
    run(pair.gpu, svd);
    for (std::int64_t i = 0; i < LinalgPair::stacked(a); ++i) {
      const Matrix s(svd.outputs[0], i), u(svd.outputs[1], i), vh(svd.outputs[2], i);
      near(s, Matrix(values.outputs[0], i), "S with vectors");
      Matrix middle(c, d);
      for (std::int64_t j = 0; j < k; ++j) middle.at(j, j) = s.values[static_cast<std::size_t>(j)];
      near(u * (middle * vh), Matrix(a, i), "U S Vh");
      near(u.adjoint() * u, identity(c), "U^H U");
      near(vh * vh.adjoint(), identity(d), "Vh Vh^H");
    }
  }
}

void eigenvalues(LinalgPair& pair, DType t, const ir::Shape& stack, std::int64_t n) {
  const DType real = ir::real_dtype(t);
  const Array p = definite(pair.prng, t, stack, n);
  const double limit = 200 * static_cast<double>(n) * epsilon(t);
  Step values = pair.step("tilewise.eigh", {p}, {result(real, with(stack, n, 1))});
  pair.agree(values, limit, "eigenvalues");
  Step both = pair.step("tilewise.eigh", {p}, {result(real, with(stack, n, 1)), result(t, p.shape)});
  run(pair.gpu, both);
  for (std::int64_t i = 0; i < LinalgPair::stacked(p); ++i) {
    const Matrix w(both.outputs[0], i), v(both.outputs[1], i), a(p, i);
    Matrix scaled = v;
    double largest = 1;
    for (std::int64_t r = 0; r < n; ++r)
      for (std::int64_t c = 0; c < n; ++c) scaled.at(r, c) *= w.values[static_cast<std::size_t>(c)];
    for (const Number& x : w.values) largest = std::max(largest, std::abs(x));
    CHECK(off(a * v, scaled) <= limit * largest);
    CHECK(off(v.adjoint() * v, identity(n)) <= limit);
  }
}

TEST_CASE("linear algebra on CUDA") {
  Prng prng(77);
  LinalgPair pair(prng);
  prepare_all(pair);
  for (const DType t : kDTypes) {
    for (const std::int64_t n : {1, 2, 7, 33}) equations(pair, t, {}, n);
    equations(pair, t, {2, 3}, 5);
    for (const std::int64_t m : {1, 6, 40}) eliminations(pair, t, {}, m, std::min<std::int64_t>(m, 6));
    eliminations(pair, t, {2}, 9, 4);
    updates(pair, t, {}, 9);
    updates(pair, t, {3}, 6);
    decompositions(pair, t, {}, 12, 5);
    decompositions(pair, t, {}, 5, 12);
    decompositions(pair, t, {2}, 6, 6);
    for (const std::int64_t n : {1, 8}) eigenvalues(pair, t, {2}, n);
  }
}

TEST_CASE("linear algebra on CUDA says what it wants") {
  Prng prng(78);
  LinalgPair pair(prng);
  const Array a = Array::contiguous(DType::kFloat64, {3, 4}), n = Array::contiguous(DType::kInt64, {3, 3});
  const auto refused = [&](const Step& step) {
    kernels::KernelCall call = call_of(step.op, step.space);
    std::byte* const anywhere = reinterpret_cast<std::byte*>(256);
    for (const Array& in : step.inputs) call.inputs.push_back(dense(anywhere, in.dtype, in.shape));
    for (const Array& out : step.outputs) call.outputs.push_back(dense(anywhere, out.dtype, out.shape));
    call.output_boxes = {ir::box_of(step.space)};
    const Status status = pair.cuda->launch(call, pair.device->compute_stream(0));
    REQUIRE_FALSE(status.has_value());
    return status.error().code;
  };
  CHECK(refused(pair.step("tilewise.cholesky", {a}, {a})) == Errc::kShapeMismatch);
  CHECK(refused(pair.step("tilewise.qr", {n}, {n, n})) == Errc::kInvalidArgument);
  CHECK(refused(kernel_step("tilewise.det", "?", {3, 3}, {a}, {a, a, a})) == Errc::kInvalidArgument);
  // What would keep the launching thread for seconds is left to the host.
  const auto supports = [&](const char* kernel, const ir::Shape& shape) {
    Array m;  // no elements: only the shape is asked about
    m.dtype = DType::kFloat32, m.shape = shape;
    return pair.cuda->supports(pair.step(kernel, {m}, {m, m}).op).has_value();
  };
  CHECK(supports("tilewise.eigh", {4096, 4096}));
  CHECK_FALSE(supports("tilewise.eigh", {4097, 4097}));
  CHECK_FALSE(supports("tilewise.eigh", {2, 4096, 4096}));
  CHECK_FALSE(supports("tilewise.svd", {2, 5000}));
  CHECK(supports("tilewise.cholesky", {5000, 5000}));
  CHECK(supports("tilewise.cholesky", {256, 3, 3}));
  CHECK_FALSE(supports("tilewise.cholesky", {257, 3, 3}));
}

TEST_CASE("linear algebra on CUDA refuses NaN") {
  Prng prng(79);
  LinalgPair pair(prng);
  device::Stream& stream = pair.device->compute_stream(0);
  auto slab = pair.device->add_slab(1 << 20);
  REQUIRE(slab.has_value());
  const auto told = [&](const Step& step) -> std::string {
    must(pair.cuda->prepare(step.op), "a kernel");
    kernels::KernelCall call = call_of(step.op, step.space);
    std::byte* at = slab->data;
    const auto place = [&](const Array& a) {
      must(stream.copy(at, a.bytes.data(), a.bytes.size()), "an input");
      return dense(std::exchange(at, at + 4096), a.dtype, a.shape);
    };
    for (const Array& in : step.inputs) call.inputs.push_back(place(in));
    for (const Array& out : step.outputs) call.outputs.push_back(place(out));
    call.output_boxes = {ir::box_of(step.space)};
    call.scratch = at;
    must(pair.cuda->launch(call, stream), "a launch");
    stream.record();
    pair.device->synchronize();
    std::vector<device::StepFailure> failures;
    stream.take_failures(failures);
    return failures.size() == 1 ? failures[0].error.message : "";
  };
  for (const DType t : {DType::kFloat32, DType::kComplex128}) {
    Array a = Array::contiguous(t, {4, 4});
    for (std::int64_t e = 0; e < 16; ++e) a.set(e, e % 5 == 0 ? 2 : 0, 0, 0);
    const Array one = Array::contiguous(t, {1, 1}), log = Array::contiguous(ir::real_dtype(t), {1, 1}),
                order = Array::contiguous(DType::kInt64, {4, 1});
    const auto each = [&](const std::string& want, bool triangle) {
      if (triangle) CHECK(told(pair.step("tilewise.cholesky", {a}, {a})) == want);
      CHECK(told(pair.step("tilewise.solve", {a, a}, {a})) == want);
      CHECK(told(pair.step("tilewise.det", {a}, {one, log, one})) == want);
      CHECK(told(pair.step("tilewise.lu_panel", {a}, {a, order, one})) == want);
    };
    each("", true);
    a.set(2, std::numeric_limits<double>::quiet_NaN(), 0, 0);
    each("check: the matrix holds NaN or infinity", false);
    CHECK(told(pair.step("tilewise.cholesky", {a}, {a})) == "");  // above the diagonal, which is not read
    a.set(8, std::numeric_limits<double>::quiet_NaN(), 0, 0);
    each("check: the matrix holds NaN or infinity", true);
  }
}

// Texts are the host's.
TEST_CASE("cluster: linear algebra of cut matrices on a GPU, and what has no result") {
  auto started = embedded::Cluster::start({.workers = 1, .memory_bytes = std::int64_t{1} << 28});
  REQUIRE(started.has_value());
  Session s =
      make_session((*started)->connect("gpu_check"), {.seed = 1, .timeout = std::chrono::seconds(120)});
  const auto off = [](const tilewise::Array& a, const tilewise::Array& b) {
    return max(abs(a - b)).item<double>();
  };
  const std::int64_t n = 48;
  const tilewise::Array m = s.random.uniform({n, n}, {.block = {16, 16}});
  const tilewise::Array p = (matmul(m, m.T()) + s.eye(n)).reblock({16, 16});
  const tilewise::Array l = cholesky(p);
  CHECK(off(matmul(l, l.T()), p) < 1e-10);
  CHECK(off(matmul(l, solve_triangular(l, m)), m) < 1e-9);
  CHECK(off(matmul(m, solve(m, p)), p) < 1e-9);
  CHECK(std::abs(det(p).item<double>() / det(p.reblock({n, n})).item<double>() - 1) < 1e-9);
  const tilewise::Array tall = s.random.uniform({200, 6}, {.block = {30, 6}});
  const QrResult f = qr(tall);
  CHECK(off(matmul(f.q, f.r), tall) < 1e-12);
  CHECK(off(matmul(f.q.T(), f.q), s.eye(6)) < 1e-12);
  const auto told = [](tilewise::Array bad) -> std::string {
    try {
      bad.persist().wait();
    } catch (const ArrayError& e) {
      CHECK(e.code() == Errc::kSingular);
      return e.what();
    }
    return "";
  };
  const auto says = [](const std::string& text, const char* part) {
    INFO("it says: ", text);
    CHECK(text.find(part) != std::string::npos);
  };
  says(told(cholesky(p - s.eye(n) * 1e6)),
       "cholesky, block 0: the matrix is not positive definite: the leading "
       "minor of order 1");
  says(told(solve(s.zeros({2, 3, 3}), s.ones({3}))),
       "solve, block 0: the matrix is singular: the leading minor of order 1, in matrix (0,) of the stack");
  says(told(solve((s.eye(n) * 0).reblock({16, 16}), m)),
       "solve, block 0: the matrix is singular: the leading minor of order 1");
  says(told(solve_triangular(s.zeros({3, 3}), s.ones({3}))), "the leading minor of order 1");
  says(told(eigvalsh(s.full({3, 3}, NAN))), "eigvalsh, block 0: the matrix holds NaN or infinity");
  says(told(svdvals(s.full({3, 3}, INFINITY))), "svdvals, block 0: the matrix holds NaN or infinity");
}

}  // namespace
}  // namespace tilewise::gpu
