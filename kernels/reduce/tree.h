// Combines a stream of partial results pairwise, as a binary counter carries: partial i's path depends on how many
// there are, on nothing else. Error of a float sum of c partials: log2(c) roundings, not c.
#pragma once
#include "reduce/fold.h"

#include <cstddef>
#include <vector>

namespace tilewise::kernels::reduce {

class Tree {
 public:
  Tree(const FoldFns& folds, std::int64_t width, std::size_t element_bytes)
      : folds_(folds), width_(width), bytes_(static_cast<std::size_t>(width) * element_bytes) {}

  void reset() { count_ = 0; }
  bool empty() const { return count_ == 0; }
  // Takes `width` partials; overwrites them.
  void push(std::byte* partial);
  // The total, at `out`. Not empty.
  void finish(std::byte* out);

 private:
  std::byte* level(std::size_t l);

  FoldFns folds_;
  std::int64_t width_;
  std::size_t bytes_;
  std::uint64_t count_ = 0;
  std::vector<std::vector<std::byte>>
      levels_;  // level l holds the sum of 2^l partials where bit l of count_ is set
};

}  // namespace tilewise::kernels::reduce
