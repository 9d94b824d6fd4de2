#include "cublas.h"

#include <tilewise/cuda/libraries.h>

#include <algorithm>
#include <limits>

#include "matrix.h"

namespace tilewise::cuda {
namespace {

// From the cuBLAS documentation: names and values of its version 2 interface, stable since 2012. Declared here because
// slim toolkits have no cublas_v2.h.
using Code = int;
constexpr Code kSuccess = 0;
enum Operation : int { kAsIs = 0, kTransposed = 1, kConjugateTransposed = 2 };
constexpr int kLowerFill = 0, kUpperFill = 1, kRightSide = 1, kAnyDiagonal = 0, kUnitDiagonal = 1;
constexpr int kDefaultMath = 0;  // full precision of the type

template <class T>
using GemmFunction = Code (*)(void* handle, Operation a, Operation b, int m, int n, int k, const T* alpha,
                              const T* A, int lda, const T* B, int ldb, const T* beta, T* C, int ldc);

template <class T>
using BatchedGemmFunction = Code (*)(void* handle, Operation a, Operation b, int m, int n, int k,
                                     const T* alpha, const T* A, int lda, long long stride_a, const T* B,
                                     int ldb, long long stride_b, const T* beta, T* C, int ldc,
                                     long long stride_c, int count);
template <class T>
using TrsmFunction = Code (*)(void* handle, int side, int fill, Operation a, int diagonal, int m, int n,
                              const T* alpha, const T* A, int lda, T* B, int ldb);
template <class T> struct Complex;
template <class T> struct RealOf { using type = T; };
template <class T> struct RealOf<Complex<T>> { using type = T; };
template <class T>
using RankKFunction = Code (*)(void* handle, int fill, Operation a, int n, int k,
                               const typename RealOf<T>::type* alpha, const T* A, int lda,
                               const typename RealOf<T>::type* beta, T* C, int ldc);
template <class T> struct Typed {
  RankKFunction<T> rank_k;
  GemmFunction<T> one;
  BatchedGemmFunction<T> batched;
  TrsmFunction<T> trsm;
};

Error blas_error(Code code, const char* doing) {
  // 3: CUBLAS_STATUS_ALLOC_FAILED
  return error(code == 3 ? Errc::kOutOfMemory : Errc::kDeviceError,
               std::string(doing) + ": cuBLAS status " + std::to_string(code));
}

// As cuComplex and cuDoubleComplex.
template <class T> struct Complex {
  T re = 0, im = 0;
  Complex() = default;
  Complex(int real) : re(static_cast<T>(real)) {}
};

template <class T> Status call(const Typed<T>& gemms, void* handle, const Gemm& g) {
  const T one = g.subtract ? T(-1) : T(1), beta = g.accumulate ? T(1) : T(0);
  // cuBLAS is column-major: a row-major product is the product of the transposes, operands exchanged.
  const Operation first = g.transpose_b ? kTransposed : kAsIs,
                  second = g.transpose_a ? g.conjugate_a ? kConjugateTransposed : kTransposed : kAsIs;
  const int m = static_cast<int>(g.n), n = static_cast<int>(g.m), k = static_cast<int>(g.k),
            lda = static_cast<int>(g.ldb), ldb = static_cast<int>(g.lda), ldc = static_cast<int>(g.ldc);
  const T *a = static_cast<const T*>(g.b), *b = static_cast<const T*>(g.a);
  T* const c = static_cast<T*>(g.c);
  const Code code = g.count == 1
                        ? gemms.one(handle, first, second, m, n, k, &one, a, lda, b, ldb, &beta, c, ldc)
                        : gemms.batched(handle, first, second, m, n, k, &one, a, lda, g.stride_b, b, ldb,
                                        g.stride_a, &beta, c, ldc, g.stride_c, static_cast<int>(g.count));
  if (code != kSuccess)
    return blas_error(code, g.count == 1 ? "cublas<t>gemm" : "cublas<t>gemmStridedBatched");
  return {};
}

// By columns C is transposed, its lower triangle the upper one, and A^H A its conjugate: A^T conj(A), of A^T as it lies there.
template <class T> Status call(const Typed<T>& functions, void* handle, const RankK& r) {
  using Real = typename RealOf<T>::type;
  const Real one = r.subtract ? Real(-1) : Real(1), beta = r.accumulate ? Real(1) : Real(0);
  const Code code = functions.rank_k(handle, kUpperFill, kAsIs, static_cast<int>(r.n), static_cast<int>(r.k),
                                     &one, static_cast<const T*>(r.a), static_cast<int>(r.lda), &beta,
                                     static_cast<T*>(r.c), static_cast<int>(std::max<std::int64_t>(1, r.n)));
  if (code != kSuccess) return blas_error(code, "cublas<t>syrk or herk");
  return {};
}

// Of transposes, from the right: X^T A^T = B^T. What is stored by rows is A^T already, with its triangle on the other side.
template <class T> Status call(const Typed<T>& functions, void* handle, const Trsm& s) {
  const T one = 1;
  const Code code = functions.trsm(handle, kRightSide, s.upper == s.transpose_a ? kUpperFill : kLowerFill,
                                   s.transpose_a ? kTransposed : kAsIs, s.unit ? kUnitDiagonal : kAnyDiagonal,
                                   static_cast<int>(s.k), static_cast<int>(s.n), &one,
                                   static_cast<const T*>(s.a), static_cast<int>(s.lda), static_cast<T*>(s.b),
                                   static_cast<int>(std::max<std::int64_t>(1, s.k)));
  if (code != kSuccess) return blas_error(code, "cublas<t>trsm");
  return {};
}

// Products whose factors and sums differ in dtype, or that may round. From library_types.h and cublas_api.h.
constexpr int kR32F = 0, kR16F = 2, kR16BF = 14;    // cudaDataType
constexpr int kCompute32F = 68, kComputeTf32 = 77;  // cublasComputeType_t
constexpr int kDefaultAlgorithm = -1;               // CUBLAS_GEMM_DEFAULT
using GemmEx = Code (*)(void* handle, Operation a, Operation b, int m, int n, int k, const void* alpha,
                        const void* A, int type_a, int lda, const void* B, int type_b, int ldb,
                        const void* beta, void* C, int type_c, int ldc, int compute, int algorithm);
using BatchedGemmEx = Code (*)(void* handle, Operation a, Operation b, int m, int n, int k, const void* alpha,
                               const void* A, int type_a, int lda, long long stride_a, const void* B,
                               int type_b, int ldb, long long stride_b, const void* beta, void* C, int type_c,
                               int ldc, long long stride_c, int count, int compute, int algorithm);

bool is_mixed(const Gemm& g) { return g.tf32 || ir::is_half(g.dtype); }

Status call_mixed(GemmEx one_product, BatchedGemmEx batched, void* handle, const Gemm& g) {
  const float one = g.subtract ? -1 : 1, beta = g.accumulate ? 1 : 0;
  const int type = g.dtype == ir::DType::kFloat16 ? kR16F : g.dtype == ir::DType::kBFloat16 ? kR16BF : kR32F;
  const int compute = g.tf32 ? kComputeTf32 : kCompute32F;
  // Operands exchanged, as in call().
  const Operation first = g.transpose_b ? kTransposed : kAsIs, second = g.transpose_a ? kTransposed : kAsIs;
  const int m = static_cast<int>(g.n), n = static_cast<int>(g.m), k = static_cast<int>(g.k),
            lda = static_cast<int>(g.ldb), ldb = static_cast<int>(g.lda), ldc = static_cast<int>(g.ldc);
  const Code code = g.count == 1 ? one_product(handle, first, second, m, n, k, &one, g.b, type, lda, g.a,
                                               type, ldb, &beta, g.c, kR32F, ldc, compute, kDefaultAlgorithm)
                                 : batched(handle, first, second, m, n, k, &one, g.b, type, lda, g.stride_b,
                                           g.a, type, ldb, g.stride_a, &beta, g.c, kR32F, ldc, g.stride_c,
                                           static_cast<int>(g.count), compute, kDefaultAlgorithm);
  if (code != kSuccess) return blas_error(code, g.count == 1 ? "cublasGemmEx" : "cublasGemmStridedBatchedEx");
  return {};
}

}  // namespace

struct Cublas::Functions : TypedFunctions<Typed, Complex<float>, Complex<double>> {
  Code (*create)(void**);
  Code (*destroy)(void*);
  Code (*set_stream)(void*, CUstream);
  Code (*set_workspace)(void*, void*, std::size_t);
  Code (*set_math_mode)(void*, int);
  GemmEx one_mixed;
  BatchedGemmEx batched_mixed;
};

Result<std::unique_ptr<Cublas>> Cublas::open(const Context& context) {
  TW_ASSIGN(const Library library, open_library(cublas_library(context.driver->version / 1000)));
  auto functions = std::make_shared<Functions>();
  Symbols symbols(library);
  symbols.get(functions->create, "cublasCreate_v2");
  symbols.get(functions->destroy, "cublasDestroy_v2");
  symbols.get(functions->set_stream, "cublasSetStream_v2");
  symbols.get(functions->set_workspace, "cublasSetWorkspace_v2");
  symbols.get(functions->set_math_mode, "cublasSetMathMode");
  symbols.get(functions->one_mixed, "cublasGemmEx");
  symbols.get(functions->batched_mixed, "cublasGemmStridedBatchedEx");
  const auto typed = [&](auto& of, const std::string& letter, const char* rank_k) {
    symbols.get(of.rank_k, ("cublas" + letter + rank_k).c_str());
    symbols.get(of.one, ("cublas" + letter + "gemm_v2").c_str());
    symbols.get(of.batched, ("cublas" + letter + "gemmStridedBatched").c_str());
    symbols.get(of.trsm, ("cublas" + letter + "trsm_v2").c_str());
  };
  typed(functions->s, "S", "syrk_v2"), typed(functions->d, "D", "syrk_v2");
  typed(functions->c, "C", "herk_v2"), typed(functions->z, "Z", "herk_v2");
  TW_TRY(symbols.all_found());
  std::unique_ptr<Cublas> cublas(new Cublas(context));
  cublas->functions_ = std::move(functions);
  return cublas;
}

Cublas::~Cublas() {
  if (!context_.make_current()) return;
  for (const auto& [stream, handle] : handles_) {
    functions_->destroy(handle.handle);
    context_.driver->cuMemFree_(handle.workspace);
  }
}

Result<void*> Cublas::handle_for(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (const auto it = handles_.find(stream); it != handles_.end()) return it->second.handle;
  Handle made;
  if (const Code code = functions_->create(&made.handle); code != kSuccess)
    return blas_error(code, "cublasCreate");
  const auto set_up = [&]() -> Status {
    TW_CUDA_TRY(*context_.driver, cuMemAlloc, "a cuBLAS workspace", &made.workspace, kWorkspaceBytes);
    if (const Code code = functions_->set_stream(made.handle, stream); code != kSuccess)
      return blas_error(code, "cublasSetStream");
    // After SetStream, which resets it. With a workspace of its own per stream results do not depend on other streams.
    if (const Code code =
            functions_->set_workspace(made.handle, reinterpret_cast<void*>(made.workspace), kWorkspaceBytes);
        code != kSuccess)
      return blas_error(code, "cublasSetWorkspace");
    if (const Code code = functions_->set_math_mode(made.handle, kDefaultMath); code != kSuccess)
      return blas_error(code, "cublasSetMathMode");
    return {};
  }();
  if (!set_up) {
    functions_->destroy(made.handle);
    if (made.workspace != 0) context_.driver->cuMemFree_(made.workspace);
    return set_up.error();
  }
  handles_.emplace(stream, made);
  return made.handle;
}

Status Cublas::prepare(CUstream stream) {
  TW_TRY(context_.make_current());
  TW_TRY(handle_for(stream));
  return {};
}

Status Cublas::multiply(const Gemm& gemm, CUstream stream) {
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  for (const std::int64_t extent : {gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc, gemm.count})
    if (extent > kMax)
      return error(Errc::kLimitExceeded, "a matrix product with an extent of " + std::to_string(extent));
  TW_TRY(context_.make_current());
  TW_ASSIGN(void* const handle, handle_for(stream));
  if (is_mixed(gemm)) return call_mixed(functions_->one_mixed, functions_->batched_mixed, handle, gemm);
  return functions_->of(gemm.dtype, "cuBLAS",
                        [&](const auto& functions) -> Status { return call(functions, handle, gemm); });
}

Status Cublas::add_squares(const RankK& rank_k, CUstream stream) {
  for (const std::int64_t extent : {rank_k.n, rank_k.k, rank_k.lda})
    if (extent > std::numeric_limits<int>::max())
      return error(Errc::kLimitExceeded, "a product with itself with an extent of " + std::to_string(extent));
  TW_TRY(context_.make_current());
  TW_ASSIGN(void* const handle, handle_for(stream));
  return functions_->of(rank_k.dtype, "cuBLAS",
                        [&](const auto& functions) -> Status { return call(functions, handle, rank_k); });
}

Status Cublas::solve(const Trsm& trsm, CUstream stream) {
  for (const std::int64_t extent : {trsm.n, trsm.k, trsm.lda})
    if (extent > std::numeric_limits<int>::max())
      return error(Errc::kLimitExceeded, "a triangular solution with an extent of " + std::to_string(extent));
  TW_TRY(context_.make_current());
  TW_ASSIGN(void* const handle, handle_for(stream));
  return functions_->of(trsm.dtype, "cuBLAS",
                        [&](const auto& functions) -> Status { return call(functions, handle, trsm); });
}

}  // namespace tilewise::cuda
