// One dot product an output element: exact integers, long double sums rounded once a step.
#include "map/reference.h"
#include "matmul/matmul.h"

namespace tilewise::kernels::matmul {

Status reference(const KernelCall& call, const PluginTable*) {
  const TensorView& out = call.outputs[0];
  const std::size_t rank = out.shape.size();
  const std::int64_t m = out.shape[rank - 2], n = out.shape[rank - 1];
  const bool reads =
      call.inputs.size() == 2 && call.inputs[0].data != nullptr && call.inputs[1].data != nullptr;
  const std::int64_t k = reads ? call.inputs[0].shape[1] : 0;
  const bool accumulate = call.op->kind == ir::OpKind::kMatmul && call.step > 0;
  TensorView flat = out;
  flat.shape = {m * n};
  flat.strides = {1};
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const map::RefValue old = accumulate ? map::ref_load(flat, {i * n + j}) : map::RefValue{};
      long double f = old.f, g = old.g;
      auto sum = static_cast<std::uint64_t>(old.i);
      bool any = old.i != 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const map::RefValue a = map::ref_load(call.inputs[0], {i, p}),
                            b = map::ref_load(call.inputs[1], {p, j});
        f += static_cast<long double>(a.f) * b.f - static_cast<long double>(a.g) * b.g;
        g += static_cast<long double>(a.f) * b.g + static_cast<long double>(a.g) * b.f;
        sum += static_cast<std::uint64_t>(a.i) * static_cast<std::uint64_t>(b.i);
        any = any || (a.i != 0 && b.i != 0);
      }
      map::RefValue value;
      value.f = static_cast<double>(f);
      value.g = static_cast<double>(g);
      value.i = out.dtype == ir::DType::kBool ? any : static_cast<std::int64_t>(sum);
      if (out.dtype == ir::DType::kInt32)
        value.i = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
      map::ref_store(out, i * n + j, value);
    }
  }
  return {};
}

}  // namespace tilewise::kernels::matmul
