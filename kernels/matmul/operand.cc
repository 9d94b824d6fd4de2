#include "matmul/operand.h"

#include <tilewise/ir/verify.h>

#include <algorithm>

namespace tilewise::kernels::matmul {
namespace {

std::string text(const TensorView& view) {
  return std::string(ir::name_of(view.dtype)) + ir::to_string(view.shape);
}

// Rows of the whole stack as rows of one product: the right operand repeats, and the left one's rows are evenly apart.
void flatten(Stack& stack) {
  std::int64_t rows = stack.first.m;
  for (std::size_t d = stack.shape.size(); d-- > 0;) {
    if (stack.shape[d] == 1) continue;
    if (stack.b[d] != 0 || stack.a[d] != rows * stack.first.a_row || stack.first.m == 0) return;
    rows *= stack.shape[d];
  }
  stack.first.m = rows;
  std::fill(stack.shape.begin(), stack.shape.end(), 1);
}

}  // namespace

Product Stack::product(std::int64_t number) const {
  Product p = first;
  const ir::Index at = ir::unravel(number, shape);
  const auto offset = [&](const ir::Strides& strides, ir::DType dtype) {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < at.size(); ++d) sum += at[d] * strides[d];
    return sum * static_cast<std::int64_t>(ir::size_of(dtype));
  };
  if (!p.empty()) {
    p.a = static_cast<const std::byte*>(p.a) + offset(a, p.factors);
    p.b = static_cast<const std::byte*>(p.b) + offset(b, p.factors);
  }
  p.out = static_cast<std::byte*>(p.out) + offset(out, p.dtype);
  return p;
}

Result<Stack> products_of(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const std::size_t rank = out.shape.size();
  const bool panels = call.op->kind == ir::OpKind::kMatmulPanels;
  if (rank < 2 || (panels && (rank != 3 || out.shape[0] != 1)))
    return error(Errc::kShapeMismatch, "a product into " + ir::to_string(out.shape));
  const std::size_t stack = panels ? 0 : rank - 2;
  Stack s;
  Product& p = s.first;
  p.out = out.data;
  p.dtype = out.dtype;
  p.m = out.shape[rank - 2];
  p.n = out.shape[rank - 1];
  s.shape.assign(out.shape.begin(), out.shape.begin() + static_cast<std::ptrdiff_t>(stack));
  s.a.resize(stack, 0);
  s.b.resize(stack, 0);
  s.out.resize(stack, 0);
  std::int64_t step = p.m * p.n;
  for (std::size_t d = stack; d-- > 0; step *= out.shape[d]) s.out[d] = step;
  p.accumulate = call.step > 0;
  if (call.inputs.size() < 2 || call.inputs[0].data == nullptr || call.inputs[1].data == nullptr) return s;
  const TensorView &a = call.inputs[0], &b = call.inputs[1];
  bool fits = a.shape.size() == stack + 2 && b.shape.size() == stack + 2 && a.shape[stack] == p.m &&
              b.shape[stack + 1] == p.n && a.shape[stack + 1] == b.shape[stack] && a.dtype == b.dtype &&
              ir::product_dtype(a.dtype) == out.dtype;
  for (std::size_t d = 0; fits && d < stack; ++d)
    fits = a.shape[d] == out.shape[d] && b.shape[d] == out.shape[d];
  if (!fits) return error(Errc::kShapeMismatch, text(a) + " x " + text(b) + " into " + text(out));
  p.factors = a.dtype;
  p.a = a.data;
  p.b = b.data;
  p.k = a.shape[stack + 1];
  p.a_row = a.strides[stack];
  p.a_column = a.strides[stack + 1];
  p.b_row = b.strides[stack];
  p.b_column = b.strides[stack + 1];
  std::copy_n(a.strides.begin(), stack, s.a.begin());
  std::copy_n(b.strides.begin(), stack, s.b.begin());
  if (stack > 0) flatten(s);
  return s;
}

}  // namespace tilewise::kernels::matmul
