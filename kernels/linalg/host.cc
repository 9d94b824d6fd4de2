// By LAPACK and BLAS. A row-major matrix is LAPACK's transpose, so most need no transposition: L L^H = A is U^H U = A^T with
// U = L^T, and A = U S Vh is A^T = Vh^T S U^T.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "linalg/lapack.h"
#include "matmul/blas.h"

namespace tilewise::kernels::linalg {
namespace {

using matmul::BlasTurn;

// LAPACK's integers; larger matrices would not fit a block's 2^31 - 1 anyway.
int whole(std::int64_t n) { return static_cast<int>(n); }
template <class T> bool too_large(const Matrix<T>& m) {
  constexpr std::int64_t kMost = std::numeric_limits<lapack_int>::max();
  return m.rows > kMost || m.columns > kMost;
}
constexpr const char* kTooLarge = "an extent past 2^31 - 1";

template <class T> struct Cholesky {
  static int run(const Call& call) {
    const Matrix<T> l = call.out<T>(0);
    if (too_large(l)) return call.refuse(kTooLarge);
    call.in<T>(0).copy_to(l);
    const BlasTurn turn;
    if (const int info = potrf('U', whole(l.rows), l.data); info > 0)
      return call.minor("the matrix is not positive definite", info);
    for (std::int64_t i = 0; i < l.rows; ++i)
      std::fill(l.data + i * l.row + i + 1, l.data + (i + 1) * l.row, T(0));
    return 0;
  }
};

template <class T> struct Solve {
  static int run(const Call& call) {
    const Matrix<T> x = call.out<T>(0);
    const Matrix<T> a = call.in<T>(0);
    if (too_large(x) || too_large(a)) return call.refuse(kTooLarge);
    std::vector<T> lu = a.packed();  // of the transpose
    std::vector<int> pivots(static_cast<std::size_t>(a.rows));
    std::vector<T> columns = call.in<T>(1).transposed().packed();
    const BlasTurn turn;
    if (const int info = getrf(whole(a.rows), whole(a.rows), lu.data(), pivots.data()); info > 0)
      return call.minor("the matrix is singular", info);
    getrs('T', whole(a.rows), whole(x.columns), lu.data(), pivots.data(), columns.data());
    Matrix<T>{columns.data(), x.columns, x.rows, x.rows, 1}.transposed().copy_to(x);
    return 0;
  }
};

template <class T> struct Det {
  static int run(const Call& call) {
    const Matrix<T> a = call.in<T>(0);
    if (too_large(a)) return call.refuse(kTooLarge);
    std::vector<T> lu = a.packed();
    std::vector<int> pivots(static_cast<std::size_t>(a.rows));
    {
      const BlasTurn turn;
      getrf(whole(a.rows), whole(a.rows), lu.data(), pivots.data());  // a zero pivot: the determinant is zero
    }
    T sign(1), det(1);
    Real<T> log = 0;
    for (std::int64_t i = 0; i < a.rows; ++i) {
      const T pivot = lu[static_cast<std::size_t>(i * a.rows + i)];
      const Real<T> size = std::abs(pivot);
      if (pivots[static_cast<std::size_t>(i)] != i + 1) sign = -sign, det = -det;
      det *= pivot;
      sign *= size == 0 ? T(0) : pivot / size;
      log += std::log(size);
    }
    *call.out<T>(0).data = sign;
    *call.out<Real<T>>(1).data = log;
    *call.out<T>(2).data = det;
    return 0;
  }
};

template <class T> struct Qr {
  static int run(const Call& call) {
    const Matrix<T> a = call.in<T>(0), q = call.out<T>(0), r = call.out<T>(1);
    if (too_large(a) || too_large(q)) return call.refuse(kTooLarge);
    const std::int64_t m = a.rows, n = a.columns, k = std::min(m, n), c = q.columns;
    // Room for all columns of Q behind those of A.
    const std::int64_t width = std::max(n, std::min(c, m));
    std::vector<T> columns(static_cast<std::size_t>(m * width)),
        tau(static_cast<std::size_t>(std::max<std::int64_t>(1, k)));
    const Matrix<T> factors = Matrix<T>{columns.data(), width, m, m, 1}.transposed();
    Matrix<T> first = factors;
    first.columns = n;
    a.copy_to(first);
    const BlasTurn turn;
    int info = with_workspace<T>([&](T* work, int size) {
      return geqrf_work(whole(m), whole(n), columns.data(), tau.data(), work, size);
    });
    for (std::int64_t i = 0; i < r.rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) r.at(i, j) = i < k && j >= i ? factors.at(i, j) : T(0);
    const std::int64_t wanted = std::min(c, m);
    if (info == 0)
      info = with_workspace<T>([&](T* work, int size) {
        return orgqr_work(whole(m), whole(wanted), whole(k), columns.data(), tau.data(), work, size);
      });
    if (info != 0) return call.refuse("LAPACK returned " + std::to_string(info), Errc::kTaskFailed);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < c; ++j) q.at(i, j) = j < wanted ? factors.at(i, j) : T(0);
    return 0;
  }
};

// Of m x n as LAPACK has it, by columns: a matrix that is seen by rows.
template <class T> Matrix<T> by_columns(std::vector<T>& columns, std::int64_t m, std::int64_t n) {
  columns.resize(static_cast<std::size_t>(m * n));
  return Matrix<T>{columns.data(), n, m, m, 1}.transposed();
}
// The first rows, and zeros where there are more.
template <class T> void copy_rows(const Matrix<T>& from, const Matrix<T>& to) {
  Matrix<T> part = from, target = to;
  part.rows = target.rows = std::min(from.rows, to.rows);
  part.copy_to(target);
  for (std::int64_t i = part.rows; i < to.rows; ++i)
    for (std::int64_t j = 0; j < to.columns; ++j) to.at(i, j) = T(0);
}

template <class T> struct Geqrf {
  static int run(const Call& call) {
    const Matrix<T> a = call.in<T>(0), tau = call.out<T>(1), r = call.out<T>(2);
    if (too_large(a)) return call.refuse(kTooLarge);
    const std::int64_t k = std::min(a.rows, a.columns);
    std::vector<T> columns, scales(static_cast<std::size_t>(std::max<std::int64_t>(1, k)));
    const Matrix<T> factors = by_columns(columns, a.rows, a.columns);
    a.copy_to(factors);
    {
      const BlasTurn turn;
      const int info = with_workspace<T>([&](T* work, int size) {
        return geqrf_work(whole(a.rows), whole(a.columns), columns.data(), scales.data(), work, size);
      });
      if (info != 0) return call.refuse("LAPACK returned " + std::to_string(info), Errc::kTaskFailed);
    }
    factors.copy_to(call.out<T>(0));
    copy_rows(Matrix<T>{scales.data(), k, 1, 1, 1}, tau);
    for (std::int64_t i = 0; i < r.rows; ++i)
      for (std::int64_t j = 0; j < r.columns; ++j) r.at(i, j) = i < k && j >= i ? factors.at(i, j) : T(0);
    return 0;
  }
};

template <class T> struct Ormqr {
  static int run(const Call& call) {
    Matrix<T> v = call.in<T>(0);
    const Matrix<T> tau = call.in<T>(1), out = call.out<T>(0);
    if (too_large(v) || too_large(out)) return call.refuse(kTooLarge);
    v.columns = std::min(v.rows, v.columns);  // columns past the last reflector are R's alone
    // LAPACK writes into the reflectors while it works, and others may read them: a copy.
    std::vector<T> reflectors, columns,
        scales(static_cast<std::size_t>(std::max<std::int64_t>(1, v.columns)));
    v.copy_to(by_columns(reflectors, v.rows, v.columns));
    for (std::int64_t i = 0; i < v.columns; ++i) scales[static_cast<std::size_t>(i)] = tau.at(i, 0);
    const Matrix<T> c = by_columns(columns, v.rows, out.columns);
    copy_rows(call.in<T>(2), c);
    const char trans = !(call.params.flags & kAdjoint) ? 'N' : kIsComplex<T> ? 'C' : 'T';
    {
      const BlasTurn turn;
      const int info = with_workspace<T>([&](T* work, int size) {
        return ormqr_work(trans, whole(c.rows), whole(c.columns), whole(v.columns), reflectors.data(),
                          scales.data(), columns.data(), work, size);
      });
      if (info != 0) return call.refuse("LAPACK returned " + std::to_string(info), Errc::kTaskFailed);
    }
    copy_rows(c, out);
    return 0;
  }
};

template <class T> struct Eigh {
  static int run(const Call& call) {
    const Matrix<T> a = call.in<T>(0);
    if (too_large(a)) return call.refuse(kTooLarge);
    if (!a.finite()) return call.undefined("the matrix holds NaN or infinity");
    std::vector<T> vectors = a.packed();  // LAPACK reads conj(A), whose vectors are the conjugates
    std::vector<Real<T>> values(static_cast<std::size_t>(a.rows));
    const bool wanted = call.c.output_count > 1;
    const BlasTurn turn;
    const int info = syevd(wanted ? 'V' : 'N', 'U', whole(a.rows), vectors.data(), values.data());
    if (info > 0) return call.undefined("the iteration did not converge");
    if (info < 0) return call.refuse("LAPACK returned " + std::to_string(info), Errc::kTaskFailed);
    std::copy(values.begin(), values.end(), call.out<Real<T>>(0).data);
    if (!wanted) return 0;
    const Matrix<T> v = call.out<T>(1);
    Matrix<T>{vectors.data(), a.rows, a.rows, a.rows, 1}.transposed().copy_to(v);
    v.conjugate_all();
    return 0;
  }
};

template <class T> struct Svd {
  static int run(const Call& call) {
    const Matrix<T> a = call.in<T>(0);
    if (too_large(a)) return call.refuse(kTooLarge);
    if (!a.finite()) return call.undefined("the matrix holds NaN or infinity");
    std::vector<T> lost = a.packed();
    const bool vectors = call.c.output_count > 1;
    Matrix<T> u, vh;
    if (vectors) u = call.out<T>(1), vh = call.out<T>(2);
    const std::int64_t k = std::min(a.rows, a.columns);
    const bool full = vectors && (u.columns > k || vh.rows > k);
    const BlasTurn turn;
    const int info = gesdd(!vectors ? 'N'
                           : full   ? 'A'
                                    : 'S',
                           whole(a.columns), whole(a.rows), lost.data(), call.out<Real<T>>(0).data, vh.data,
                           whole(a.columns), u.data, vectors ? whole(u.columns) : 1);
    if (info > 0) return call.undefined("the iteration did not converge");
    if (info < 0) return call.refuse("LAPACK returned " + std::to_string(info), Errc::kTaskFailed);
    return 0;
  }
};

template <class T> struct Trsm {
  static int run(const Call& call) {
    const Matrix<T> x = call.out<T>(0), a = call.in<T>(0);
    if (too_large(x) || too_large(a)) return call.refuse(kTooLarge);
    for (std::int64_t i = 0; i < a.rows; ++i)
      if (a.at(i, i) == T(0)) return call.minor("the matrix is singular", i + 1);
    call.in<T>(1).copy_to(x);
    if (call.params.flags & kConjugate) x.conjugate_all();
    const std::vector<T> triangle = a.packed();
    const BlasTurn turn;
    trsm(call.params.flags & kUpper ? CblasUpper : CblasLower, CblasNonUnit, whole(x.rows), whole(x.columns),
         triangle.data(), whole(a.rows), x.data);
    return 0;
  }
};

// A matrix as BLAS reads it, copied where it cannot.
template <class T> struct Operand {
  std::vector<T> copy;
  const T* data = nullptr;
  CBLAS_TRANSPOSE trans = CblasNoTrans;
  int ld = 1;

  Operand(const Matrix<T>& m, bool conjugated) {
    data = m.data;
    const bool turned = m.row == 1 && m.column >= std::max<std::int64_t>(1, m.rows);
    if (turned) {
      trans = conjugated ? CblasConjTrans : CblasTrans;
      ld = whole(m.column);
    } else if (!conjugated && m.column == 1 && m.row >= m.columns) {
      ld = whole(m.row);
    } else {
      copy = m.packed();
      const Matrix<T> own{copy.data(), m.rows, m.columns, m.columns, 1};
      if (conjugated) own.conjugate_all();
      data = copy.data();
      ld = whole(m.columns);
    }
  }
};

// Where a lower triangle alone is wanted, and the block begins on the diagonal.
bool begins_on_diagonal(const Call& call) {
  const tilewise_view_v1& out = call.c.outputs[0];
  return (call.params.flags & kLower) && out.lo[out.rank - 2] == out.lo[out.rank - 1];
}
template <class T> void clear_above(const Matrix<T>& c) {
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = i + 1; j < c.columns; ++j) c.at(i, j) = T(0);
}

