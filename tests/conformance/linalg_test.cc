// Linear algebra by its definitions: what factors multiply to, what solutions solve. Single blocks, stacks and blocked
// algorithms, on every form of cluster; and values that have no result.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

// The largest element of |a - b|.
double off(const Array& a, const Array& b) { return max(abs(a - b)).astype(DType::kFloat64).item<double>(); }

Array random_matrix(const Session& s, DType t, const Shape& shape, const Shape& block, std::uint64_t seed) {
  const Array re = s.random.normal(shape, {.seed = seed, .block = block});
  if (!ir::is_complex(t)) return re.astype(t);
  return complex(re, s.random.normal(shape, {.seed = seed + 100, .block = block})).astype(t);
}
Array adjoint(const Array& a) { return matrix_transpose(ir::is_complex(a.dtype()) ? conj(a) : a); }
Array eye(const Session& s, std::int64_t n) { return s.eye(n); }
constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32, DType::kComplex128, DType::kComplex64};
double tolerance(DType t, std::int64_t n) {
  const double eps = ir::real_dtype(t) == DType::kFloat32 ? 0x1p-23 : 0x1p-52;
  return 60 * static_cast<double>(n) * eps;
}

}  // namespace

TEST_CASE("factorisations of stacks multiply to what they were made of") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const DType t : kTypes) {
      CAPTURE(ir::name_of(t));
      const std::int64_t n = 9;
      const double small = tolerance(t, n);
      const Array a = random_matrix(s, t, {3, 2, n, n}, {2, 1, 4, 5}, 1);
      const Array p = matmul(a, adjoint(a)) + eye(s, n).astype(t);
      const Array l = cholesky(p);
      CHECK(off(matmul(l, adjoint(l)), p) < small);
      CHECK(off(triu(l, 1), l * 0) == 0);
      CHECK(off(cholesky(p, true), adjoint(l)) == 0);
      for (const Shape& shape : {Shape{2, 12, 7}, Shape{2, 7, 12}}) {
        const Array m = random_matrix(s, t, shape, {1, 5, 3}, 2);
        const std::int64_t k = 7, rows = shape[1], columns = shape[2];
        const QrResult f = qr(m), full = qr(m, QrMode::kComplete);
        CHECK(f.q.shape() == Shape{2, rows, k});
        CHECK(f.r.shape() == Shape{2, k, columns});
        CHECK(off(matmul(f.q, f.r), m) < small);
        CHECK(off(matmul(adjoint(f.q), f.q), eye(s, k).astype(t)) < small);
        CHECK(off(tril(f.r, -1), f.r * 0) == 0);
        CHECK(full.q.shape() == Shape{2, rows, rows});
        CHECK(off(matmul(full.q, full.r), m) < small);
        CHECK(off(matmul(adjoint(full.q), full.q), eye(s, rows).astype(t)) < small);
        const SvdResult d = svd(m, false), whole = svd(m);
        CHECK(d.s.shape() == Shape{2, k});
        CHECK(d.s.dtype() == ir::real_dtype(t));
        CHECK(off(matmul(d.u * d.s.expand_dims(-2), d.vh), m) < 4 * small);
        CHECK(off(matmul(adjoint(whole.u), whole.u), eye(s, rows).astype(t)) < small);
        CHECK(off(matmul(whole.vh, adjoint(whole.vh)), eye(s, columns).astype(t)) < small);
        CHECK(off(svdvals(m), d.s) < small);
        CHECK(off(matmul(m, matmul(pinv(m), m)), m) < 40 * small);
        CHECK(matrix_rank(m).get<std::int64_t>() == std::vector<std::int64_t>(2, 7));
      }
      const EighResult e = eigh(p);
      CHECK(off(matmul(e.eigenvectors * e.eigenvalues.expand_dims(-2).astype(t), adjoint(e.eigenvectors)),
                p) < 20 * small);
      CHECK(off(eigvalsh(p), e.eigenvalues) < 20 * small);
      const Array b = random_matrix(s, t, {2, n, 3}, {1, 4, 2}, 3);
      CHECK(off(matmul(p, solve(p, b)), b.broadcast_to({3, 2, n, 3})) < 20 * small);
      CHECK(solve(p, b.at(0, 0).at(1, 0)).shape() == Shape{3, 2, n});
      CHECK(off(matmul(p, inv(p)), eye(s, n).astype(t)) < 20 * small);
      CHECK(off(matmul(l, solve_triangular(l, b)), b.broadcast_to({3, 2, n, 3})) < 20 * small);
      const SlogdetResult logdet = slogdet(p);
      CHECK(logdet.logabsdet.dtype() == ir::real_dtype(t));
      CHECK(off(det(p) / (logdet.sign * exp(logdet.logabsdet)), s.ones({1})) < 20 * small);
      CHECK(off(logdet.logabsdet, 2 * sum(log(abs(diagonal(l))), -1)) < 20 * small);
      CHECK(off(matrix_power(a, 5), matmul(a, matmul(a, matmul(a, matmul(a, a))))) < 1e4 * small);
      CHECK(off(matrix_power(p, -2), matmul(inv(p), inv(p))) < 20 * small);
      CHECK(off(matrix_power(a, 0), eye(s, n).astype(t)) == 0);
    }
  }
}

