// One dot product an output element: exact integers, long double sums rounded once a step.
#include "map/reference.h"
#include "matmul/matmul.h"

namespace tilewise::kernels::matmul {

namespace {

// Element (i, j) of the product of one pair of matrices, after `old`.
map::RefValue element(const TensorView& out, const TensorView* a, const TensorView* b,
                      const map::RefValue& old, ir::Index row, ir::Index column) {
  const std::size_t last = row.size() - 1;
  const std::int64_t k = a != nullptr ? a->shape[last] : 0;
  long double f = old.f, g = old.g;
  auto sum = static_cast<std::uint64_t>(old.i);
  bool any = old.i != 0;
  for (std::int64_t p = 0; p < k; ++p) {
    row[last] = column[last - 1] = p;
    const map::RefValue x = map::ref_load(*a, row), y = map::ref_load(*b, column);
    f += static_cast<long double>(x.f) * y.f - static_cast<long double>(x.g) * y.g;
    g += static_cast<long double>(x.f) * y.g + static_cast<long double>(x.g) * y.f;
    sum += static_cast<std::uint64_t>(x.i) * static_cast<std::uint64_t>(y.i);
    any = any || (x.i != 0 && y.i != 0);
  }
  map::RefValue value;
  value.f = static_cast<double>(f);
  value.g = static_cast<double>(g);
  value.i = out.dtype == ir::DType::kBool ? any : static_cast<std::int64_t>(sum);
  if (out.dtype == ir::DType::kInt32) value.i = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
  return value;
}

}  // namespace

Status reference(const KernelCall& call, const PluginTable*) {
  const TensorView& out = call.outputs[0];
  const bool panels = call.op->kind == ir::OpKind::kMatmulPanels;
  const bool reads =
      call.inputs.size() == 2 && call.inputs[0].data != nullptr && call.inputs[1].data != nullptr;
  const bool accumulate = call.step > 0;
  TensorView flat = out;
  flat.shape = {ir::volume(out.shape)};
  flat.strides = {1};
  for (std::int64_t e = 0; e < flat.shape[0]; ++e) {
    ir::Index at = ir::unravel(e, out.shape);
    if (panels) at.erase(at.begin());
    const map::RefValue old = accumulate ? map::ref_load(flat, {e}) : map::RefValue{};
    map::ref_store(
        out, e,
        element(out, reads ? &call.inputs[0] : nullptr, reads ? &call.inputs[1] : nullptr, old, at, at));
  }
  return {};
}

}  // namespace tilewise::kernels::matmul
