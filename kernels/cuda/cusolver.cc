#include "cusolver.h"

#include <tilewise/cuda/libraries.h>

#include <algorithm>
#include <complex>
#include <limits>

#include "matrix.h"

namespace tilewise::cuda {
namespace {

// From the cuSOLVER documentation (cuSolverDN, dense LAPACK): names and values of its typed interface. Declared here because
// slim toolkits have no cusolverDn.h.
using Code = int;
constexpr Code kSuccess = 0, kAllocFailed = 2, kInvalidValue = 3, kInternalError = 7;
constexpr int kPlain = 0, kTransposed = 1, kAdjoint = 2, kUpperFill = 1, kLeft = 0;

template <class T> struct RealOf { using type = T; };
template <class T> struct RealOf<std::complex<T>> { using type = T; };

template <class T> struct Typed {
  using R = typename RealOf<T>::type;
  Code (*potrf_size)(void*, int fill, int n, T* a, int lda, int* size);
  Code (*potrf)(void*, int fill, int n, T* a, int lda, T* work, int size, int* info);
  Code (*getrf_size)(void*, int m, int n, T* a, int lda, int* size);
  Code (*getrf)(void*, int m, int n, T* a, int lda, T* work, int* pivots, int* info);
  Code (*getrs)(void*, int operation, int n, int k, const T* a, int lda, const int* pivots, T* b, int ldb,
                int* info);
  Code (*geqrf_size)(void*, int m, int n, T* a, int lda, int* size);
  Code (*geqrf)(void*, int m, int n, T* a, int lda, T* tau, T* work, int size, int* info);
  Code (*orgqr_size)(void*, int m, int n, int k, const T* a, int lda, const T* tau, int* size);
  Code (*orgqr)(void*, int m, int n, int k, T* a, int lda, const T* tau, T* work, int size, int* info);
  Code (*ormqr_size)(void*, int side, int operation, int m, int n, int k, const T* a, int lda, const T* tau,
                     const T* c, int ldc, int* size);
  Code (*ormqr)(void*, int side, int operation, int m, int n, int k, const T* a, int lda, const T* tau, T* c,
                int ldc, T* work, int size, int* info);
  Code (*syevd_size)(void*, int vectors, int fill, int n, const T* a, int lda, const R* w, int* size);
  Code (*syevd)(void*, int vectors, int fill, int n, T* a, int lda, R* w, T* work, int size, int* info);
  Code (*gesvd_size)(void*, int m, int n, int* size);
  Code (*gesvd)(void*, signed char job_u, signed char job_vh, int m, int n, T* a, int lda, R* s, T* u,
                int ldu, T* vh, int ldvh, T* work, int size, R* rest, int* info);
};

template <class T>
void find(Symbols& symbols, Typed<T>& f, const std::string& letter, const std::string& symmetric,
          const std::string& orthogonal) {
  const auto get = [&](auto& function, const std::string& name) {
    symbols.get(function, ("cusolverDn" + letter + name).c_str());
  };
  get(f.potrf_size, "potrf_bufferSize"), get(f.potrf, "potrf");
  get(f.getrf_size, "getrf_bufferSize"), get(f.getrf, "getrf"), get(f.getrs, "getrs");
  get(f.geqrf_size, "geqrf_bufferSize"), get(f.geqrf, "geqrf");
  get(f.orgqr_size, orthogonal + "gqr_bufferSize"), get(f.orgqr, orthogonal + "gqr");
  get(f.ormqr_size, orthogonal + "mqr_bufferSize"), get(f.ormqr, orthogonal + "mqr");
  get(f.syevd_size, symmetric + "evd_bufferSize"), get(f.syevd, symmetric + "evd");
  get(f.gesvd_size, "gesvd_bufferSize"), get(f.gesvd, "gesvd");
}

Status done(Code code, const char* doing) {
  if (code == kSuccess) return {};
  return error(code == kAllocFailed ? Errc::kOutOfMemory : Errc::kDeviceError,
               std::string("cusolverDn<t>") + doing + ": cuSOLVER status " + std::to_string(code));
}
// The library has 32 bits for a size: of too many elements it says that they are negative, or that n is wrong.
Status sized(Code code, int size, const char* doing) {
  if (code == kInvalidValue || (code == kSuccess && size < 0))
    return error(Errc::kLimitExceeded,
                 std::string("cusolverDn<t>") + doing + ": more workspace than cuSOLVER can say");
  return done(code, doing);
}
int leading(std::int64_t rows) { return static_cast<int>(std::max<std::int64_t>(1, rows)); }
int whole(std::int64_t n) { return static_cast<int>(n); }  // work_bytes() has looked at it
template <class T> T* as(void* p) { return static_cast<T*>(p); }
template <class T> const T* as(const void* p) { return static_cast<const T*>(p); }
int* info_of(const Cusolver::Call& call) { return static_cast<int*>(call.info); }
template <class T> int elements(const Cusolver::Call& call) {
  return static_cast<int>(call.work_bytes / static_cast<std::int64_t>(sizeof(T)));
}

}  // namespace

struct Cusolver::Functions : TypedFunctions<Typed, std::complex<float>, std::complex<double>> {
  Code (*create)(void**);
  Code (*destroy)(void*);
  Code (*set_stream)(void*, CUstream);
};

Result<std::unique_ptr<Cusolver>> Cusolver::open(const Context& context) {
  TW_ASSIGN(const Library library, open_library(cusolver_library(context.driver->version / 1000)));
  auto functions = std::make_shared<Functions>();
  Symbols symbols(library);
  symbols.get(functions->create, "cusolverDnCreate");
  symbols.get(functions->destroy, "cusolverDnDestroy");
  symbols.get(functions->set_stream, "cusolverDnSetStream");
  find(symbols, functions->s, "S", "sy", "or");
  find(symbols, functions->d, "D", "sy", "or");
  find(symbols, functions->c, "C", "he", "un");
  find(symbols, functions->z, "Z", "he", "un");
  TW_TRY(symbols.all_found());
  std::unique_ptr<Cusolver> cusolver(new Cusolver(context));
  cusolver->functions_ = std::move(functions);
  TW_TRY(cusolver->prepare(nullptr));  // a library that cannot even do that is as good as none
  return cusolver;
}

Cusolver::~Cusolver() {
  if (!context_.make_current()) return;
  for (const auto& [stream, handle] : handles_) functions_->destroy(handle);
}

Result<void*> Cusolver::handle_for(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (const auto it = handles_.find(stream); it != handles_.end()) return it->second;
  void* made = nullptr;
  const Code code = functions_->create(&made);
  TW_TRY(done(code == kInternalError ? kAllocFailed : code, "Create"));  // that is how it says so
  if (const Status set = done(functions_->set_stream(made, stream), "SetStream"); !set) {
    functions_->destroy(made);
    return set.error();
  }
  handles_.emplace(stream, made);
  return made;
}

Status Cusolver::prepare(CUstream stream) {
  TW_TRY(context_.make_current());
  TW_TRY(handle_for(stream));
  return {};
}

Result<std::int64_t> Cusolver::work_bytes(Routine routine, ir::DType dtype, std::int64_t m, std::int64_t n,
                                          std::int64_t k, bool vectors) {
  for (const std::int64_t extent : {m, n, k})
    if (extent > std::numeric_limits<int>::max())
      return error(Errc::kLimitExceeded, "a matrix with an extent of " + std::to_string(extent));
  TW_TRY(context_.make_current());
  TW_ASSIGN(void* const handle, handle_for(nullptr));
  const std::lock_guard lock(mutex_);  // the handle is everybody's
  const std::array<std::int64_t, 6> key{
      static_cast<std::int64_t>(routine), static_cast<std::int64_t>(dtype), m, n, k, vectors};
  if (const auto it = work_bytes_.find(key); it != work_bytes_.end()) return it->second;
  int size = 0;
  const auto ask = [&]<class T>(const Typed<T>& f) -> Status {
    const int rows = whole(m), columns = whole(n);
    T* const none = nullptr;
    Code code = kSuccess;
    const char* name = "";
    switch (routine) {
      case Routine::kPotrf:
        code = f.potrf_size(handle, kUpperFill, columns, none, leading(n), &size), name = "potrf_bufferSize";
        break;
      case Routine::kGetrf:
        code = f.getrf_size(handle, rows, columns, none, leading(m), &size), name = "getrf_bufferSize";
        break;
      case Routine::kGeqrf:
        code = f.geqrf_size(handle, rows, columns, none, leading(m), &size), name = "geqrf_bufferSize";
        break;
      case Routine::kOrgqr:
        code = f.orgqr_size(handle, rows, columns, whole(k), none, leading(m), none, &size),
        name = "orgqr_bufferSize";
        break;
      case Routine::kOrmqr:
        code = f.ormqr_size(handle, kLeft, kPlain, rows, columns, whole(k), none, leading(m), none, none,
                            leading(m), &size),
        name = "ormqr_bufferSize";
        break;
      case Routine::kSyevd:
        code = f.syevd_size(handle, vectors, kUpperFill, columns, none, leading(n), nullptr, &size),
        name = "syevd_bufferSize";
        break;
      case Routine::kGesvd:
        code = f.gesvd_size(handle, rows, columns, &size), name = "gesvd_bufferSize";
        break;
    }
    return sized(code, size, name);
  };
  TW_TRY(functions_->of(dtype, "cuSOLVER", ask));
  const std::int64_t bytes = std::int64_t{size} * static_cast<std::int64_t>(ir::size_of(dtype));
  constexpr std::size_t kMostKept = 4096;
  if (work_bytes_.size() >= kMostKept) work_bytes_.clear();
  work_bytes_.emplace(key, bytes);
  return bytes;
}

Status Cusolver::potrf(const Call& call, std::int64_t n, void* a) {
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    return done(f.potrf(handle, kUpperFill, whole(n), as<T>(a), leading(n), as<T>(call.work),
                        elements<T>(call), info_of(call)),
                "potrf");
  });
}