TEST_CASE("matrices of several blocks: cholesky, triangular solves and tall factorisations, block by block") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const DType t : {DType::kFloat64, DType::kComplex128}) {
      CAPTURE(ir::name_of(t));
      const std::int64_t n = 70;
      const double small = tolerance(t, n);
      const Array a = random_matrix(s, t, {n, n}, {16, 16}, 5);
      Array p = (matmul(a, adjoint(a)) + eye(s, n).astype(t) * 10.0).reblock({16, 16});
      p.persist().wait();
      Array l = cholesky(p);
      l.persist().wait();
      CHECK(off(matmul(l, adjoint(l)), p) < 40 * small);
      CHECK(off(triu(l, 1), l * 0) == 0);
      // One task would have given the same but for roundings; other cuts too.
      CHECK(off(l, cholesky(p.reblock({n, n}))) < small);
      CHECK(off(cholesky(p.reblock({23, 9})), l) < small);
      const Array b = random_matrix(s, t, {n, 25}, {16, 10}, 6);
      CHECK(off(matmul(l, solve_triangular(l, b)), b) < small);
      CHECK(off(matmul(adjoint(l), solve_triangular(adjoint(l), b, false)), b) < small);
      CHECK(off(matmul(l, solve_triangular(l, b.at(1, 3))), b.at(1, 3)) < small);
      for (const std::int64_t block :
           {8, 20, 37}) {  // of fewer rows than columns, and not; the last with fewer
        CAPTURE(block);
        const Array m = random_matrix(s, t, {500, 9}, {block, 4}, 7);
        const QrResult f = qr(m);
        CHECK(f.q.shape() == Shape{500, 9});
        CHECK(off(matmul(f.q, f.r), m) < small);
        CHECK(off(matmul(adjoint(f.q), f.q), eye(s, 9).astype(t)) < small);
        CHECK(off(tril(f.r, -1), f.r * 0) == 0);
        CHECK(off(abs(f.r), abs(qr(m.reblock({500, 9})).r)) < 40 * small);
        const SvdResult d = svd(m, false);
        CHECK(off(matmul(d.u * d.s.expand_dims(-2), d.vh), m) < 40 * small);
        CHECK(off(svdvals(m), svdvals(m.reblock({500, 9}))) < 40 * small);
      }
    }
  }
}

