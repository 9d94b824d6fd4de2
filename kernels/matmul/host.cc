// Products by OpenBLAS (one thread: the engine owns the threads), transposition and leading dimension taken from the views'
// strides, so that slices and transposes of blocks are not copied. 16-bit floats: half.h. Integers and bool by plain blocked loops.
#include <cblas.h>

#include <cstring>
#include <limits>
#include <memory>

#include "map/evaluator_memory.h"
#include "matmul/blas.h"
#include "matmul/half.h"
#include "matmul/integer.h"
#include "matmul/matmul.h"
#include "matmul/operand.h"

namespace tilewise::kernels::matmul {
namespace {

// A matrix as BLAS reads it; owns a copy where neither stride is one (steps, reversed or repeated rows).
struct Matrix {
  const void* data = nullptr;
  CBLAS_TRANSPOSE trans = CblasNoTrans;
  std::int64_t ld = 1;
  std::unique_ptr<std::byte[]> copy;
};

Matrix packed(const void* data, std::int64_t size, std::int64_t rows, std::int64_t cols, std::int64_t s0,
              std::int64_t s1) {
  Matrix m;
  m.copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(rows * cols * size));
  m.data = m.copy.get();
  m.ld = cols;
  const auto* from = static_cast<const std::byte*>(data);
  for (std::int64_t r = 0; r < rows; ++r)
    map::gather(m.copy.get() + r * cols * size, from + r * s0 * size, size, s1, cols);
  return m;
}

Matrix matrix_of(const void* data, std::int64_t size, std::int64_t rows, std::int64_t cols, std::int64_t s0,
                 std::int64_t s1) {
  Matrix m;
  m.data = data;
  // A stride along an extent of one is never used, so it may be anything.
  if ((s1 == 1 || cols == 1) && (s0 >= cols || rows == 1)) {
    m.ld = rows == 1 ? cols : s0;
    return m;
  }
  if ((s0 == 1 || rows == 1) && (s1 >= rows || cols == 1)) {
    m.trans = CblasTrans;
    m.ld = cols == 1 ? rows : s1;
    return m;
  }
  return packed(data, size, rows, cols, s0, s1);
}

void gemm(const Product& p, const Matrix& a, const Matrix& b) {
  const auto m = static_cast<blasint>(p.m), n = static_cast<blasint>(p.n), k = static_cast<blasint>(p.k);
  const auto lda = static_cast<blasint>(a.ld), ldb = static_cast<blasint>(b.ld);
  switch (p.dtype) {
    case ir::DType::kFloat64:
      cblas_dgemm(CblasRowMajor, a.trans, b.trans, m, n, k, 1.0, static_cast<const double*>(a.data), lda,
                  static_cast<const double*>(b.data), ldb, p.accumulate ? 1.0 : 0.0,
                  static_cast<double*>(p.out), n);
      break;
    case ir::DType::kFloat32:
      cblas_sgemm(CblasRowMajor, a.trans, b.trans, m, n, k, 1.0f, static_cast<const float*>(a.data), lda,
                  static_cast<const float*>(b.data), ldb, p.accumulate ? 1.0f : 0.0f,
                  static_cast<float*>(p.out), n);
      break;
    case ir::DType::kComplex128: {
      const double one[2] = {1, 0}, beta[2] = {p.accumulate ? 1.0 : 0.0, 0};
      cblas_zgemm(CblasRowMajor, a.trans, b.trans, m, n, k, one, a.data, lda, b.data, ldb, beta, p.out, n);
      break;
    }
    default: {
      const float one[2] = {1, 0}, beta[2] = {p.accumulate ? 1.0f : 0.0f, 0};
      cblas_cgemm(CblasRowMajor, a.trans, b.trans, m, n, k, one, a.data, lda, b.data, ldb, beta, p.out, n);
    }
  }
}

Status float_product(const Product& p) {
  const auto size = static_cast<std::int64_t>(ir::size_of(p.dtype));
  const Matrix a = matrix_of(p.a, size, p.m, p.k, p.a_row, p.a_column),
               b = matrix_of(p.b, size, p.k, p.n, p.b_row, p.b_column);
  constexpr std::int64_t kMost = std::numeric_limits<blasint>::max();
  if (p.m > kMost || p.n > kMost || p.k > kMost || a.ld > kMost || b.ld > kMost) {
    return error(Errc::kLimitExceeded, "a block of a product with an extent or row stride past 2^31 - 1");
  }
  const BlasTurn turn;
  gemm(p, a, b);
  return {};
}

Status product(const Product& p, std::byte* scratch) {
  const auto size = static_cast<std::int64_t>(ir::size_of(p.dtype));
  if (p.empty()) {  // also keeps BLAS from reading an output that holds nothing yet
    if (!p.accumulate) std::memset(p.out, 0, static_cast<std::size_t>(p.m * p.n * size));
    return {};
  }
  if (ir::is_half(p.factors)) return half_product(p, scratch);
  if (ir::is_floating(p.dtype) || ir::is_complex(p.dtype)) return float_product(p);
  // The loops want rows of b in a piece.
  const bool rows = p.b_column == 1 || p.n == 1;
  const Matrix b =
      rows ? Matrix{p.b, CblasNoTrans, p.b_row, nullptr} : packed(p.b, size, p.k, p.n, p.b_row, p.b_column);
  integer_product(p, b.data, b.ld);
  return {};
}

}  // namespace

Status supports(const ir::Op&, const PluginTable*) { return {}; }

std::int64_t scratch_bytes(const ir::Op& op) { return half_scratch_bytes(op); }

Status host(const KernelCall& call, const PluginTable*) {
  TW_ASSIGN(const Stack stack, products_of(call));
  if (stack.first.m == 0 || stack.first.n == 0) return {};
  const std::int64_t count = stack.count();
  for (std::int64_t i = 0; i < count; ++i) TW_TRY(product(stack.product(i), call.scratch));
  return {};
}

}  // namespace tilewise::kernels::matmul
