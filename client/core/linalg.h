// Shared by the files of linear algebra.
#pragma once
#include <tilewise/ir/linalg.h>
#include <tilewise/linalg.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "builtin_call.h"

namespace tilewise::client::linalg {

inline std::int64_t rows(const Array& a) { return a.shape()[a.shape().size() - 2]; }
inline std::int64_t columns(const Array& a) { return a.shape().back(); }
inline Shape stack_of(const Array& a) { return Shape(a.shape().begin(), a.shape().end() - 2); }
// m n min(m, n) of one matrix, twice: what costs are multiples of.
double flops(const Array& a);

// `a` with two dimensions or more, in a dtype that LAPACK has.
Array matrix(const Array& a, const char* function);
Array adjoint(const Array& a);  // conjugate transpose
// A map without operands in the session of `like`, cast to the dtype; in default blocks unless told.
Array generated(const Array& like, const Shape& shape, DType dtype,
                const std::function<ir::TapeValue(ir::TapeBuilder&)>& build,
                const std::optional<Grid>& grid = {});

// The kernel once a matrix of the stack, which all operands share; each of these is put together in one block.
struct Out {
  DType dtype;
  std::int64_t rows, columns;
};
std::vector<Array> one_each(const char* kernel, const char* function, const std::vector<Array>& operands,
                            const std::vector<Out>& outs, double flops, std::uint32_t flags = 0);

// Is it cut between rows?
bool cuts_matrix(const Array& a);
Array blocked_cholesky(const Array& a);
Array blocked_triangular(const Array& a, const Array& b, bool lower);
// Is it cut at all?
bool is_cut(const Array& a);
Array blocked_solve(const Array& a, const Array& b, const char* function);
// The diagonal of U (n) and signs whose product is that of the row exchanges; of singular matrices too.
struct Factors {
  Array pivots, signs;
};
Factors blocked_lu_factors(const Array& a, const char* function);
// At least twice as many rows as columns, and several blocks of rows.
bool is_tall(const Array& a);
// A = Q R of a matrix with as many rows as columns or more, of any cuts, Q being kept as reflectors: a level of TSQR's tree each.
struct TallFactors {
  struct Level {
    Array reflectors, scales;  // of geqrf
  };
  std::vector<Level> levels;  // that of A first
  Array r;                    // n x n
  const char* function;
};
TallFactors tall_factors(const Array& a, const char* function);
Array multiplied(const TallFactors& q, const Array& c);             // Q C of C (n, k): (m, k)
Array multiplied_by_adjoint(const TallFactors& q, const Array& c);  // the first n rows of Q^H C

}  // namespace tilewise::client::linalg