TEST_CASE("matrices of several blocks: equations and determinants by elimination") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t n = 45;
    for (const DType t : {DType::kFloat64, DType::kComplex64}) {
      CAPTURE(ir::name_of(t));
      const double small = tolerance(t, n);
      // Heavy on the other diagonal: each pivot lies in another block.
      const Array heavy = eye(s, n).astype(t) * 30.0 + random_matrix(s, t, {n, n}, {16, 16}, 11);
      Array a = flip(heavy, 0).reblock({16, 16}), whole = a.reblock({n, n});
      s.persist({a, whole}).wait();
      const Array b = random_matrix(s, t, {n, 25}, {16, 10}, 12);
      Array x = solve(a, b);
      x.persist().wait();
      CHECK(off(matmul(a, x), b) < 20 * small);
      CHECK(off(x, solve(whole, b)) < small);
      for (const Shape& cuts : {Shape{23, 9}, Shape{n, 14}, Shape{8, n}})
        CHECK(off(solve(a.reblock(cuts), b), x) < small);
      CHECK(off(solve(a, b.at(1, 3)), x.at(1, 3)) < small);
      CHECK(off(matmul(a, inv(a)), eye(s, n).astype(t)) < 20 * small);
      const SlogdetResult cut = slogdet(a), one = slogdet(whole);
      CHECK(off(cut.sign, one.sign) < small);
      CHECK(off(cut.logabsdet, one.logabsdet) < n * small);
      if (t == DType::kFloat64) CHECK(off(det(a) / det(whole), s.ones({})) < n * small);
    }
    // Second differences: the determinant is n + 1, the inverse (min(i, j) + 1) (n - max(i, j)) / (n + 1).
    const Array i = s.arange(n).astype(DType::kFloat64).expand_dims(1), j = i.T();
    const Array second = (2.0 * (i == j).astype(DType::kFloat64) - (abs(i - j) == 1).astype(DType::kFloat64))
                             .reblock({16, 16});
    CHECK(det(second).item<double>() == doctest::Approx(n + 1));
    const Array inverse =
        (minimum(i, j) + 1.0) * (static_cast<double>(n) - maximum(i, j)) / static_cast<double>(n + 1);
    CHECK(off(inv(second), inverse) < 1e-12);
  }
}

TEST_CASE("least squares of row blocks: the solution of the normal equations, and what is left of b") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    std::uint64_t seed = 40;
    for (const DType t : kTypes) {
      CAPTURE(ir::name_of(t));
      struct Case {
        std::int64_t m, n, k, rows, columns, right_rows, right_columns;
      };
      // One block; two; ragged ones; levels of the tree; fewer rows a block than columns; less than twice as many rows; square.
      for (const Case& c :
           {Case{12, 5, 2, 12, 5, 12, 2}, Case{50, 7, 3, 25, 7, 50, 1}, Case{503, 9, 7, 20, 4, 33, 3},
            Case{701, 3, 4, 6, 3, 700, 4}, Case{130, 31, 2, 11, 31, 130, 2}, Case{41, 30, 2, 8, 13, 5, 1},
            Case{24, 24, 3, 5, 24, 24, 3}, Case{300, 1, 1, 7, 1, 9, 1}}) {
        CAPTURE(c.m);
        const double small = tolerance(t, c.m) * (c.m == c.n ? 100 : 1);
        const Array a = random_matrix(s, t, {c.m, c.n}, {c.rows, c.columns}, seed++);
        const Array b = random_matrix(s, t, {c.m, c.k}, {c.right_rows, c.right_columns}, seed++);
        const LstsqResult f = lstsq(a, b);
        CHECK(f.x.shape() == Shape{c.n, c.k});
        CHECK(f.x.dtype() == t);
        CHECK(f.residuals.dtype() == ir::real_dtype(t));
        const Array left = b - matmul(a, f.x);
        CHECK(off(matmul(adjoint(a), left), f.x * 0) < small);  // what is left is orthogonal to every column
        const LstsqResult vector = lstsq(a, b.at(1, c.k - 1));
        CHECK(vector.x.shape() == Shape{c.n});
        CHECK(off(vector.x, f.x.at(1, c.k - 1)) < small);
        if (c.m == c.n) {
          CHECK(f.residuals.shape() == Shape{0});
          CHECK(vector.residuals.shape() == Shape{0});
        } else {
          CHECK(off(f.residuals, sum(square(abs(left)), 0)) <= small);
          CHECK(vector.residuals.shape() == Shape{1});
          CHECK(off(vector.residuals, f.residuals.slice(0, c.k - 1, c.k)) < small);
          CHECK(off(f.x, solve(matmul(adjoint(a), a), matmul(adjoint(a), b))) < 100 * small);
        }
      }
    }
  }
}

