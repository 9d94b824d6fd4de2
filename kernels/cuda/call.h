// What the CUDA kernels of named calls (kCall) have in common.
#pragma once
#include <tilewise/ir/builtin.h>

#include <string>

#include "launch.h"

namespace tilewise::cuda {

inline Error refuse(const KernelCall& call, const std::string& why) {
  return error(Errc::kTaskFailed, call.op->get<ir::CallAttrs>().kernel + ": " + why);
}

template <class P> Status read_params(const KernelCall& call, P& p) {
  const std::string& params = call.op->get<ir::CallAttrs>().params;
  if (ir::builtin::read(p, params.data(), params.size())) return {};
  return refuse(call, "wants " + std::to_string(sizeof p) + " bytes of parameters, not " +
                          std::to_string(params.size()));
}

// Equal extents but along `axis`.
inline bool same_lines(const TensorView& a, const TensorView& b, std::size_t axis) {
  if (a.shape.size() != b.shape.size()) return false;
  for (std::size_t d = 0; d < a.shape.size(); ++d)
    if (d != axis && a.shape[d] != b.shape[d]) return false;
  return true;
}

}  // namespace tilewise::cuda
