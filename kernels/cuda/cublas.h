// Matrix products and triangular solutions by cuBLAS: one handle and one workspace per stream, so that streams do not wait for each other and no
// call allocates. The mode is the default one: no TF32 but where a product asks for it, no reduced precision.
#pragma once
#include <tilewise/cuda/driver.h>
#include <tilewise/ir/dtype.h>

#include <map>
#include <memory>
#include <mutex>

namespace tilewise::cuda {

// C (m x n) = A (m x k) B (k x n) + (accumulate ? C : 0), or (subtract) -A B + ..., row-major; A and B may be transposed in
// place: their leading dimension is then that of the matrix as stored. float16, bfloat16, float32, float64, complex64 or
// complex128; a transposed A may be conjugated too.
// `count` such products, whose matrices begin a stride of elements behind each other (0: one for all; not of c).
struct Gemm {
  ir::DType dtype =
      ir::DType::kFloat64;  // of A and B; C of 16-bit floats is float32, which they are summed in
  bool tf32 = false;        // float32: factors rounded to 10 bits of mantissa
  std::int64_t m = 0, n = 0, k = 0;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false, conjugate_a = false, accumulate = false, subtract = false;
  std::int64_t count = 1, stride_a = 0, stride_b = 0, stride_c = 0;
};

// The lower triangle of C (n x n, row-major without gaps) = A^H A + (accumulate ? C : 0), or (subtract) -A^H A + ...; A is k x n,
// row-major. Dtypes as of Trsm.
struct RankK {
  ir::DType dtype = ir::DType::kFloat64;
  std::int64_t n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t lda = 0;
  void* c = nullptr;
  bool accumulate = false, subtract = false;
};

// X with A X = B, in place of B (n x k, row-major without gaps). A (n x n) is triangular, or its transpose as stored is; a zero on
// the diagonal is not looked for. float32, float64, complex64 or complex128.
struct Trsm {
  ir::DType dtype = ir::DType::kFloat64;
  std::int64_t n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t lda = 0;
  bool transpose_a = false, upper = false;  // upper: A, however it is stored
  bool unit = false;                        // ones on the diagonal, which is not read
  void* b = nullptr;
};

class Cublas {
 public:
  // kUnavailable says where the library was looked for.
  static Result<std::unique_ptr<Cublas>> open(const Context& context);
  ~Cublas();

  Status prepare(CUstream stream);  // makes its handle: about 0.1 s once; else the first product does
  Status multiply(const Gemm& gemm, CUstream stream);
  Status add_squares(const RankK& rank_k, CUstream stream);  // syrk, herk
  Status solve(const Trsm& trsm, CUstream stream);

 private:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper
  struct Functions;
  struct Handle {
    void* handle = nullptr;
    CUdeviceptr workspace = 0;
  };
  explicit Cublas(const Context& context) : context_(context) {}
  Result<void*> handle_for(CUstream stream);

  const Context& context_;
  std::shared_ptr<const Functions> functions_;
  std::mutex mutex_;
  std::map<CUstream, Handle> handles_;
};

}  // namespace tilewise::cuda