TEST_CASE("least squares where the normal equations lose every digit, and of a rank that is not full") {
  for (const Form& form : {kForms[1], kForms[4]}) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array i = s.arange(400, {.block = {30}}).astype(DType::kFloat64).expand_dims(1);
    const Array scales = power(10.0, s.arange(8).astype(DType::kFloat64) * 4.0 - 14.0);  // to 1e14
    const Array a = random_matrix(s, DType::kFloat64, {400, 8}, {30, 8}, 90);
    const Array x = s.random.normal({8}, {.seed = 91});
    CHECK(off(lstsq(a * scales, matmul(a, x)).x * scales, x) < 1e-13);
    // Läuchli's columns: one, and one that differs from it by 1e-9, whose square 1 + 1e-18 cannot hold.
    const Array near =
        concat({s.ones({400, 1}), 1.0 + 1e-9 * (i == 399.0).astype(DType::kFloat64)}, 1).reblock({30, 2});
    const Array right = matmul(near, s.from_memory(std::vector<double>{2, -1}, {2}));
    CHECK(off(lstsq(near, right).x, s.from_memory(std::vector<double>{2, -1}, {2})) < 1e-5);
    CHECK(det(matmul(near.T(), near)).item<double>() < 1e-9);

    std::string what;
    const Array ones = s.ones({400});
    const Array zero_column = a * (s.arange(8) != 5).astype(DType::kFloat64);
    CHECK(code_of([&] { lstsq(zero_column, ones).x.get<double>(); }, &what) == Errc::kSingular);
    CHECK(what.find("lstsq, block 0: the matrix is singular: the leading minor of order 6") !=
          std::string::npos);
    for (const DType t : kTypes) {
      const Array b = random_matrix(s, t, {400, 4}, {30, 4}, 92);
      const Array dependent = concat({b, (b.slice(1, 0, 1) + b.slice(1, 2, 3) * 3.0).astype(t)}, 1);
      CHECK(code_of([&] { abs(lstsq(dependent, ones.astype(t)).x).astype(DType::kFloat64).get<double>(); },
                    &what) == Errc::kSingular);
      CHECK(what.find("order 5") != std::string::npos);
    }
    // Nothing to fit with, nothing to fit.
    CHECK(lstsq(s.ones({5, 0}), s.ones({5, 2})).x.shape() == Shape{0, 2});
    CHECK(lstsq(s.ones({5, 0}), s.ones({5, 2})).residuals.get<double>() == std::vector<double>{5, 5});
    CHECK(lstsq(s.ones({5, 1}), s.ones({5, 0})).x.shape() == Shape{1, 0});
    CHECK(lstsq(s.ones({5, 1}), s.ones({5, 0})).residuals.shape() == Shape{0});
    // Integers are float64, 16-bit floats float32 rounded once, two dtypes their common one.
    const Array n = s.arange(60, {.block = {7}}).expand_dims(1);
    CHECK(lstsq(n, n.at(1, 0) * 3).x.get<double>()[0] == doctest::Approx(3));
    CHECK(lstsq((n % 8).astype(DType::kFloat16), s.ones({60}).astype(DType::kFloat16)).x.dtype() ==
          DType::kFloat16);
    CHECK(lstsq(n.astype(DType::kFloat32), s.ones({60}).astype(DType::kComplex64)).x.dtype() ==
          DType::kComplex64);

    CHECK(code_of([&] { lstsq(s.ones({3, 4}), s.ones({3})); }, &what) == Errc::kShapeMismatch);
    CHECK(what.find("lstsq wants no fewer rows than columns") != std::string::npos);
    CHECK(code_of([&] { lstsq(s.ones({4, 3}), s.ones({3})); }, &what) == Errc::kShapeMismatch);
    CHECK(what.find("right side of shape") != std::string::npos);
    CHECK(code_of([&] { lstsq(s.ones({2, 4, 3}), s.ones({4})); }) == Errc::kShapeMismatch);
    CHECK(code_of([&] { lstsq(s.ones({4, 3}), s.ones({2, 4, 1})); }) == Errc::kShapeMismatch);
    CHECK(code_of([&] { lstsq(s.ones({4}), s.ones({4})); }) == Errc::kShapeMismatch);
    CHECK(code_of([&] { lstsq(s.ones({4, 3}) > 0.0, s.ones({4}) > 0.0); }) == Errc::kInvalidArgument);
  }
}

