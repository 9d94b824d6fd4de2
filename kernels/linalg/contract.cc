// What the kernels of linear algebra want of their operands, on the host and on CUDA.
#include <tilewise/kernels/plugin_call.h>

#include "call/call.h"
#include "linalg/matrices.h"

namespace tilewise::kernels {
namespace linalg {
namespace {

struct Named {
  std::string_view name;
  const Contract* contract;
};
constexpr Named kContracts[] = {
    {"tilewise.cholesky", &kCholesky}, {"tilewise.solve", &kSolve},
    {"tilewise.det", &kDet},           {"tilewise.qr", &kQr},
    {"tilewise.geqrf", &kGeqrf},       {"tilewise.ormqr", &kOrmqr},
    {"tilewise.eigh", &kEigh},         {"tilewise.svd", &kSvd},
    {"tilewise.trsm", &kSolve},        {"tilewise.update", &kUpdate},
    {"tilewise.lu_panel", &kLuPanel},  {"tilewise.lu_update", &kLuUpdate},
};

bool has_lapack(ir::DType t) {
  return t == ir::DType::kFloat32 || t == ir::DType::kFloat64 || ir::is_complex(t);
}

bool keeps(const tilewise_call_v1& c, const Contract& contract) {
  if (c.input_count < 1 || c.output_count < 1) return false;
  const tilewise_view_v1& first = c.inputs[0];
  const auto dtype = static_cast<ir::DType>(first.dtype);
  const auto like_first = [&](const tilewise_view_v1& v, ir::DType wanted) {
    if (v.rank != first.rank || v.rank < 2 || v.dtype != static_cast<std::int32_t>(wanted)) return false;
    bool empty = false;
    for (int d = 0; d < v.rank; ++d) empty |= v.shape[d] == 0;
    return (empty || v.data != nullptr) && std::equal(v.shape, v.shape + v.rank - 2, first.shape);
  };
  for (int i = 0; i < c.input_count; ++i)
    if (!like_first(c.inputs[i], (contract.index_inputs >> i & 1) != 0 ? ir::DType::kInt64 : dtype))
      return false;
  for (int i = 0; i < c.output_count; ++i)
    if (!like_first(c.outputs[i], (contract.real_outputs >> i & 1) != 0    ? ir::real_dtype(dtype)
                                  : (contract.index_outputs >> i & 1) != 0 ? ir::DType::kInt64
                                                                           : dtype))
      return false;
  return contract.fits(c);
}

}  // namespace

Result<Params> admitted(const tilewise_call_v1& c, const Contract& contract) {
  Params params;
  const auto refuse = [&](Errc code, const char* why) {
    return error(code, std::string(params.function) + ": " + why);
  };
  if (c.params_bytes != sizeof(Params))
    return refuse(Errc::kInvalidArgument, "wants parameters of linear algebra");
  std::memcpy(&params, c.params, sizeof(Params));
  params.function[sizeof(params.function) - 1] = '\0';
  if (!keeps(c, contract))
    return refuse(Errc::kShapeMismatch, "matrices that are not there or do not fit each other");
  if (!has_lapack(static_cast<ir::DType>(c.inputs[0].dtype)))
    return refuse(Errc::kInvalidArgument,
                  "of a dtype that is neither float32, float64, complex64 nor complex128");
  return params;
}

}  // namespace linalg

Result<ir::linalg::Params> linalg_params(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::CallAttrs>();
  boost::container::small_vector<tilewise_view_v1, 8> inputs, outputs;
  for (const TensorView& in : call.inputs) inputs.push_back(call::view_of(in, {}));
  for (const TensorView& out : call.outputs) outputs.push_back(call::view_of(out, {}));
  tilewise_call_v1 c{};
  c.params = attrs.params.data();
  c.params_bytes = attrs.params.size();
  c.input_count = static_cast<std::int32_t>(inputs.size());
  c.output_count = static_cast<std::int32_t>(outputs.size());
  c.inputs = inputs.data();
  c.outputs = outputs.data();
  for (const linalg::Named& named : linalg::kContracts)
    if (named.name == attrs.kernel) return linalg::admitted(c, *named.contract);
  return error(Errc::kNotFound, attrs.kernel + " is no kernel of linear algebra");
}

}  // namespace tilewise::kernels
