// Textbook loops in complex long double, rounded once at the end.
#include <cmath>
#include <cstring>
#include <limits>

#include "linalg/matrices.h"

namespace tilewise::kernels::linalg {
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

template <class T> struct LuPanel {
  static int run(const Call& call) {
    Table a(call.in<T>(0));
    std::int64_t* const rows = call.out<std::int64_t>(1).data;
    for (std::int64_t i = 0; i < a.rows; ++i) rows[i] = i;
    T sign(1);
    for (std::int64_t k = 0; k < a.columns; ++k) {
      std::int64_t best = k;
      for (std::int64_t i = k + 1; i < a.rows; ++i)
        if (std::abs(a.at(i, k)) > std::abs(a.at(best, k))) best = i;
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

struct Named {
  const char* name;
  tilewise_kernel_fn run;
};
constexpr Named kReferences[] = {
    {"tilewise.cholesky", run<Cholesky, kCholesky>},
    {"tilewise.solve", run<Solve, kSolve>},
    {"tilewise.det", run<Det, kDet>},
    {"tilewise.trsm", run<Trsm, kSolve>},
    {"tilewise.update", run<Update, kUpdate>},
    {"tilewise.lu_panel", run<LuPanel, kLuPanel>},
    {"tilewise.lu_update", run<LuUpdate, kLuUpdate>},
};

}  // namespace

tilewise_kernel_fn reference_of(const char* kernel) {
  for (const Named& named : kReferences)
    if (std::strcmp(named.name, kernel) == 0) return named.run;
  return nullptr;
}

}  // namespace tilewise::kernels::linalg