TEST_CASE("values without a result are told with function, array and leading minor") {
  for (const Form& form : {kForms[1], kForms[4]}) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    std::string what;
    const Array broken = eye(s, 60) - 2.0 * ((s.arange(60) == 41).astype(DType::kFloat64) * eye(s, 60));
    for (const std::int64_t block : {60, 16}) {  // in one piece, and in tiles
      CHECK(code_of(
                [&] {
                  cholesky(broken.reblock({block, block})).named("covariance").get<double>();
                },
                &what) == Errc::kSingular);
      CHECK(what.find("leading minor of order 42") != std::string::npos);
      CHECK(what.find("cholesky") != std::string::npos);
    }
    const Array zero_row = eye(s, 60) * (s.arange(60) != 20).astype(DType::kFloat64);
    CHECK(code_of([&] { solve(zero_row, s.ones({60})).get<double>(); }, &what) == Errc::kSingular);
    CHECK(what.find("solve, block 0: the matrix is singular") != std::string::npos);
    CHECK(code_of([&] { inv(zero_row).get<double>(); }, &what) == Errc::kSingular);
    CHECK(what.find("inv, block 0: the matrix is singular") != std::string::npos);
    const Array cut = zero_row.reblock({16, 16});
    CHECK(code_of([&] { solve(cut, s.ones({60})).get<double>(); }, &what) == Errc::kSingular);
    CHECK(what.find("the matrix is singular: the leading minor of order 21") != std::string::npos);
    CHECK(det(cut).item<double>() == 0);
    CHECK(slogdet(cut).sign.item<double>() == 0);
    CHECK(slogdet(cut).logabsdet.item<double>() == -INFINITY);
    CHECK(code_of(
              [&] {
                solve_triangular(zero_row.reblock({16, 16}), s.ones({60})).get<double>();
              },
              &what) == Errc::kSingular);
    CHECK(what.find("order 21") != std::string::npos);
    CHECK(code_of([&] { eigvalsh(broken / 0.0).get<double>(); }) == Errc::kSingular);
    CHECK(code_of([&] { svdvals(broken / 0.0).get<double>(); }) == Errc::kSingular);
    // In a stack: which one.
    const Array stack = concat({eye(s, 4).expand_dims(0), -eye(s, 4).expand_dims(0)}, 0);
    CHECK(code_of([&] { cholesky(stack).get<double>(); }, &what) == Errc::kSingular);
    CHECK(what.find("order 1") != std::string::npos);
    // The cluster goes on.
    CHECK(det(zero_row).item<double>() == 0);
    CHECK(slogdet(zero_row).logabsdet.item<double>() == -INFINITY);
    CHECK(matrix_rank(zero_row).item<std::int64_t>() == 59);
  }
}

