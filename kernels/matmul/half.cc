#include "matmul/half.h"

#include <cblas.h>

#include <algorithm>
#include <limits>

#include "map/evaluator_memory.h"
#include "map/lanes.h"
#include "matmul/blas.h"

namespace tilewise::kernels::matmul {
namespace {

// A piece of the left factor is 256 KB, one of the right 2 MB: they stay in cache while they are multiplied.
constexpr std::int64_t kPieceM = 256, kPieceK = 256, kPieceN = 2048;

// `rows` x `columns` 16-bit floats as float32, C order without gaps, or transposed where rows are what lies in a piece.
struct Widened {
  const float* data = nullptr;
  CBLAS_TRANSPOSE trans = CblasNoTrans;
  std::int64_t ld = 1;
};

class Widener {
 public:
  explicit Widener(ir::DType from) : widen_(map::find_widen(from)) {}

  Widened operator()(const void* from, std::int64_t rows, std::int64_t columns, std::int64_t row,
                     std::int64_t column, float* to) const {
    const bool across = column != 1 && row == 1;
    if (across) std::swap(rows, columns), std::swap(row, column);
    for (std::int64_t r = 0; r < rows; ++r) {
      const void* line = static_cast<const std::uint16_t*>(from) + r * row;
      std::uint16_t gathered[kPieceN];
      if (column != 1) {
        map::gather(gathered, line, 2, column, columns);
        line = gathered;
      }
      widen_({.out = to + r * columns, .in = {line}, .n = columns});
    }
    return {to, across ? CblasTrans : CblasNoTrans, columns};
  }

 private:
  map::LaneFn widen_;
};

}  // namespace

std::int64_t half_scratch_bytes(const ir::Op& op) {
  if (op.outputs[0].dtype != ir::DType::kFloat32 || op.space.rank() < 2) return 0;
  const ir::Shape largest = op.space.max_block_shape();
  const std::int64_t m = std::max(largest[largest.size() - 2], std::int64_t{1}),
                     n = std::max(largest.back(), std::int64_t{1});
  // A stack with one right factor is one product of more rows.
  std::int64_t rows = m;
  for (std::size_t d = 0; d + 2 < largest.size(); ++d)
    rows = std::min(kPieceM, rows * std::max(largest[d], std::int64_t{1}));
  return (std::min(rows, kPieceM) + std::min(n, kPieceN)) * kPieceK * 4;
}

Status half_product(const Product& p, std::byte* scratch) {
  if (scratch == nullptr) return error(Errc::kInternal, "a product of 16-bit floats without scratch memory");
  if (p.n > std::numeric_limits<blasint>::max())
    return error(Errc::kLimitExceeded, "a block of a product with more than 2^31 - 1 columns");
  const Widener widen(p.factors);
  const auto at = [](const void* matrix, std::int64_t offset) {
    return static_cast<const std::uint16_t*>(matrix) + offset;
  };
  float* const right = reinterpret_cast<float*>(scratch);
  float* const left = right + std::min(p.n, kPieceN) * kPieceK;
  float* const out = static_cast<float*>(p.out);
  const BlasTurn turn;
  for (std::int64_t k = 0; k < p.k; k += kPieceK) {
    const std::int64_t depth = std::min(kPieceK, p.k - k);
    for (std::int64_t n = 0; n < p.n; n += kPieceN) {
      const std::int64_t columns = std::min(kPieceN, p.n - n);
      const Widened b =
          widen(at(p.b, k * p.b_row + n * p.b_column), depth, columns, p.b_row, p.b_column, right);
      for (std::int64_t m = 0; m < p.m; m += kPieceM) {
        const std::int64_t rows = std::min(kPieceM, p.m - m);
        const Widened a =
            widen(at(p.a, m * p.a_row + k * p.a_column), rows, depth, p.a_row, p.a_column, left);
        cblas_sgemm(CblasRowMajor, a.trans, b.trans, static_cast<blasint>(rows),
                    static_cast<blasint>(columns), static_cast<blasint>(depth), 1.0f, a.data,
                    static_cast<blasint>(a.ld), b.data, static_cast<blasint>(b.ld),
                    p.accumulate || k > 0 ? 1.0f : 0.0f, out + m * p.n + n, static_cast<blasint>(p.n));
      }
    }
  }
  return {};
}

}  // namespace tilewise::kernels::matmul
