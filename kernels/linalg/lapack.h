// LAPACK by element type. Matrices are column-major, as Fortran has them; callers pass row-major ones as their transposes.
// The middle interface of LAPACKE ("work") neither looks for NaN nor transposes; workspaces are asked for and allocated.
#pragma once
#include <cblas.h>

#include <complex>
#include <vector>
#define LAPACK_COMPLEX_CUSTOM
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <lapacke.h>

#include "linalg/matrices.h"

namespace tilewise::kernels::linalg {

#define TILEWISE_LAPACK(T, R, p, sy, or_) \
  inline int potrf(char uplo, int n, T* a) { \
    return LAPACKE_##p##potrf_work(LAPACK_COL_MAJOR, uplo, n, a, n); \
  } \
  inline int getrf(int m, int n, T* a, int* pivots) { \
    return LAPACKE_##p##getrf_work(LAPACK_COL_MAJOR, m, n, a, m, pivots); \
  } \
  inline int getrs(char trans, int n, int k, const T* a, const int* pivots, T* b) { \
    return LAPACKE_##p##getrs_work(LAPACK_COL_MAJOR, trans, n, k, a, n, pivots, b, n); \
  } \
  inline int geqrf_work(int m, int n, T* a, T* tau, T* work, int size) { \
    return LAPACKE_##p##geqrf_work(LAPACK_COL_MAJOR, m, n, a, m, tau, work, size); \
  } \
  inline int orgqr_work(int m, int n, int k, T* a, const T* tau, T* work, int size) { \
    return LAPACKE_##p##or_##gqr_work(LAPACK_COL_MAJOR, m, n, k, a, m, tau, work, size); \
  } \
  inline int ormqr_work(char trans, int m, int n, int k, const T* a, const T* tau, T* c, T* work, \
                        int size) { \
    return LAPACKE_##p##or_##mqr_work(LAPACK_COL_MAJOR, 'L', trans, m, n, k, a, m, tau, c, m, work, size); \
  } \
  inline int syevd(char vectors, char uplo, int n, T* a, R* w) { \
    return LAPACKE_##p##sy##evd(LAPACK_COL_MAJOR, vectors, uplo, n, a, n, w); \
  } \
  inline int gesdd(char job, int m, int n, T* a, R* s, T* u, int ldu, T* vt, int ldvt) { \
    return LAPACKE_##p##gesdd(LAPACK_COL_MAJOR, job, m, n, a, m, s, u, ldu, vt, ldvt); \
  }
TILEWISE_LAPACK(float, float, s, sy, or)
TILEWISE_LAPACK(double, double, d, sy, or)
TILEWISE_LAPACK(std::complex<float>, float, c, he, un)
TILEWISE_LAPACK(std::complex<double>, double, z, he, un)
#undef TILEWISE_LAPACK

// `call(work, size)` twice: for the best size, then in earnest.
template <class T, class F> int with_workspace(F&& call) {
  T best{};
  if (const int info = call(&best, -1); info != 0) return info;
  const int size = std::max(1, static_cast<int>(std::real(best)));
  std::vector<T> work(static_cast<std::size_t>(size));
  return call(work.data(), size);
}

// C (m x n, row-major, contiguous) = alpha op(A) B + beta C
inline void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, n);
}
inline void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha, const double* a,
                 int lda, const double* b, int ldb, double beta, double* c) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, n);
}
inline void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, std::complex<float> alpha,
                 const std::complex<float>* a, int lda, const std::complex<float>* b, int ldb,
                 std::complex<float> beta, std::complex<float>* c) {
  cblas_cgemm(CblasRowMajor, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, n);
}
inline void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, std::complex<double> alpha,
                 const std::complex<double>* a, int lda, const std::complex<double>* b, int ldb,
                 std::complex<double> beta, std::complex<double>* c) {
  cblas_zgemm(CblasRowMajor, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, n);
}

// The lower triangle of C (n x n, row-major, contiguous) = alpha A^H A + beta C; A k x n, row-major.
inline void herk(int n, int k, float alpha, const float* a, int lda, float beta, float* c) {
  cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, n, k, alpha, a, lda, beta, c, n);
}
inline void herk(int n, int k, double alpha, const double* a, int lda, double beta, double* c) {
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n, k, alpha, a, lda, beta, c, n);
}
inline void herk(int n, int k, float alpha, const std::complex<float>* a, int lda, float beta,
                 std::complex<float>* c) {
  cblas_cherk(CblasRowMajor, CblasLower, CblasConjTrans, n, k, alpha, a, lda, beta, c, n);
}
inline void herk(int n, int k, double alpha, const std::complex<double>* a, int lda, double beta,
                 std::complex<double>* c) {
  cblas_zherk(CblasRowMajor, CblasLower, CblasConjTrans, n, k, alpha, a, lda, beta, c, n);
}

// X with A X = B in place of B (n x k, row-major without gaps); A row-major, its triangle alone is read.
inline void trsm(CBLAS_UPLO uplo, CBLAS_DIAG diagonal, int n, int k, const float* a, int lda, float* b) {
  cblas_strsm(CblasRowMajor, CblasLeft, uplo, CblasNoTrans, diagonal, n, k, 1, a, lda, b, k);
}
inline void trsm(CBLAS_UPLO uplo, CBLAS_DIAG diagonal, int n, int k, const double* a, int lda, double* b) {
  cblas_dtrsm(CblasRowMajor, CblasLeft, uplo, CblasNoTrans, diagonal, n, k, 1, a, lda, b, k);
}
inline void trsm(CBLAS_UPLO uplo, CBLAS_DIAG diagonal, int n, int k, const std::complex<float>* a, int lda,
                 std::complex<float>* b) {
  const std::complex<float> one = 1;
  cblas_ctrsm(CblasRowMajor, CblasLeft, uplo, CblasNoTrans, diagonal, n, k, &one, a, lda, b, k);
}
inline void trsm(CBLAS_UPLO uplo, CBLAS_DIAG diagonal, int n, int k, const std::complex<double>* a, int lda,
                 std::complex<double>* b) {
  const std::complex<double> one = 1;
  cblas_ztrsm(CblasRowMajor, CblasLeft, uplo, CblasNoTrans, diagonal, n, k, &one, a, lda, b, k);
}

}  // namespace tilewise::kernels::linalg
