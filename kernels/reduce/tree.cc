#include "reduce/tree.h"

#include <cstring>

namespace tilewise::kernels::reduce {

std::byte* Tree::level(std::size_t l) {
  while (levels_.size() <= l) levels_.emplace_back(bytes_);
  return levels_[l].data();
}

void Tree::push(std::byte* partial) {
  std::size_t l = 0;
  for (; (count_ >> l & 1) != 0; ++l) {
    std::byte* left = level(l);
    folds_.rows(left, partial, width_, 1, width_);
    partial = left;
  }
  std::memcpy(level(l), partial, bytes_);
  ++count_;
}

void Tree::finish(std::byte* out) {
  const std::byte* right = nullptr;
  for (std::size_t l = 0; count_ >> l != 0; ++l) {
    if ((count_ >> l & 1) == 0) continue;
    std::byte* left = level(l);
    if (right != nullptr) folds_.rows(left, right, width_, 1, width_);
    right = left;
  }
  std::memcpy(out, right, bytes_);
}

}  // namespace tilewise::kernels::reduce
