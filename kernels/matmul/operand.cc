#include "matmul/operand.h"

namespace tilewise::kernels::matmul {

Result<Product> product_of(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  const std::size_t rank = out.shape.size();
  if (rank < 2 || rank > 3 || (rank == 3 && out.shape[0] != 1)) {
    return error(Errc::kShapeMismatch, "a product into " + ir::to_string(out.shape));
  }
  Product p;
  p.out = &out;
  p.m = out.shape[rank - 2];
  p.n = out.shape[rank - 1];
  // Panels of kMatmulPanels are summed by kCombine; each is a product of its own.
  p.accumulate = call.op->kind == ir::OpKind::kMatmul && call.step > 0;
  if (call.inputs.size() < 2 || call.inputs[0].data == nullptr || call.inputs[1].data == nullptr) return p;
  p.a = &call.inputs[0];
  p.b = &call.inputs[1];
  const bool fits = p.a->shape.size() == 2 && p.b->shape.size() == 2 && p.a->shape[0] == p.m &&
                    p.b->shape[1] == p.n && p.a->shape[1] == p.b->shape[0] && p.a->dtype == out.dtype &&
                    p.b->dtype == out.dtype;
  if (!fits) {
    return error(Errc::kShapeMismatch, std::string(ir::name_of(p.a->dtype)) + ir::to_string(p.a->shape) +
                                           " x " + std::string(ir::name_of(p.b->dtype)) +
                                           ir::to_string(p.b->shape) + " into " +
                                           std::string(ir::name_of(out.dtype)) + ir::to_string(out.shape));
  }
  p.k = p.a->shape[1];
  return p;
}

}  // namespace tilewise::kernels::matmul
