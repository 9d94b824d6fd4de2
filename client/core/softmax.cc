// Exponentials that are summed without overflow, and classes as vectors.
#include <tilewise/functions.h>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::axes_of;
using client::extent;
using client::refuse;

// In a dtype that has exponentials: integers and bool as float64, 16-bit floats as float32.
Array real_numbers(const Array& a, const char* function) {
  if (ir::is_complex(a.dtype()))
    refuse(Errc::kInvalidArgument, std::string(function) + " of complex numbers", a);
  if (ir::is_half(a.dtype())) return a.astype(DType::kFloat32);
  return ir::is_floating(a.dtype()) ? a : a.astype(DType::kFloat64);
}
Array rounded(const Array& result, const Array& a) {
  return ir::is_half(a.dtype()) ? result.astype(a.dtype()) : result;
}

bool nothing_along(const Array& a, const std::vector<int>& axes) {
  return std::any_of(axes.begin(), axes.end(), [&](int axis) { return extent(a, axis) == 0; });
}

// The largest along the axes, which are kept; 0 where that is no number to subtract: infinity less itself is NaN.
Array finite_largest(const Array& x, const Axes& axes) {
  const Array most = max(x, axes, true);
  return where(isfinite(most), most, 0.0);
}

}  // namespace

Array logsumexp(const Array& a, const Axes& axes, bool keepdims) {
  const Array x = real_numbers(a, "logsumexp");
  const std::vector<int> reduced = axes_of(a, axes, "logsumexp");
  if (nothing_along(a, reduced)) return rounded(log(sum(x, axes, keepdims)), a);
  const Array most = finite_largest(x, axes);
  const Array out = log(sum(exp(x - most), axes, true)) + most;
  return rounded(keepdims || reduced.empty() ? out : out.squeeze(Axes(reduced)), a);
}

Array softmax(const Array& a, const Axes& axes) {
  const Array x = real_numbers(a, "softmax");
  if (nothing_along(a, axes_of(a, axes, "softmax"))) return rounded(x, a);
  const Array powers = exp(x - max(x, axes, true));
  return rounded(powers / sum(powers, axes, true), a);
}

Array log_softmax(const Array& a, const Axes& axes) {
  const Array x = real_numbers(a, "log_softmax");
  if (nothing_along(a, axes_of(a, axes, "log_softmax"))) return rounded(x, a);
  const Array shifted = x - finite_largest(x, axes);
  return rounded(shifted - log(sum(exp(shifted), axes, true)), a);
}

Array one_hot(const Array& indices, std::int64_t num_classes, DType dtype, int axis) {
  if (!ir::is_integer(indices.dtype()))
    refuse(Errc::kInvalidArgument, "one_hot: indices of dtype " + std::string(name_of(indices.dtype())),
           indices);
  if (num_classes < 0)
    refuse(Errc::kInvalidArgument, "one_hot: " + std::to_string(num_classes) + " classes", indices);
  const int along = axis < 0 ? axis + indices.rank() + 1 : axis;
  if (along < 0 || along > indices.rank())
    refuse(Errc::kOutOfRange, "one_hot: axis " + std::to_string(axis), indices);
  const Array spread = client::as_positions(indices).expand_dims(along);
  Shape shape = spread.shape();
  shape[static_cast<std::size_t>(along)] = num_classes;
  const ir::Source source = Access::source(spread.broadcast_to(shape));
  return Access::record(
      indices, infer_map(std::span(&source, 1), [&](ir::TapeBuilder& t, std::span<const ir::TapeValue> v) {
        return t.cast(t.binary(ir::TapeOp::kEq, t.iota(along), v[0]), dtype);
      }));
}

}  // namespace tilewise
