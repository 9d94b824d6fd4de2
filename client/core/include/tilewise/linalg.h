// Linear algebra, named as in the Array API standard (2024.12) and, where that has no name, as in SciPy.
//
// Arrays of float32, float64, complex64 and complex128; integers are taken as float64, 16-bit floats are computed in float32
// and rounded once. The last two dimensions are matrices, those before them stacks: one computation a matrix. Mistakes of
// shape are kShapeMismatch, of other arguments kInvalidArgument or kOutOfRange, at the call. Values without such a result (a
// matrix that is singular or not positive definite, NaN or infinity where eigenvalues or singular values are asked for) are
// kSingular where the result is waited for; the text names function, array and the order of the leading minor.
//
// One matrix is computed on one device, by LAPACK (cuSOLVER on GPUs): cut ones are put together there first, and what no device
// can hold with its result is refused with kOutOfMemory, which names op, bytes needed and the largest device. Not so, but block
// by block on all devices, in an order that cuts alone decide: cholesky, solve_triangular, solve, inv, det and slogdet of a
// matrix of several blocks, lstsq, and qr, svd, svdvals and what is made of them for tall matrices cut by rows.
#pragma once
#include <tilewise/array.h>

#include <concepts>

namespace tilewise {

namespace client {  // below; here so that `{}` in the place of rtol is none
Array pinv(const Array& a, const Array& rtol);
Array matrix_rank(const Array& a, const Array& rtol);
}  // namespace client

// ---- factorisations ----
// L (lower) or U with L L^H = U^H U = a; n x n. Only the lower triangle of `a` is read. Of a cut matrix: tiles of the size of
// its row blocks (1,024 rows where they are larger), right-looking.
Array cholesky(const Array& a, bool upper = false);

struct QrResult {
  Array q, r;
};
enum class QrMode { kReduced, kComplete };
// m x n = (m x k) (k x n) with k = min(m, n), or (complete) k = m. The diagonal of r may have either sign. Where m >= 2 n and
// rows are cut into several blocks, a tree over them (TSQR; reduced only).
QrResult qr(const Array& a, QrMode mode = QrMode::kReduced);

struct SvdResult {
  Array u, s, vh;  // s: (..., k), falling
};
SvdResult svd(const Array& a, bool full_matrices = true);  // a = u[..., :, :k] * s @ vh[..., :k, :]
Array svdvals(const Array& a);

struct EighResult {
  Array eigenvalues, eigenvectors;  // (..., n) rising; (..., n, n), one a column
};
EighResult eigh(const Array& a);  // of a Hermitian matrix, of which the lower triangle is read
Array eigvalsh(const Array& a);

// ---- equations ----
// x with a x = b. b: a vector (n) or a stack of matrices (..., n, k); stacks broadcast. Of a cut matrix: elimination by slabs, all
// rows of some columns (as many as its blocks have; at most 1,024, and 128 MiB unless that is less than 32), with the row
// exchanges of LAPACK.
Array solve(const Array& a, const Array& b);
Array inv(const Array& a);
// The same for a triangular `a`, of which the other triangle is not read. b as in solve.
Array solve_triangular(const Array& a, const Array& b, bool lower = true);
struct LstsqResult {
  Array x, residuals;
};
// x with the least |b - a x| for each column of b: a (m, n) with m >= n, b (m) or (m, k), x (n) or (n, k), in the common dtype.
// residuals: the sums of squares |b - a x|^2, in the real dtype: (k), of a vector (1), and (0) where m = n, as in NumPy. By QR of
// row blocks and of their triangles (TSQR) with Q^H applied to b, for any number of row blocks: what scales columns changes no
// digit that counts, and no squares of a's condition are met. Fewer rows than columns, stacks, and right sides of another
// number of rows are kShapeMismatch. Of full column rank: where what QR leaves of a column is no more than 10 n epsilon of the
// column's largest part in R, it is kSingular, naming the order of the column (the least solution of those: matmul(pinv(a), b)).
LstsqResult lstsq(const Array& a, const Array& b);
// Singular values up to rtol * the largest count as zero. rtol: max(m, n) * epsilon unless told; as an array one for each matrix
// of the stack, or what broadcasts to that. The rank is int64.
Array pinv(const Array& a, std::optional<double> rtol = {});
template <std::same_as<Array> A> Array pinv(const Array& a, const A& rtol) { return client::pinv(a, rtol); }
Array matrix_rank(const Array& a, std::optional<double> rtol = {});
template <std::same_as<Array> A> Array matrix_rank(const Array& a, const A& rtol) {
  return client::matrix_rank(a, rtol);
}

struct SlogdetResult {
  Array sign, logabsdet;
};
Array det(const Array& a);
SlogdetResult slogdet(const Array& a);               // of a singular matrix: 0 and -infinity
Array matrix_power(const Array& a, std::int64_t n);  // n < 0: powers of the inverse

// ---- norms ----
// (sum |x|^ord)^(1/ord); ord may be infinity (the largest), -infinity (the smallest) or 0 (how many are not zero).
Array vector_norm(const Array& a, const Axes& axes = {}, bool keepdims = false, double ord = 2);
// Of matrices: "fro", "nuc" (the sum of singular values), or as a number 1, -1, 2, -2 or +-infinity. Another is kInvalidArgument.
Array matrix_norm(const Array& a, const std::string& ord = "fro", bool keepdims = false);
Array matrix_norm(const Array& a, double ord, bool keepdims = false);

// ---- elements ----
Array cross(const Array& a, const Array& b, int axis = -1);  // of vectors of three elements along `axis`
// (..., k): the elements [i, i + offset]. A zero comes out as +0.
Array diagonal(const Array& a, std::int64_t offset = 0);
Array trace(const Array& a, std::int64_t offset = 0,
            std::optional<DType> dtype = {});  // its sum, with sum()'s dtypes

}  // namespace tilewise
