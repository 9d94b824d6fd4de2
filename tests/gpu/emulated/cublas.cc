// libcublas for tests: OpenBLAS, in the order of the handle's stream. Column-major, as the real one is.
#include <cblas.h>
#include <cuda.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <vector>

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

// cudaDataType and cublasComputeType_t, as far as they are met.
constexpr int kR32F = 0, kR16F = 2, kR16BF = 14, kCompute32F = 68, kComputeTf32 = 77;

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float size = exponent == 31  ? mantissa == 0 ? INFINITY : NAN
                     : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                     : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return bits >> 15 ? -size : size;
}
// To ten bits of mantissa, as tensor cores may do.
float rounded_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::isfinite(value) ? std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu) : value;
}
// A matrix of `columns` columns as float32.
std::vector<float> widened(const void* from, int type, int ld, int columns, bool tf32) {
  std::vector<float> out(static_cast<std::size_t>(ld) * static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (type == kR32F)
      out[i] = static_cast<const float*>(from)[i];
    else if (type == kR16F)
      out[i] = from_half(static_cast<const std::uint16_t*>(from)[i]);
    else
      out[i] = std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(from)[i]} << 16);
    if (tf32) out[i] = rounded_tf32(out[i]);
  }
  return out;
}

int mixed_gemm(Handle* handle, int a, int b, int m, int n, int k, const void* alpha, const void* A,
               int type_a, int lda, std::int64_t stride_a, const void* B, int type_b, int ldb,
               std::int64_t stride_b, const void* beta, void* C, int type_c, int ldc, std::int64_t stride_c,
               int count, int compute) {
  const bool known = type_a == type_b && type_c == kR32F &&
                     (type_a == kR16F || type_a == kR16BF || type_a == kR32F) &&
                     (compute == kCompute32F || (compute == kComputeTf32 && type_a == kR32F));
  if (!known || !good(a, b, m, n, k, lda, ldb, ldc) || count < 0) return kInvalidValue;
  const std::int64_t size = type_a == kR32F ? 4 : 2;
  return enqueue(
      handle, [=, alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta)] {
        // The last column of a matrix in a larger one may end before the next would begin.
        const auto matrix = [&](const void* from, int ld, int rows, int columns) {
          std::vector<float> out = widened(from, type_a, ld, columns - 1, compute == kComputeTf32);
          const std::vector<float> last =
              widened(static_cast<const char*>(from) + std::int64_t{ld} * (columns - 1) * size, type_a, rows,
                      1, compute == kComputeTf32);
          out.insert(out.end(), last.begin(), last.end());
          return out;
        };
        for (int i = 0; i < count; ++i) {
          const std::vector<float> left = matrix(static_cast<const char*>(A) + i * stride_a * size, lda,
                                                 a == 0 ? m : k, a == 0 ? k : m),
                                   right = matrix(static_cast<const char*>(B) + i * stride_b * size, ldb,
                                                  b == 0 ? k : n, b == 0 ? n : k);
          gemm(a, b, m, n, k, alpha, left.data(), lda, right.data(), ldb, beta,
               static_cast<float*>(C) + i * stride_c, ldc);
        }
      });
}

void rank_k(CBLAS_UPLO fill, CBLAS_TRANSPOSE a, int n, int k, float alpha, const float* A, int lda,
            float beta, float* C, int ldc) {
  cblas_ssyrk(CblasColMajor, fill, a, n, k, alpha, A, lda, beta, C, ldc);
}
void rank_k(CBLAS_UPLO fill, CBLAS_TRANSPOSE a, int n, int k, double alpha, const double* A, int lda,
            double beta, double* C, int ldc) {
  cblas_dsyrk(CblasColMajor, fill, a, n, k, alpha, A, lda, beta, C, ldc);
}
void rank_k(CBLAS_UPLO fill, CBLAS_TRANSPOSE a, int n, int k, float alpha, const std::complex<float>* A,
            int lda, float beta, std::complex<float>* C, int ldc) {
  cblas_cherk(CblasColMajor, fill, a, n, k, alpha, A, lda, beta, C, ldc);
}
void rank_k(CBLAS_UPLO fill, CBLAS_TRANSPOSE a, int n, int k, double alpha, const std::complex<double>* A,
            int lda, double beta, std::complex<double>* C, int ldc) {
  cblas_zherk(CblasColMajor, fill, a, n, k, alpha, A, lda, beta, C, ldc);
}
template <class T, class R>
int add_squares(Handle* handle, int fill, int a, int n, int k, const R* alpha, const T* A, int lda,
                const R* beta, T* C, int ldc) {
  if (n < 0 || k < 0 || lda < std::max(1, a == 0 ? n : k) || ldc < std::max(1, n)) return kInvalidValue;
  return enqueue(handle, [=, alpha = *alpha, beta = *beta] {
    rank_k(fill == 0 ? CblasLower : CblasUpper, transposed(a), n, k, alpha, A, lda, beta, C, ldc);
  });
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
int cublasGemmEx(Handle* handle, int a, int b, int m, int n, int k, const void* alpha, const void* A,
                 int type_a, int lda, const void* B, int type_b, int ldb, const void* beta, void* C,
                 int type_c, int ldc, int compute, int) {
  return mixed_gemm(handle, a, b, m, n, k, alpha, A, type_a, lda, 0, B, type_b, ldb, 0, beta, C, type_c, ldc,
                    0, 1, compute);
}
int cublasGemmStridedBatchedEx(Handle* handle, int a, int b, int m, int n, int k, const void* alpha,
                               const void* A, int type_a, int lda, long long stride_a, const void* B,
                               int type_b, int ldb, long long stride_b, const void* beta, void* C, int type_c,
                               int ldc, long long stride_c, int count, int compute, int) {
  return mixed_gemm(handle, a, b, m, n, k, alpha, A, type_a, lda, stride_a, B, type_b, ldb, stride_b, beta, C,
                    type_c, ldc, stride_c, count, compute);
}
#define TW_RANK_K(name, T, R) \
  int name(Handle* handle, int fill, int a, int n, int k, const R* alpha, const T* A, int lda, \
           const R* beta, T* C, int ldc) { \
    return add_squares(handle, fill, a, n, k, alpha, A, lda, beta, C, ldc); \
  }
TW_RANK_K(cublasSsyrk_v2, float, float)
TW_RANK_K(cublasDsyrk_v2, double, double)
TW_RANK_K(cublasCherk_v2, std::complex<float>, float)
TW_RANK_K(cublasZherk_v2, std::complex<double>, double)
TW_GEMM(S, float)
TW_GEMM(D, double)
TW_GEMM(C, std::complex<float>)
TW_GEMM(Z, std::complex<double>)

}  // extern "C"
