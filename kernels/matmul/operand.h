// The two matrices and the output of a product step, as kernels want them.
#pragma once
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::matmul {

// Row-major m x k and k x n with strides in elements; the output is contiguous, m x n.
struct Product {
  const TensorView* a = nullptr;
  const TensorView* b = nullptr;
  const TensorView* out = nullptr;
  std::int64_t m = 0, n = 0, k = 0;
  bool accumulate = false;  // later steps add to what is there
  bool empty() const { return k == 0; }
};

// kShapeMismatch where the views do not go together. k is 0 where the step reads nothing.
Result<Product> product_of(const KernelCall& call);

}  // namespace tilewise::kernels::matmul
