// libcusolver for tests: LAPACK, in the order of the handle's stream. It refuses what the real one refuses: m < n where
// singular values are asked for, leading dimensions below a column, less workspace than it said it wants. What it says is
// more than LAPACK wants, and all of it is written to.
#include <algorithm>
#include <complex>
#define LAPACK_COMPLEX_CUSTOM
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <lapacke.h>

#include <cstring>
#include <vector>

#include "library.h"

namespace {

struct Handle {
  CUstream stream = nullptr;
};
constexpr int kSuccess = 0, kInvalidValue = 3, kExecutionFailed = 6;

int least(int rows) { return std::max(1, rows); }
int wanted(int m, int n) { return 64 + 4 * (m + n); }

// LAPACKE's upper interface looks for NaN, which cuSOLVER does not: the lower one wants workspace.
std::size_t room_for(int n) { return 32 * static_cast<std::size_t>(least(n)); }

template <class T, class Work>
int enqueue(Handle* handle, T* work, int size, int least_size, int* info, Work&& compute) {
  if (handle == nullptr || info == nullptr || size < least_size || (least_size > 0 && work == nullptr))
    return kInvalidValue;
  const bool done = enqueue_emulated(handle->stream, [=] {
    if (size > 0) std::memset(static_cast<void*>(work), 0xFF, static_cast<std::size_t>(size) * sizeof(T));
    *info = compute();
  });
  return done ? kSuccess : kExecutionFailed;
}
char uplo(int fill) { return fill == 0 ? 'L' : 'U'; }
char operation(int code) { return code == 0 ? 'N' : code == 1 ? 'T' : 'C'; }

// From the left only; the adjoint of real numbers is 'T', of complex ones 'C'.
template <class T> bool applies(int side, int trans, int m, int n, int k, int lda, int ldc) {
  const int turned = std::is_floating_point_v<T> ? 1 : 2;
  return side == 0 && (trans == 0 || trans == turned) && m >= k && k >= 0 && n >= 0 && lda >= least(m) &&
         ldc >= least(m);
}

}  // namespace

