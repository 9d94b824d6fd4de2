// Textbook loops in complex long double, rounded once at the end.
#include <cmath>
#include <cstring>
#include <limits>

#include "linalg/matrices.h"

namespace tilewise::kernels::linalg {
// A name of its own: g++ 12 gives run<K> external linkage though K has none (a template argument that is a template), so the
// linker would take a K of this file and one of host.cc for the same.
namespace reference {
namespace {

using Wide = std::complex<long double>;

template <class T> T narrowed(Wide x) {
  if constexpr (kIsComplex<T>)
    return T(static_cast<Real<T>>(x.real()), static_cast<Real<T>>(x.imag()));
  else
    return static_cast<T>(x.real());
}

// A matrix of wide numbers.
struct Table {
  std::int64_t rows = 0, columns = 0;
  std::vector<Wide> values = {};

  Table(std::int64_t m, std::int64_t n) : rows(m), columns(n), values(static_cast<std::size_t>(m * n)) {}
  template <class T> explicit Table(const Matrix<T>& from) : Table(from.rows, from.columns) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) at(i, j) = Wide(from.at(i, j));
  }
  Wide& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  template <class T> void write(const Matrix<T>& to) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) to.at(i, j) = narrowed<T>(at(i, j));
  }
};

template <class T> struct Cholesky {
  static int run(const Call& call) {
    Table a(call.in<T>(0)), l(a.rows, a.rows);
    for (std::int64_t j = 0; j < a.rows; ++j) {
      long double d = a.at(j, j).real();
      for (std::int64_t k = 0; k < j; ++k) d -= std::norm(l.at(j, k));
      // What is left of a diagonal by rounding alone is nothing.
      if (!(d > 0) || !(d > std::abs(a.at(j, j)) * std::numeric_limits<Real<T>>::epsilon() / 8))
        return call.minor("the matrix is not positive definite", j + 1);
      l.at(j, j) = std::sqrt(d);
      for (std::int64_t i = j + 1; i < a.rows; ++i) {
        Wide x = a.at(i, j);
        for (std::int64_t k = 0; k < j; ++k) x -= l.at(i, k) * std::conj(l.at(j, k));
        l.at(i, j) = x / l.at(j, j);
      }
    }
    l.write(call.out<T>(0));
    return 0;
  }
};

// Gaussian elimination with row exchanges, of `a` and the right sides `b` with it. 0, or the order of the minor that is zero.
std::int64_t eliminate(Table& a, Table& b, int& exchanges) {
  for (std::int64_t k = 0; k < a.rows; ++k) {
    std::int64_t best = k;
    for (std::int64_t i = k + 1; i < a.rows; ++i)
      if (std::abs(a.at(i, k)) > std::abs(a.at(best, k))) best = i;
    if (a.at(best, k) == Wide(0)) return k + 1;
    exchanges += best != k;
    for (std::int64_t j = 0; best != k && j < a.columns; ++j) std::swap(a.at(k, j), a.at(best, j));
    for (std::int64_t j = 0; best != k && j < b.columns; ++j) std::swap(b.at(k, j), b.at(best, j));
    for (std::int64_t i = k + 1; i < a.rows; ++i) {
      const Wide factor = a.at(i, k) / a.at(k, k);
      for (std::int64_t j = k; j < a.columns; ++j) a.at(i, j) -= factor * a.at(k, j);
      for (std::int64_t j = 0; j < b.columns; ++j) b.at(i, j) -= factor * b.at(k, j);
    }
  }
  return 0;
}

// Back substitution (upper), or from the top (lower).
void substitute(Table& a, Table& b, bool upper) {
  for (std::int64_t s = 0; s < a.rows; ++s) {
    const std::int64_t i = upper ? a.rows - 1 - s : s;
    for (std::int64_t j = 0; j < b.columns; ++j) {
      Wide x = b.at(i, j);
      for (std::int64_t k = upper ? i + 1 : 0; k < (upper ? a.rows : i); ++k) x -= a.at(i, k) * b.at(k, j);
      b.at(i, j) = x / a.at(i, i);
    }
  }
}

template <class T> struct Solve {
  static int run(const Call& call) {
    Table a(call.in<T>(0)), b(call.in<T>(1));
    int exchanges = 0;
    if (const std::int64_t order = eliminate(a, b, exchanges); order > 0)
      return call.minor("the matrix is singular", order);
    substitute(a, b, true);
    b.write(call.out<T>(0));
    return 0;
  }
};

template <class T> struct Det {
  static int run(const Call& call) {
    Table a(call.in<T>(0)), none(a.rows, 0);
    int exchanges = 0;
    Wide sign = 1, det = 1;
    long double log = 0;
    if (eliminate(a, none, exchanges) > 0) {
      sign = det = 0;
      log = -std::numeric_limits<long double>::infinity();
    } else {
      sign = det = exchanges % 2 == 0 ? 1 : -1;
      for (std::int64_t i = 0; i < a.rows; ++i) {
        const long double size = std::abs(a.at(i, i));
        sign *= a.at(i, i) / size;
        det *= a.at(i, i);
        log += std::log(size);
      }
    }
    *call.out<T>(0).data = narrowed<T>(sign);
    *call.out<Real<T>>(1).data = static_cast<Real<T>>(log);
    *call.out<T>(2).data = narrowed<T>(det);
    return 0;
  }
};