Status Cusolver::getrf(const Call& call, std::int64_t m, std::int64_t n, void* a, void* pivots) {
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    return done(f.getrf(handle, whole(m), whole(n), as<T>(a), leading(m), as<T>(call.work), as<int>(pivots),
                        info_of(call)),
                "getrf");
  });
}

Status Cusolver::getrs_transposed(const Call& call, std::int64_t n, std::int64_t k, const void* a,
                                  const void* pivots, void* b) {
  if (k > std::numeric_limits<int>::max())
    return error(Errc::kLimitExceeded, std::to_string(k) + " right sides");
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    return done(f.getrs(handle, kTransposed, whole(n), whole(k), as<T>(a), leading(n), as<int>(pivots),
                        as<T>(b), leading(n), info_of(call)),
                "getrs");
  });
}

Status Cusolver::geqrf(const Call& call, std::int64_t m, std::int64_t n, void* a, void* tau) {
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    return done(f.geqrf(handle, whole(m), whole(n), as<T>(a), leading(m), as<T>(tau), as<T>(call.work),
                        elements<T>(call), info_of(call)),
                "geqrf");
  });
}

Status Cusolver::orgqr(const Call& call, std::int64_t m, std::int64_t n, std::int64_t k, void* a,
                       const void* tau) {
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    return done(f.orgqr(handle, whole(m), whole(n), whole(k), as<T>(a), leading(m), as<T>(tau),
                        as<T>(call.work), elements<T>(call), info_of(call)),
                "orgqr");
  });
}