TEST_CASE("a matrix that no device can hold in one piece is refused, naming what there is") {
  TestCluster cluster(kForms[3]);  // 256 KiB a device
  const Session& s = cluster.session;
  std::string what;
  const Array big = s.random.normal({400, 400}, {.seed = 1, .block = {50, 50}});
  CHECK(code_of([&] { eigvalsh(big).get<double>(); }, &what) == Errc::kOutOfMemory);
  CHECK(what.find("eigvalsh") != std::string::npos);
  CHECK(sum(big).item<double>() != 0);
  // Cut, it fits.
  const Array p = matmul(big, big.T()) + 400.0 * eye(s, 400);
  CHECK(off(matmul(cholesky(p), cholesky(p).T()), p) < 1e-9);
  // Its elimination has steps with two results, of which one at a time may find room.
  const double size = 2 * sum(log(diagonal(cholesky(p)))).item<double>();
  const SlogdetResult d = slogdet(p.reblock({50, 10}));
  CHECK(d.sign.item<double>() == 1);
  CHECK(d.logabsdet.item<double>() == doctest::Approx(size).epsilon(1e-12));
}

TEST_CASE("a limit for each matrix of a stack, and of nothing what NumPy gives") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const Array m = s.from_memory(std::vector<double>{1, 0, 0, 0.1, 1, 0, 0, 0.1}, {2, 2, 2});
  const Array limits = s.from_memory(std::vector<double>{0.01, 0.5}, {2});
  CHECK(matrix_rank(m, limits).get<std::int64_t>() == std::vector<std::int64_t>{2, 1});
  CHECK(pinv(m, limits).get<double>() == std::vector<double>{1, 0, 0, 10, 1, 0, 0, 0});
  CHECK(pinv(s.zeros({0, 3}, {.dtype = DType::kFloat16})).dtype() == DType::kFloat16);
  CHECK(vector_norm(s.zeros({0}), {}, false, INFINITY).item<double>() == 0);
  CHECK(matrix_norm(s.zeros({3, 0}), 1).item<double>() == 0);
  CHECK(matrix_norm(s.zeros({0, 3}), 2).item<double>() == 0);
  CHECK(matrix_norm(s.zeros({0, 3}), INFINITY).item<double>() == 0);
  CHECK(diagonal(s.ones({2, 2}), INT64_MIN).size() == 0);
  CHECK(float(stddev(s.from_memory(std::vector<double>{0, 1000}, {2}).astype(DType::kFloat16))
                  .item<Float16>()) == 500);
  // Cut, and of nothing along what is summed.
  CHECK(tensordot(s.zeros({4, 0}, {.block = {2, 1}}), s.ones({0, 3}), 1).get<double>() ==
        std::vector<double>(12));
}

TEST_CASE("singular values of complex matrices read nothing behind them") {
  // OpenBLAS 0.3.21 read an element behind a vector where a matrix had 4 n + 2 rows, which was a segmentation fault at a heap's end.
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  for (int turn = 0; turn < 60; ++turn) {
    const std::int64_t rows = 22 + 4 * (turn % 14), columns = 20 + 7 * turn % 229;
    const Array m = s.random.normal({3, rows, columns}, {.seed = 7}).astype(DType::kComplex64);
    CHECK(sum(svdvals(m)).item<float>() > 0);
  }
}

