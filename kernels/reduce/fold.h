// Vector loops of reductions, chosen for the best instruction set. Their order of operations is stated here and does
// not depend on the vector width.
#pragma once
#include <tilewise/ir/op.h>

#include <cstdint>

namespace tilewise::kernels::reduce {

constexpr int kFold = 16;                // virtual lanes of a folded row
constexpr std::int64_t kChunkRows = 64;  // rows (or folded rows) summed left to right
constexpr std::int64_t kLine = kChunkRows * kFold;

struct FoldFns {
  // acc[j] = the value that changes nothing (float sums: -0)
  void (*clear)(void* acc, std::int64_t width) = nullptr;
  // for r: acc[j] = acc[j] op x[r * pitch + j], rows in order
  void (*rows)(void* acc, const void* x, std::int64_t width, std::int64_t rows, std::int64_t pitch) = nullptr;
  // acc[j] = the kFold lanes acc[l * n + j] by halves: l with l + 8, then + 4, + 2, + 1
  void (*lanes)(void* acc, std::int64_t n) = nullptr;
  // for u, j: out[u * n + j] = x[u][0][j] op x[u][1][j] op ..., x of shape (units, length, n), left to right
  void (*units)(void* out, const void* x, std::int64_t units, std::int64_t length, std::int64_t n) = nullptr;
  // for c: out[c] = the fold of line x[c * length ...], of at most kLine elements, as the three functions above make it in the
  // order of host.cc; in registers, some lines side by side. Null for kinds and dtypes without vectors.
  void (*lines)(void* out, const void* x, std::int64_t count, std::int64_t length) = nullptr;
  explicit operator bool() const { return rows != nullptr; }
};
// Null functions for kinds (argmin, argmax) and dtypes that are not folded.
FoldFns find_folds(ir::ReduceKind kind, ir::DType dtype);
FoldFns complex_folds(ir::ReduceKind kind, ir::DType dtype);  // sums and products

// The better of candidates and the best so far; `index` is compared by the callers' order: candidates come later, so
// ties keep what is there. The first NaN wins. `best` and `best_index` hold what was found; `empty` starts anew.
struct ArgFns {
  // one output: candidates x[0..n) numbered first, first + 1, ...
  void (*row)(const void* x, std::int64_t n, std::int64_t first, bool empty, void* best,
              std::int64_t* best_index) = nullptr;
  // n outputs: candidate `number` of each
  void (*columns)(const void* x, std::int64_t n, std::int64_t number, bool empty, void* best,
                  std::int64_t* best_index) = nullptr;
  // n outputs: candidates with indices of their own, in any order; of equal values the lowest index wins
  void (*merge)(const void* x, const std::int64_t* index, std::int64_t n, void* best,
                std::int64_t* best_index) = nullptr;
};
ArgFns find_args(bool smallest, ir::DType dtype);

}  // namespace tilewise::kernels::reduce
