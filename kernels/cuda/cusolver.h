// Factorisations by cuSOLVER's dense LAPACK: one handle per stream, workspace from the caller. Matrices are column-major and
// without gaps, as LAPACK has them; float32, float64, complex64 and complex128. Syevd and gesvd let the calling thread
// wait for the stream in places (they decide on the host); the others return at once.
#pragma once
#include <tilewise/cuda/driver.h>
#include <tilewise/ir/dtype.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>

namespace tilewise::cuda {

class Cusolver {
 public:
  // kUnavailable says where the library was looked for, or which function it lacks; kOutOfMemory, kDeviceError: it is there,
  // and makes no handle.
  static Result<std::unique_ptr<Cusolver>> open(const Context& context);
  ~Cusolver();

  Status prepare(CUstream stream);  // makes its handle; else the first call does

  enum class Routine : std::uint8_t { kPotrf, kGetrf, kGeqrf, kOrgqr, kOrmqr, kSyevd, kGesvd };
  // Bytes of workspace, asked of the library once for each: m x n, k reflectors (orgqr, ormqr); n x n (potrf, syevd).
  // `vectors`: of syevd. kLimitExceeded for an extent or a size past 2^31 - 1. Any thread.
  Result<std::int64_t> work_bytes(Routine routine, ir::DType dtype, std::int64_t m, std::int64_t n,
                                  std::int64_t k = 0, bool vectors = false);

  // A stream, with workspace for what is asked of it. `info`: one int32 of device memory, as LAPACK's: above zero where the
  // numbers have no such result.
  struct Call {
    CUstream stream = nullptr;
    ir::DType dtype = ir::DType::kFloat64;
    void* work = nullptr;
    std::int64_t work_bytes = 0;
    void* info = nullptr;
  };
  // The upper triangle of A (n x n) becomes U with U^H U = A.
  Status potrf(const Call& call, std::int64_t n, void* a);
  // A (m x n) becomes its factors; `pivots`: min(m, n) int32, from one.
  Status getrf(const Call& call, std::int64_t m, std::int64_t n, void* a, void* pivots);
  // B (n x k) becomes X with A^T X = B, by getrf's factors. Without workspace.
  Status getrs_transposed(const Call& call, std::int64_t n, std::int64_t k, const void* a, const void* pivots,
                          void* b);
  // A (m x n) becomes R and min(m, n) reflectors, their factors in `tau`; then columns of Q.
  Status geqrf(const Call& call, std::int64_t m, std::int64_t n, void* a, void* tau);
  Status orgqr(const Call& call, std::int64_t m, std::int64_t n, std::int64_t k, void* a, const void* tau);
  // C (m x n) becomes Q C, or Q^H C, by the first k of geqrf's reflectors (m x k).
  Status ormqr(const Call& call, bool adjoint, std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
               const void* tau, void* c);
  // Of the upper triangle of A (n x n): eigenvalues w, rising, and in A (if wanted) its vectors.
  Status syevd(const Call& call, std::int64_t n, bool vectors, void* a, void* w);
  // A (m x n, m >= n; lost) = U S Vh. Job 'N': S alone; 'S': n columns of U; 'A': all. `rest`: n real numbers of scratch.
  Status gesvd(const Call& call, char job, std::int64_t m, std::int64_t n, void* a, void* s, void* u,
               void* vh, void* rest);

 private:
  struct Functions;
  explicit Cusolver(const Context& context) : context_(context) {}
  Result<void*> handle_for(CUstream stream);

  const Context& context_;
  std::shared_ptr<const Functions> functions_;
  std::mutex mutex_;
  std::map<CUstream, void*> handles_;  // of null: for questions, launches nothing
  std::map<std::array<std::int64_t, 6>, std::int64_t> work_bytes_;
};

}  // namespace tilewise::cuda