template <class T> struct Update {
  static int run(const Call& call) {
    const Matrix<T> c = call.out<T>(0);
    const bool plus = call.c.input_count > 2;
    const Matrix<T> a = call.in<T>(plus ? 1 : 0), b = call.in<T>(plus ? 2 : 1);
    if (too_large(c) || too_large(a)) return call.refuse(kTooLarge);
    const tilewise_view_v1& out = call.c.outputs[0];
    const int row = out.rank - 2, column = out.rank - 1;
    if ((call.params.flags & kLower) && out.lo[column] >= out.lo[row] + out.shape[row]) {
      std::fill(c.data, c.data + c.rows * c.columns, T(0));
      return 0;
    }
    if (plus) call.in<T>(0).copy_to(c);
    const bool conjugated = kIsComplex<T> && (call.params.flags & kConjugate);
    const bool diagonal = begins_on_diagonal(call);
    const BlasTurn turn;
    if (diagonal && c.rows == c.columns && a.turns(b) && conjugated == kIsComplex<T> && b.column == 1 &&
        b.row >= b.columns) {  // B^H B: half the work
      herk(whole(c.rows), whole(b.rows), Real<T>(plus ? -1 : 1), b.data, whole(b.row), Real<T>(plus ? 1 : 0),
           c.data);
    } else {
      const Operand<T> left(a, conjugated), right(b, false);
      gemm(left.trans, right.trans, whole(c.rows), whole(c.columns), whole(a.columns), T(plus ? -1 : 1),
           left.data, left.ld, right.data, right.ld, T(plus ? 1 : 0), c.data);
    }
    if (diagonal) clear_above(c);
    return 0;
  }
};