Status Cusolver::ormqr(const Call& call, bool adjoint, std::int64_t m, std::int64_t n, std::int64_t k,
                       const void* a, const void* tau, void* c) {
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  const int operation = !adjoint ? kPlain : ir::is_complex(call.dtype) ? kAdjoint : kTransposed;
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    return done(f.ormqr(handle, kLeft, operation, whole(m), whole(n), whole(k), as<T>(a), leading(m),
                        as<T>(tau), as<T>(c), leading(m), as<T>(call.work), elements<T>(call), info_of(call)),
                "ormqr");
  });
}

Status Cusolver::syevd(const Call& call, std::int64_t n, bool vectors, void* a, void* w) {
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    return done(f.syevd(handle, vectors, kUpperFill, whole(n), as<T>(a), leading(n),
                        as<typename Typed<T>::R>(w), as<T>(call.work), elements<T>(call), info_of(call)),
                "syevd");
  });
}

Status Cusolver::gesvd(const Call& call, char job, std::int64_t m, std::int64_t n, void* a, void* s, void* u,
                       void* vh, void* rest) {
  TW_ASSIGN(void* const handle, handle_for(call.stream));
  const auto letter = static_cast<signed char>(job);
  return functions_->of(call.dtype, "cuSOLVER", [&]<class T>(const Typed<T>& f) {
    using R = typename Typed<T>::R;
    return done(f.gesvd(handle, letter, letter, whole(m), whole(n), as<T>(a), leading(m), as<R>(s), as<T>(u),
                        leading(m), as<T>(vh), leading(n), as<T>(call.work), elements<T>(call), as<R>(rest),
                        info_of(call)),
                "gesvd");
  });
}

}  // namespace tilewise::cuda