#define TW_SOLVER(letter, T, R, p, Sy, sy, Or, or_) \
  int cusolverDn##letter##potrf_bufferSize(Handle*, int, int n, T*, int lda, int* size) { \
    *size = wanted(n, n); \
    return n >= 0 && lda >= least(n) ? kSuccess : kInvalidValue; \
  } \
  int cusolverDn##letter##potrf(Handle* handle, int fill, int n, T* a, int lda, T* work, int size, \
                                int* info) { \
    if (n < 0 || lda < least(n)) return kInvalidValue; \
    return enqueue(handle, work, size, wanted(n, n), info, \
                   [=] { return LAPACKE_##p##potrf_work(LAPACK_COL_MAJOR, uplo(fill), n, a, lda); }); \
  } \
  int cusolverDn##letter##getrf_bufferSize(Handle*, int m, int n, T*, int lda, int* size) { \
    *size = wanted(m, n); \
    return m >= 0 && n >= 0 && lda >= least(m) ? kSuccess : kInvalidValue; \
  } \
  int cusolverDn##letter##getrf(Handle* handle, int m, int n, T* a, int lda, T* work, int* pivots, \
                                int* info) { \
    if (m < 0 || n < 0 || lda < least(m)) return kInvalidValue; \
    return enqueue(handle, work, wanted(m, n), wanted(m, n), info, \
                   [=] { return LAPACKE_##p##getrf_work(LAPACK_COL_MAJOR, m, n, a, lda, pivots); }); \
  } \
  int cusolverDn##letter##getrs(Handle* handle, int trans, int n, int k, const T* a, int lda, \
                                const int* pivots, T* b, int ldb, int* info) { \
    if (n < 0 || k < 0 || lda < least(n) || ldb < least(n)) return kInvalidValue; \
    return enqueue(handle, b, 0, 0, info, [=] { \
      return LAPACKE_##p##getrs_work(LAPACK_COL_MAJOR, operation(trans), n, k, a, lda, pivots, b, ldb); \
    }); \
  } \
  int cusolverDn##letter##geqrf_bufferSize(Handle*, int m, int n, T*, int lda, int* size) { \
    *size = wanted(m, n); \
    return m >= 0 && n >= 0 && lda >= least(m) ? kSuccess : kInvalidValue; \
  } \
  int cusolverDn##letter##geqrf(Handle* handle, int m, int n, T* a, int lda, T* tau, T* work, int size, \
                                int* info) { \
    if (m < 0 || n < 0 || lda < least(m)) return kInvalidValue; \
    return enqueue(handle, work, size, wanted(m, n), info, [=] { \
      std::vector<T> room(room_for(n)); \
      return LAPACKE_##p##geqrf_work(LAPACK_COL_MAJOR, m, n, a, lda, tau, room.data(), \
                                     static_cast<int>(room.size())); \
    }); \
  } \
  int cusolverDn##letter##Or##gqr_bufferSize(Handle*, int m, int n, int k, const T*, int lda, const T*, \
                                             int* size) { \
    *size = wanted(m, n); \
    return m >= n && n >= k && k >= 0 && lda >= least(m) ? kSuccess : kInvalidValue; \
  } \
  int cusolverDn##letter##Or##gqr(Handle* handle, int m, int n, int k, T* a, int lda, const T* tau, T* work, \
                                  int size, int* info) { \
    if (m < n || n < k || k < 0 || lda < least(m)) return kInvalidValue; \
    return enqueue(handle, work, size, wanted(m, n), info, [=] { \
      std::vector<T> room(room_for(n)); \
      return LAPACKE_##p##or_##gqr_work(LAPACK_COL_MAJOR, m, n, k, a, lda, tau, room.data(), \
                                        static_cast<int>(room.size())); \
    }); \
  } \
  int cusolverDn##letter##Or##mqr_bufferSize(Handle*, int side, int trans, int m, int n, int k, const T*, \
                                             int lda, const T*, const T*, int ldc, int* size) { \
    *size = wanted(m, n); \
    return applies<T>(side, trans, m, n, k, lda, ldc) ? kSuccess : kInvalidValue; \
  } \
  int cusolverDn##letter##Or##mqr(Handle* handle, int side, int trans, int m, int n, int k, const T* a, \
                                  int lda, const T* tau, T* c, int ldc, T* work, int size, int* info) { \
    if (!applies<T>(side, trans, m, n, k, lda, ldc)) return kInvalidValue; \
    return enqueue(handle, work, size, wanted(m, n), info, [=] { \
      std::vector<T> room(64 * room_for(n)); \
      return LAPACKE_##p##or_##mqr_work(LAPACK_COL_MAJOR, 'L', operation(trans), m, n, k, a, lda, tau, c, \
                                        ldc, room.data(), static_cast<int>(room.size())); \
    }); \
  } \
  int cusolverDn##letter##Sy##evd_bufferSize(Handle*, int, int, int n, const T*, int lda, const R*, \
                                             int* size) { \
    *size = wanted(n, n); \
    return n >= 0 && lda >= least(n) ? kSuccess : kInvalidValue; \
  } \
  int cusolverDn##letter##Sy##evd(Handle* handle, int vectors, int fill, int n, T* a, int lda, R* w, \
                                  T* work, int size, int* info) { \
    if (n < 0 || lda < least(n)) return kInvalidValue; \
    return enqueue(handle, work, size, wanted(n, n), info, [=] { \
      return LAPACKE_##p##sy##evd(LAPACK_COL_MAJOR, vectors == 0 ? 'N' : 'V', uplo(fill), n, a, lda, w); \
    }); \
  } \
  int cusolverDn##letter##gesvd_bufferSize(Handle*, int m, int n, int* size) { \
    *size = wanted(m, n); \
    return m >= n && n >= 0 ? kSuccess : kInvalidValue; \
  } \
  int cusolverDn##letter##gesvd(Handle* handle, signed char job_u, signed char job_vh, int m, int n, T* a, \
                                int lda, R* s, T* u, int ldu, T* vh, int ldvh, T* work, int size, R*, \
                                int* info) { \
    if (m < n || lda < least(m) || (job_u != 'N' && ldu < least(m)) || (job_vh != 'N' && ldvh < least(n))) \
      return kInvalidValue; \
    return enqueue(handle, work, size, wanted(m, n), info, [=] { \
      std::vector<R> rest(static_cast<std::size_t>(least(n))); \
      return LAPACKE_##p##gesvd(LAPACK_COL_MAJOR, static_cast<char>(job_u), static_cast<char>(job_vh), m, n, \
                                a, lda, s, u, ldu, vh, ldvh, rest.data()); \
    }); \
  }

extern "C" {

int cusolverDnCreate(Handle** handle) {
  *handle = new Handle;
  return kSuccess;
}
int cusolverDnDestroy(Handle* handle) {
  delete handle;
  return kSuccess;
}
int cusolverDnSetStream(Handle* handle, CUstream stream) {
  handle->stream = stream;
  return kSuccess;
}
int cusolverGetProperty(int, int* value) {
  *value = 0;
  return kSuccess;
}
TW_SOLVER(S, float, float, s, sy, sy, or, or)
TW_SOLVER(D, double, double, d, sy, sy, or, or)
TW_SOLVER(C, std::complex<float>, float, c, he, he, un, un)
TW_SOLVER(Z, std::complex<double>, double, z, he, he, un, un)

}  // extern "C"
