// Products, linear algebra and Fourier transforms.
#include "call.h"

namespace tilewise::fuzz {

namespace {

Array tensordot_of(const Call& call) {
  return tensordot(call[0], call[1], call.axis_list("axes_a"), call.axis_list("axes_b"));
}

std::vector<Array> qr_of(const Call& call) {
  const QrResult found = qr(call[0], call.flag("complete") ? QrMode::kComplete : QrMode::kReduced);
  return {found.q, found.r};
}

std::vector<Array> svd_of(const Call& call) {
  const SvdResult found = svd(call[0], call.flag("full_matrices"));
  return {found.u, found.s, found.vh};
}

std::vector<Array> eigh_of(const Call& call) {
  const EighResult found = eigh(call[0]);
  return {found.eigenvalues, found.eigenvectors};
}

std::vector<Array> lstsq_of(const Call& call) {
  const LstsqResult found = lstsq(call[0], call[1]);
  return {found.x, found.residuals};
}

std::vector<Array> slogdet_of(const Call& call) {
  const SlogdetResult found = slogdet(call[0]);
  return {found.sign, found.logabsdet};
}

Array matrix_norm_of(const Call& call) {
  const std::string& ord = call.text("ord");
  if (ord == "fro" || ord == "nuc") return matrix_norm(call[0], ord, call.flag("keepdims"));
  return matrix_norm(call[0], call.number("ord"), call.flag("keepdims"));
}

Op transform(Array (*function)(const Array&, std::optional<std::int64_t>, int, std::string_view)) {
  return [function](const Call& call) {
    return function(call[0], call.integer_or_none("n"), *call.axis(), call.text("norm"));
  };
}

Op transform_of_several(Array (*function)(const Array&, const std::optional<std::vector<std::int64_t>>&,
                                          const Axes&, std::string_view)) {
  return [function](const Call& call) {
    std::optional<std::vector<std::int64_t>> lengths;
    if (call.has("s")) lengths = call.integers("s");
    return function(call[0], lengths, call.axes(), call.text("norm"));
  };
}

}  // namespace

Ops linalg_ops() {
  return {
      {"matmul",
       [](const Call& call) { return matmul(call[0], call[1], {.k_parts = call.integer("k_parts", 0)}); }},
      {"tensordot", tensordot_of},
      {"einsum", [](const Call& call) { return einsum(call.text("subscripts"), call.operands()); }},
      {"vecdot", [](const Call& call) { return vecdot(call[0], call[1], *call.axis()); }},
      {"outer", [](const Call& call) { return outer(call[0], call[1]); }},
      {"cross", [](const Call& call) { return cross(call[0], call[1], *call.axis()); }},
      {"trace",
       [](const Call& call) { return trace(call[0], call.integer("offset"), call.dtype_or_none()); }},
      {"matrix_power", [](const Call& call) { return matrix_power(call[0], call.integer("n")); }},
      {"vector_norm",
       [](const Call& call) {
         return vector_norm(call[0], call.axes(), call.flag("keepdims"), call.number("ord"));
       }},
      {"matrix_norm", matrix_norm_of},
      {"cholesky", [](const Call& call) { return cholesky(call[0], call.flag("upper")); }},
      {"qr", qr_of},
      {"svd", svd_of},
      {"svdvals", [](const Call& call) { return svdvals(call[0]); }},
      {"eigh", eigh_of},
      {"eigvalsh", [](const Call& call) { return eigvalsh(call[0]); }},
      {"solve", [](const Call& call) { return solve(call[0], call[1]); }},
      {"solve_triangular",
       [](const Call& call) { return solve_triangular(call[0], call[1], call.flag("lower")); }},
      {"inv", [](const Call& call) { return inv(call[0]); }},
      {"det", [](const Call& call) { return det(call[0]); }},
      {"slogdet", slogdet_of},
      {"lstsq", lstsq_of},
      {"pinv", [](const Call& call) { return pinv(call[0]); }},
      {"matrix_rank", [](const Call& call) { return matrix_rank(call[0]); }},
      {"fft.fft", transform(fft::fft)},
      {"fft.ifft", transform(fft::ifft)},
      {"fft.rfft", transform(fft::rfft)},
      {"fft.irfft", transform(fft::irfft)},
      {"fft.hfft", transform(fft::hfft)},
      {"fft.ihfft", transform(fft::ihfft)},
      {"fft.fftn", transform_of_several(fft::fftn)},
      {"fft.ifftn", transform_of_several(fft::ifftn)},
      {"fft.rfftn", transform_of_several(fft::rfftn)},
      {"fft.irfftn", transform_of_several(fft::irfftn)},
      {"fft.fftshift", [](const Call& call) { return fft::fftshift(call[0], call.axes()); }},
      {"fft.ifftshift", [](const Call& call) { return fft::ifftshift(call[0], call.axes()); }},
  };
}

}  // namespace tilewise::fuzz