TEST_CASE("norms, cross, diagonal and trace") {
  TestCluster cluster(kForms[1]);
  const Session& s = cluster.session;
  const Array m = s.from_memory(std::vector<double>{1, -2, 3, 4, 5, -6}, {2, 3}, {.block = {1, 2}});
  CHECK(matrix_norm(m).item<double>() == doctest::Approx(std::sqrt(91)));
  CHECK(matrix_norm(m, 1).item<double>() == 9);
  CHECK(matrix_norm(m, -1).item<double>() == 5);
  CHECK(matrix_norm(m, INFINITY).item<double>() == 15);
  CHECK(matrix_norm(m, -INFINITY, true).shape() == Shape{1, 1});
  const auto values = svdvals(m).get<double>();
  CHECK(matrix_norm(m, 2).item<double>() == doctest::Approx(values[0]));
  CHECK(matrix_norm(m, -2).item<double>() == doctest::Approx(values[1]));
  CHECK(matrix_norm(m, "nuc").item<double>() == doctest::Approx(values[0] + values[1]));
  CHECK(code_of([&] { matrix_norm(m, 3); }) == Errc::kInvalidArgument);
  CHECK(code_of([&] { matrix_norm(m, "frobenius"); }) == Errc::kInvalidArgument);
  CHECK(vector_norm(m, {}, false, 1).item<double>() == 21);
  CHECK(vector_norm(m, 1, false, INFINITY).get<double>() == std::vector<double>{3, 6});
  CHECK(vector_norm(m, 1, false, -INFINITY).get<double>() == std::vector<double>{1, 4});
  CHECK(vector_norm(m * 0 + 2, 0, true, 3).get<double>()[0] == doctest::Approx(std::cbrt(16)));
  CHECK(vector_norm(s.from_memory(std::vector<double>{0, 3, 0}, {3}), {}, false, 0).item<double>() == 1);
  const Array z = complex(s.full({2}, 3.0), s.full({2}, 4.0));
  CHECK(vector_norm(z).dtype() == DType::kFloat64);
  CHECK(vector_norm(z, {}, false, 1).item<double>() == 10);

  const Array x = s.from_memory(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}, {2, 3}),
              y = s.from_memory(std::vector<std::int64_t>{0, 1, -1}, {3});
  CHECK(cross(x, y).get<std::int64_t>() == std::vector<std::int64_t>{-5, 1, 1, -11, 4, 4});
  CHECK(code_of([&] { cross(x.slice(1, 0, 2), y); }) == Errc::kShapeMismatch);

  const Array cube = s.arange(2 * 3 * 4).reshape({2, 3, 4});
  CHECK(diagonal(cube).get<std::int64_t>() == std::vector<std::int64_t>{0, 5, 10, 12, 17, 22});
  CHECK(diagonal(cube, 2).get<std::int64_t>() == std::vector<std::int64_t>{2, 7, 14, 19});
  CHECK(diagonal(cube, -2).get<std::int64_t>() == std::vector<std::int64_t>{8, 20});
  CHECK(diagonal(cube, 7).shape() == Shape{2, 0});
  CHECK(diagonal(cube.astype(DType::kInt8)).dtype() == DType::kInt8);
  CHECK(diagonal(cube > 4).get<bool>() == std::vector<bool>{false, true, true, true, true, true});
  CHECK(trace(cube, 1).get<std::int64_t>() == std::vector<std::int64_t>{1 + 6 + 11, 13 + 18 + 23});
  CHECK(trace(cube, 0, DType::kFloat32).dtype() == DType::kFloat32);
  CHECK(det(s.zeros({0, 0})).item<double>() == 1);
  CHECK(inv(s.zeros({0, 0})).shape() == Shape{0, 0});
  CHECK(qr(s.zeros({5, 0}), QrMode::kComplete).q.get<double>() == eye(s, 5).get<double>());
  CHECK(off(inv(s.from_memory(std::vector<std::int64_t>{2, 0, 0, 4}, {2, 2})),
            s.from_memory(std::vector<double>{0.5, 0, 0, 0.25}, {2, 2})) == 0);
  CHECK(cholesky(eye(s, 3).astype(DType::kFloat16)).dtype() == DType::kFloat16);
  CHECK(code_of([&] { cholesky(m); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { solve(eye(s, 3), s.ones({4})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { det(s.ones({3})); }) == Errc::kShapeMismatch);
  CHECK(code_of([&] { eigh(eye(s, 3).astype(DType::kBool)); }) == Errc::kInvalidArgument);
}