template <class T> struct Trsm {
  static int run(const Call& call) {
    Table a(call.in<T>(0)), b(call.in<T>(1));
    for (std::int64_t i = 0; i < a.rows; ++i)
      if (a.at(i, i) == Wide(0)) return call.minor("the matrix is singular", i + 1);
    if (call.params.flags & kConjugate)
      for (Wide& x : b.values) x = std::conj(x);
    substitute(a, b, (call.params.flags & kUpper) != 0);
    b.write(call.out<T>(0));
    return 0;
  }
};

template <class T> struct Update {
  static int run(const Call& call) {
    const bool plus = call.c.input_count > 2;
    Table a(call.in<T>(plus ? 1 : 0)), b(call.in<T>(plus ? 2 : 1)), c(a.rows, b.columns);
    const tilewise_view_v1& out = call.c.outputs[0];
    const int row = out.rank - 2, column = out.rank - 1;
    const bool above = (call.params.flags & kLower) && out.lo[column] >= out.lo[row] + out.shape[row];
    if (plus && !above) c = Table(call.in<T>(0));
    const bool diagonal = (call.params.flags & kLower) && out.lo[column] == out.lo[row];
    for (std::int64_t i = 0; !above && i < c.rows; ++i)
      for (std::int64_t j = 0; j < c.columns; ++j) {
        if (diagonal && j > i) {
          c.at(i, j) = 0;
          continue;
        }
        Wide sum = 0;
        for (std::int64_t k = 0; k < a.columns; ++k)
          sum += (call.params.flags & kConjugate ? std::conj(a.at(i, k)) : a.at(i, k)) * b.at(k, j);
        c.at(i, j) += plus ? -sum : sum;
      }
    c.write(call.out<T>(0));
    return 0;
  }
};

// What LAPACK and BLAS choose pivots by.
long double weight(Wide x) { return std::abs(x.real()) + std::abs(x.imag()); }

template <class T> struct LuPanel {
  static int run(const Call& call) {
    Table a(call.in<T>(0));
    std::int64_t* const rows = call.out<std::int64_t>(1).data;
    for (std::int64_t i = 0; i < a.rows; ++i) rows[i] = i;
    T sign(1);
    for (std::int64_t k = 0; k < a.columns; ++k) {
      std::int64_t best = k;
      for (std::int64_t i = k + 1; i < a.rows; ++i)
        if (weight(a.at(i, k)) > weight(a.at(best, k))) best = i;
      if (a.at(best, k) == Wide(0)) {
        if (!(call.params.flags & kSingularToo)) return call.minor("the matrix is singular", k + 1);
        continue;
      }
      if (best != k) {
        for (std::int64_t j = 0; j < a.columns; ++j) std::swap(a.at(k, j), a.at(best, j));
        std::swap(rows[k], rows[best]);
        sign = -sign;
      }
      for (std::int64_t i = k + 1; i < a.rows; ++i) {
        a.at(i, k) /= a.at(k, k);
        for (std::int64_t j = k + 1; j < a.columns; ++j) a.at(i, j) -= a.at(i, k) * a.at(k, j);
      }
    }
    a.write(call.out<T>(0));
    *call.out<T>(2).data = sign;
    return 0;
  }
};

template <class T> struct LuUpdate {
  static int run(const Call& call) {
    Table lu(call.in<T>(0)), c(call.in<T>(2)), out(c.rows, c.columns);
    const Matrix<std::int64_t> rows = call.in<std::int64_t>(1);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      const std::int64_t from = rows.at(i, 0);
      if (from < 0 || from >= c.rows) return call.refuse("rows that are exchanged with none");
      for (std::int64_t j = 0; j < c.columns; ++j) {
        Wide& x = out.at(i, j) = c.at(from, j);
        for (std::int64_t k = 0; k < std::min(i, lu.columns); ++k) x -= lu.at(i, k) * out.at(k, j);
        (i < lu.columns ? call.out<T>(0).at(i, j) : call.out<T>(1).at(i - lu.columns, j)) = narrowed<T>(x);
      }
    }
    return 0;
  }
};

// LAPACK's reflectors (larfg, geqr2): A's columns one after the other, R above the diagonal, and below it v with
// H = I - tau v v^H; v has 1 where R's diagonal is stored. Q = H_1 H_2 ... H_k, its tau behind each other.
std::vector<Wide> reflect(Table& a) {
  std::vector<Wide> tau;
  for (std::int64_t j = 0; j < std::min(a.rows, a.columns); ++j) {
    long double below = 0;
    for (std::int64_t i = j + 1; i < a.rows; ++i) below += std::norm(a.at(i, j));
    const Wide alpha = a.at(j, j);
    if (below == 0 && alpha.imag() == 0) {
      tau.push_back(0);
      continue;
    }
    const long double beta = -std::copysign(std::sqrt(std::norm(alpha) + below), alpha.real());
    tau.push_back((beta - alpha) / beta);
    for (std::int64_t i = j + 1; i < a.rows; ++i) a.at(i, j) /= alpha - beta;
    a.at(j, j) = beta;
    for (std::int64_t c = j + 1; c < a.columns; ++c) {  // H^H
      Wide dot = a.at(j, c);
      for (std::int64_t i = j + 1; i < a.rows; ++i) dot += std::conj(a.at(i, j)) * a.at(i, c);
      dot *= std::conj(tau.back());
      a.at(j, c) -= dot;
      for (std::int64_t i = j + 1; i < a.rows; ++i) a.at(i, c) -= a.at(i, j) * dot;
    }
  }
  return tau;
}