template <class T> struct LuPanel {
  static int run(const Call& call) {
    const Matrix<T> a = call.in<T>(0), lu = call.out<T>(0);
    if (too_large(a)) return call.refuse(kTooLarge);
    std::vector<T> columns = a.transposed().packed();
    std::vector<int> pivots(static_cast<std::size_t>(a.columns));
    {
      const BlasTurn turn;
      const int info = getrf(whole(a.rows), whole(a.columns), columns.data(), pivots.data());
      if (info > 0 && !(call.params.flags & kSingularToo)) return call.minor("the matrix is singular", info);
    }
    Matrix<T>{columns.data(), a.columns, a.rows, a.rows, 1}.transposed().copy_to(lu);
    std::int64_t* const rows = call.out<std::int64_t>(1).data;
    std::iota(rows, rows + a.rows, std::int64_t{0});
    T sign(1);
    for (std::int64_t i = 0; i < a.columns; ++i) {
      const std::int64_t other = pivots[static_cast<std::size_t>(i)] - 1;
      if (other == i) continue;
      std::swap(rows[i], rows[other]);
      sign = -sign;
    }
    *call.out<T>(2).data = sign;
    return 0;
  }
};

template <class T> struct LuUpdate {
  static int run(const Call& call) {
    const Matrix<T> lu = call.in<T>(0), c = call.in<T>(2), top = call.out<T>(0);
    const Matrix<std::int64_t> rows = call.in<std::int64_t>(1);
    if (too_large(lu) || too_large(c)) return call.refuse(kTooLarge);
    Matrix<T> rest{nullptr, 0, c.columns, c.columns, 1};
    if (call.c.output_count > 1) rest = call.out<T>(1);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      const std::int64_t from = rows.at(i, 0);
      if (from < 0 || from >= c.rows) return call.refuse("rows that are exchanged with none");
      const Matrix<T> row{&c.at(from, 0), 1, c.columns, c.row, c.column};
      row.copy_to({i < top.rows ? &top.at(i, 0) : &rest.at(i - top.rows, 0), 1, c.columns, c.columns, 1});
    }
    const bool plain = lu.column == 1 && lu.row >= lu.columns;
    const std::vector<T> copy = plain ? std::vector<T>() : lu.packed();
    const T* const factors = plain ? lu.data : copy.data();
    const int ld = whole(plain ? lu.row : lu.columns), k = whole(top.rows), n = whole(top.columns);
    const BlasTurn turn;
    trsm(CblasLower, CblasUnit, k, n, factors, ld, top.data);
    if (rest.rows > 0)
      gemm(CblasNoTrans, CblasNoTrans, whole(rest.rows), n, k, T(-1),
           factors + top.rows * static_cast<std::int64_t>(ld), ld, top.data, n, T(1), rest.data);
    return 0;
  }
};

