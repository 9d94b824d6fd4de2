// Linear algebra of single blocks: built-in kernels of kCall. The last two dimensions are matrices, those before them a
// stack; float32, float64, complex64 and complex128. Parameters are one `Params`; all outputs have the rank of the inputs,
// with extents of 1 where there is less to say.
//
//   kernel               inputs -> outputs
//   tilewise.cholesky    A (n, n), its lower triangle -> L with L L^H = A
//   tilewise.solve       A (n, n), B (n, k) -> X with A X = B
//   tilewise.det         A (n, n) -> sign (1, 1), log |det| (1, 1; real), det (1, 1)
//   tilewise.qr          A (m, n) -> Q (m, c), R (c, n); c = min(m, n), or m, or with fewer rows n: the rest is zero
//   tilewise.geqrf       A (m, n) -> its factors (m, n): R, and below it the reflectors whose product is Q; tau (t, 1), their
//                        scales, t >= k = min(m, n), the rest zero; R alone (c, n), c >= k, the rest zero
//   tilewise.ormqr       factors (m, n), tau (t, 1), C (p, r) -> Q C or Q^H C (q, r), Q being m x m and never formed. C has zeros
//                        where p < m, and what it has more is not read; so has the result where q > m, or loses its last rows
//   tilewise.eigh        A (n, n), its lower triangle -> w (n, 1; real, rising) (, V (n, n))
//   tilewise.svd         A (m, n) -> S (k, 1; real, falling) (, U (m, c), Vh (d, n); c, d = min(m, n), or m and n)
//   tilewise.trsm        A (n, n) triangular, B (n, k) -> X with A X = B, or conj(B)
//   tilewise.update      C (m, n), A (m, k), B (k, n) -> C - A B; without C: A B. A may be conjugated. Where a lower
//                        triangle is wanted of B^H B, in the same memory: half the work (syrk, herk)
//   tilewise.lu_panel    A (m, n), m >= n -> its LU factors (m, n), rows exchanged; which row of A came where (m, 1; int64);
//                        the sign of that permutation (1, 1)
//   tilewise.lu_update   the first two (m, k; m, 1), C (m, n) -> L^-1 of C's first k rows as exchanged (k, n) (, what is left
//                        of the others: (m - k, n))
//
// Like all built-in kernels these return an Errc. Values without such a result (a singular or not positive definite matrix,
// NaN where nothing would converge) are kSingular, with a message that names the caller's function and the leading minor.
#pragma once
#include <tilewise/ir/linalg.h>
#include <tilewise/kernels/plugin_abi.h>

#include <span>

namespace tilewise::kernels::linalg {

using ir::linalg::kAdjoint;
using ir::linalg::kConjugate;
using ir::linalg::kLower;
using ir::linalg::kSingularToo;
using ir::linalg::kUpper;
using ir::linalg::Params;

std::span<const tilewise_kernel_v1> host_kernels();
// Plain loops in long double. Null where the host's version serves: eigenvectors and singular vectors are not unique, and are
// tested by their definition (tests/conformance/linalg_test.cc).
tilewise_kernel_fn reference_of(const char* kernel);

}  // namespace tilewise::kernels::linalg