// C becomes Q C, or Q^H C.
void apply_reflectors(Table& v, const std::vector<Wide>& tau, Table& c, bool adjoint) {
  const auto k = static_cast<std::int64_t>(tau.size());
  for (std::int64_t s = 0; s < k; ++s) {
    const std::int64_t j = adjoint ? s : k - 1 - s;
    const Wide factor = tau[static_cast<std::size_t>(j)];
    for (std::int64_t col = 0; col < c.columns; ++col) {
      Wide dot = c.at(j, col);
      for (std::int64_t i = j + 1; i < c.rows; ++i) dot += std::conj(v.at(i, j)) * c.at(i, col);
      dot *= adjoint ? std::conj(factor) : factor;
      c.at(j, col) -= dot;
      for (std::int64_t i = j + 1; i < c.rows; ++i) c.at(i, col) -= v.at(i, j) * dot;
    }
  }
}

// R: as many rows as are wanted, zero below the diagonal.
template <class T> void write_triangle(Table& factors, const Matrix<T>& r) {
  for (std::int64_t i = 0; i < r.rows; ++i)
    for (std::int64_t j = 0; j < r.columns; ++j)
      r.at(i, j) = j >= i && i < factors.rows ? narrowed<T>(factors.at(i, j)) : T(0);
}

template <class T> struct Qr {
  static int run(const Call& call) {
    Table a(call.in<T>(0));
    const Matrix<T> to = call.out<T>(0);
    Table q(a.rows, to.columns);
    for (std::int64_t i = 0; i < std::min(q.rows, q.columns); ++i) q.at(i, i) = 1;
    const std::vector<Wide> tau = reflect(a);
    write_triangle(a, call.out<T>(1));
    apply_reflectors(a, tau, q, false);
    q.write(to);
    return 0;
  }
};

template <class T> struct Geqrf {
  static int run(const Call& call) {
    Table a(call.in<T>(0));
    const std::vector<Wide> tau = reflect(a);
    a.write(call.out<T>(0));
    const Matrix<T> t = call.out<T>(1);
    for (std::int64_t i = 0; i < t.rows; ++i)
      t.at(i, 0) =
          i < static_cast<std::int64_t>(tau.size()) ? narrowed<T>(tau[static_cast<std::size_t>(i)]) : T(0);
    write_triangle(a, call.out<T>(2));
    return 0;
  }
};

template <class T> struct Ormqr {
  static int run(const Call& call) {
    Table v(call.in<T>(0)), t(call.in<T>(1)), from(call.in<T>(2));
    const Matrix<T> to = call.out<T>(0);
    t.values.resize(static_cast<std::size_t>(std::min(v.rows, v.columns)));
    Table c(v.rows, from.columns);
    for (std::int64_t i = 0; i < std::min(c.rows, from.rows); ++i)
      for (std::int64_t j = 0; j < c.columns; ++j) c.at(i, j) = from.at(i, j);
    apply_reflectors(v, t.values, c, (call.params.flags & kAdjoint) != 0);
    for (std::int64_t i = 0; i < to.rows; ++i)
      for (std::int64_t j = 0; j < to.columns; ++j) to.at(i, j) = i < c.rows ? narrowed<T>(c.at(i, j)) : T(0);
    return 0;
  }
};

struct Named {
  const char* name;
  tilewise_kernel_fn run;
};
constexpr Named kReferences[] = {
    {"tilewise.cholesky", run<Cholesky, kCholesky>},
    {"tilewise.solve", run<Solve, kSolve>},
    {"tilewise.det", run<Det, kDet>},
    {"tilewise.qr", run<Qr, kQr>},
    {"tilewise.geqrf", run<Geqrf, kGeqrf>},
    {"tilewise.ormqr", run<Ormqr, kOrmqr>},
    {"tilewise.trsm", run<Trsm, kSolve>},
    {"tilewise.update", run<Update, kUpdate>},
    {"tilewise.lu_panel", run<LuPanel, kLuPanel>},
    {"tilewise.lu_update", run<LuUpdate, kLuUpdate>},
};

}  // namespace
}  // namespace reference

tilewise_kernel_fn reference_of(const char* kernel) {
  for (const auto& named : reference::kReferences)
    if (std::strcmp(named.name, kernel) == 0) return named.run;
  return nullptr;
}

}  // namespace tilewise::kernels::linalg