constexpr tilewise_kernel_v1 kKernels[] = {
    {"tilewise.cholesky", run<Cholesky, kCholesky>, nullptr, 1, 1, nullptr},
    {"tilewise.solve", run<Solve, kSolve>, nullptr, 2, 1, nullptr},
    {"tilewise.det", run<Det, kDet>, nullptr, 1, 3, nullptr},
    {"tilewise.qr", run<Qr, kQr>, nullptr, 1, 2, nullptr},
    {"tilewise.geqrf", run<Geqrf, kGeqrf>, nullptr, 1, 3, nullptr},
    {"tilewise.ormqr", run<Ormqr, kOrmqr>, nullptr, 3, 1, nullptr},
    {"tilewise.eigh", run<Eigh, kEigh>, nullptr, 1, -1, nullptr},
    {"tilewise.svd", run<Svd, kSvd>, nullptr, 1, -1, nullptr},
    {"tilewise.trsm", run<Trsm, kSolve>, nullptr, 2, 1, nullptr},
    {"tilewise.update", run<Update, kUpdate>, nullptr, -1, 1, nullptr},
    {"tilewise.lu_panel", run<LuPanel, kLuPanel>, nullptr, 1, 3, nullptr},
    {"tilewise.lu_update", run<LuUpdate, kLuUpdate>, nullptr, 3, -1, nullptr},
};

}  // namespace

std::span<const tilewise_kernel_v1> host_kernels() { return kKernels; }

}  // namespace tilewise::kernels::linalg
