// libcublas for tests: OpenBLAS, in the order of the handle's stream. Column-major, as the real one is.
#include <cblas.h>
#include <cuda.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <functional>

#include "library.h"

namespace {

struct Handle {
  CUstream stream = nullptr;
};
constexpr int kSuccess = 0, kInvalidValue = 7;

CBLAS_TRANSPOSE transposed(int operation) {
  return operation == 0 ? CblasNoTrans : operation == 1 ? CblasTrans : CblasConjTrans;
}

// What cublas<t>gemm refuses: extents below zero, and leading dimensions below a column.
bool good(int a, int b, int m, int n, int k, int lda, int ldb, int ldc) {
  const auto least = [](int rows) { return rows > 1 ? rows : 1; };
  return m >= 0 && n >= 0 && k >= 0 && lda >= least(a == 0 ? m : k) && ldb >= least(b == 0 ? k : n) &&
         ldc >= least(m);
}

int enqueue(Handle* handle, std::function<void()> work) {
  return enqueue_emulated(handle->stream, std::move(work)) ? kSuccess : kInvalidValue;
}

void gemm(int a, int b, int m, int n, int k, float alpha, const float* A, int lda, const float* B, int ldb,
          float beta, float* C, int ldc) {
  cblas_sgemm(CblasColMajor, transposed(a), transposed(b), m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
void gemm(int a, int b, int m, int n, int k, double alpha, const double* A, int lda, const double* B, int ldb,
          double beta, double* C, int ldc) {
  cblas_dgemm(CblasColMajor, transposed(a), transposed(b), m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
void gemm(int a, int b, int m, int n, int k, std::complex<float> alpha, const std::complex<float>* A, int lda,
          const std::complex<float>* B, int ldb, std::complex<float> beta, std::complex<float>* C, int ldc) {
  cblas_cgemm(CblasColMajor, transposed(a), transposed(b), m, n, k, &alpha, A, lda, B, ldb, &beta, C, ldc);
}
void gemm(int a, int b, int m, int n, int k, std::complex<double> alpha, const std::complex<double>* A,
          int lda, const std::complex<double>* B, int ldb, std::complex<double> beta, std::complex<double>* C,
          int ldc) {
  cblas_zgemm(CblasColMajor, transposed(a), transposed(b), m, n, k, &alpha, A, lda, B, ldb, &beta, C, ldc);
}

template <class T>
int strided_gemm(Handle* handle, int a, int b, int m, int n, int k, const T* alpha, const T* A, int lda,
                 std::int64_t stride_a, const T* B, int ldb, std::int64_t stride_b, const T* beta, T* C,
                 int ldc, std::int64_t stride_c, int count) {
  if (!good(a, b, m, n, k, lda, ldb, ldc) || count < 0) return kInvalidValue;
  return enqueue(handle, [=, alpha = *alpha, beta = *beta] {
    for (int i = 0; i < count; ++i)
      gemm(a, b, m, n, k, alpha, A + i * stride_a, lda, B + i * stride_b, ldb, beta, C + i * stride_c, ldc);
  });
}

void trsm(CBLAS_SIDE side, CBLAS_UPLO fill, CBLAS_TRANSPOSE a, CBLAS_DIAG diagonal, int m, int n, float alpha,
          const float* A, int lda, float* B, int ldb) {
  cblas_strsm(CblasColMajor, side, fill, a, diagonal, m, n, alpha, A, lda, B, ldb);
}
void trsm(CBLAS_SIDE side, CBLAS_UPLO fill, CBLAS_TRANSPOSE a, CBLAS_DIAG diagonal, int m, int n,
          double alpha, const double* A, int lda, double* B, int ldb) {
  cblas_dtrsm(CblasColMajor, side, fill, a, diagonal, m, n, alpha, A, lda, B, ldb);
}
void trsm(CBLAS_SIDE side, CBLAS_UPLO fill, CBLAS_TRANSPOSE a, CBLAS_DIAG diagonal, int m, int n,
          std::complex<float> alpha, const std::complex<float>* A, int lda, std::complex<float>* B, int ldb) {
  cblas_ctrsm(CblasColMajor, side, fill, a, diagonal, m, n, &alpha, A, lda, B, ldb);
}
void trsm(CBLAS_SIDE side, CBLAS_UPLO fill, CBLAS_TRANSPOSE a, CBLAS_DIAG diagonal, int m, int n,
          std::complex<double> alpha, const std::complex<double>* A, int lda, std::complex<double>* B,
          int ldb) {
  cblas_ztrsm(CblasColMajor, side, fill, a, diagonal, m, n, &alpha, A, lda, B, ldb);
}

template <class T>
int solve(Handle* handle, int side, int fill, int a, int diagonal, int m, int n, const T* alpha, const T* A,
          int lda, T* B, int ldb) {
  if (m < 0 || n < 0 || lda < std::max(1, side == 0 ? m : n) || ldb < std::max(1, m)) return kInvalidValue;
  return enqueue(handle, [=, alpha = *alpha] {
    trsm(side == 0 ? CblasLeft : CblasRight, fill == 0 ? CblasLower : CblasUpper, transposed(a),
         diagonal == 0 ? CblasNonUnit : CblasUnit, m, n, alpha, A, lda, B, ldb);
  });
}

}  // namespace

#define TW_GEMM(letter, T) \
  int cublas##letter##gemm_v2(Handle* handle, int a, int b, int m, int n, int k, const T* alpha, const T* A, \
                              int lda, const T* B, int ldb, const T* beta, T* C, int ldc) { \
    return strided_gemm(handle, a, b, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1); \
  } \
  int cublas##letter##gemmStridedBatched(Handle* handle, int a, int b, int m, int n, int k, const T* alpha, \
                                         const T* A, int lda, long long stride_a, const T* B, int ldb, \
                                         long long stride_b, const T* beta, T* C, int ldc, \
                                         long long stride_c, int count) { \
    return strided_gemm(handle, a, b, m, n, k, alpha, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, \
                        stride_c, count); \
  } \
  int cublas##letter##trsm_v2(Handle* handle, int side, int fill, int a, int diagonal, int m, int n, \
                              const T* alpha, const T* A, int lda, T* B, int ldb) { \
    return solve(handle, side, fill, a, diagonal, m, n, alpha, A, lda, B, ldb); \
  }

extern "C" {

int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  return kSuccess;
}
int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return kSuccess;
}
int cublasSetStream_v2(Handle* handle, CUstream stream) {
  handle->stream = stream;
  return kSuccess;
}
int cublasSetWorkspace_v2(Handle*, void*, std::size_t) { return kSuccess; }
int cublasSetMathMode(Handle*, int) { return kSuccess; }
int cublasGetProperty(int, int* value) {
  *value = 0;
  return kSuccess;
}
TW_GEMM(S, float)
TW_GEMM(D, double)
TW_GEMM(C, std::complex<float>)
TW_GEMM(Z, std::complex<double>)

}  // extern "C"
