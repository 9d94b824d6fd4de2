// The two matrices and the output of a product step, as kernels want them.
#pragma once
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::matmul {

// Row-major m x k and k x n with strides in elements; the output is contiguous, m x n. One product of a stack: addresses
// are those of its own matrices.
struct Product {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  ir::DType dtype = ir::DType::kFloat64;  // of the output
  ir::DType factors = ir::DType::kFloat64;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;  // strides
  bool accumulate = false;                                        // later steps add to what is there
  bool empty() const { return k == 0; }
};

// The products of a step, in C order of the stack: all of one form, at these offsets in elements.
struct Stack {
  Product first;
  ir::Shape shape;        // of the stack; its volume is the number of products
  ir::Strides a, b, out;  // along it
  std::int64_t count() const { return ir::volume(shape); }
  Product product(std::int64_t number) const;
};

// kShapeMismatch where the views do not go together. k is 0 where the step reads nothing. A stack of products with one right
// operand whose left rows follow each other is one product with more rows.
Result<Stack> products_of(const KernelCall& call);

}  // namespace tilewise::kernels::matmul
