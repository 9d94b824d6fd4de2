#include <tilewise/functions.h>

#include <algorithm>
#include <numeric>

#include "access.h"

namespace tilewise {
namespace {

using client::Access;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;

[[noreturn]] void refuse(Errc code, const std::string& what, const Array& a) {
  throw ArrayError(code, what + ", of an array of shape " + ir::to_string(a.shape()));
}

int axis_of(const Array& a, int axis, const char* function) {
  const int normal = axis < 0 ? axis + a.rank() : axis;
  if (normal < 0 || normal >= a.rank())
    refuse(Errc::kOutOfRange, std::string(function) + ": axis " + std::to_string(axis), a);
  return normal;
}

std::vector<int> axes_of(const Array& a, const Axes& axes, const char* function) {
  std::vector<int> out(static_cast<std::size_t>(a.rank()));
  std::iota(out.begin(), out.end(), 0);
  if (!axes.list()) return out;
  out.clear();
  for (const int axis : *axes.list()) out.push_back(axis_of(a, axis, function));
  return out;
}

std::int64_t extent(const Array& a, int axis) { return a.shape()[static_cast<std::size_t>(axis)]; }

// Zero where `dropped`(column - row) holds, for the last two dimensions.
Array part(const Array& a, TapeOp dropped, std::int64_t k, const char* function) {
  if (a.rank() < 2)
    refuse(Errc::kInvalidArgument, std::string(function) + " wants two dimensions or more", a);
  const ir::Source source = Access::source(a);
  return Access::record(
      a, infer_map(std::span(&source, 1), [&](TapeBuilder& t, std::span<const TapeValue> v) {
        const TapeValue off = t.binary(TapeOp::kSub, t.iota(a.rank() - 1), t.iota(a.rank() - 2));
        const TapeValue zero = t.cast(t.constant(ir::Scalar(std::int64_t{0}), DType::kInt64), t.dtype(v[0]));
        return t.where(t.binary(dropped, off, ir::Scalar(k)), zero, v[0]);
      }));
}

}  // namespace

// ---- elementwise -------------------------------------------------------------------------------------------------------

Array clip(const Array& a, const std::optional<Scalar>& low, const std::optional<Scalar>& high) {
  Array out = a;
  if (low) out = maximum(out, *low);
  if (high) out = minimum(out, *high);
  return out;
}

// ---- statistics --------------------------------------------------------------------------------------------------------

Array var(const Array& a, const Axes& axes, double correction, bool keepdims) {
  if (ir::is_half(a.dtype()))
    return var(a.astype(DType::kFloat32), axes, correction, keepdims).astype(a.dtype());
  std::int64_t n = 1;
  for (const int axis : axes_of(a, axes, "var")) n *= extent(a, axis);
  const Array left = a - mean(a, axes, true);
  const Array size = ir::is_complex(left.dtype()) ? abs(left) : left;
  return sum(square(size), axes, keepdims) / std::max(0.0, static_cast<double>(n) - correction);
}
Array stddev(const Array& a, const Axes& axes, double correction, bool keepdims) {
  return sqrt(var(a, axes, correction, keepdims));
}
Array count_nonzero(const Array& a, const Axes& axes, bool keepdims) {
  return sum(a.dtype() == DType::kBool ? a : a != 0, axes, keepdims);
}
Array norm(const Array& a, const Axes& axes, bool keepdims) {
  if (ir::is_complex(a.dtype())) return norm(abs(a), axes, keepdims);
  if (ir::is_half(a.dtype())) return norm(a.astype(DType::kFloat32), axes, keepdims).astype(a.dtype());
  return sqrt(sum(square(ir::is_floating(a.dtype()) ? a : a.astype(DType::kFloat64)), axes, keepdims));
}
Array trace(const Array& a, std::int64_t offset) {
  if (a.rank() != 2) refuse(Errc::kInvalidArgument, "trace wants a matrix", a);
  return sum(part(a, TapeOp::kNe, offset, "trace"));
}

// ---- products ----------------------------------------------------------------------------------------------------------

Array outer(const Array& a, const Array& b) {
  if (a.rank() != 1) refuse(Errc::kShapeMismatch, "outer wants vectors", a);
  if (b.rank() != 1) refuse(Errc::kShapeMismatch, "outer wants vectors", b);
  return a.expand_dims(1) * b.expand_dims(0);
}

Array vecdot(const Array& a, const Array& b, int axis) {
  const int one = axis_of(a, axis, "vecdot"), other = axis_of(b, axis, "vecdot");
  if (extent(a, one) != extent(b, other)) {
    refuse(Errc::kShapeMismatch, "vecdot along " + std::to_string(extent(b, other)) + " elements", a);
  }
  return sum((ir::is_complex(a.dtype()) ? conj(a) : a) * b, axis);
}

Array tensordot(const Array& a, const Array& b, int axes) {
  if (axes < 0 || axes > a.rank() || axes > b.rank()) {
    refuse(Errc::kOutOfRange,
           "tensordot over " + std::to_string(axes) + " axes with one of shape " + ir::to_string(b.shape()),
           a);
  }
  Shape result;
  std::int64_t rows = 1, inner = 1, columns = 1;
  for (int d = 0; d < a.rank() - axes; ++d) rows *= extent(a, d), result.push_back(extent(a, d));
  for (int d = 0; d < axes; ++d) {
    if (extent(a, a.rank() - axes + d) != extent(b, d)) {
      refuse(Errc::kShapeMismatch,
             "tensordot over " + std::to_string(axes) + " axes with one of shape " + ir::to_string(b.shape()),
             a);
    }
    inner *= extent(b, d);
  }
  for (int d = axes; d < b.rank(); ++d) columns *= extent(b, d), result.push_back(extent(b, d));
  return matmul(a.reshape({rows, inner}), b.reshape({inner, columns}))
      .reshape(std::span<const std::int64_t>(result.data(), result.size()));
}

// ---- structure ---------------------------------------------------------------------------------------------------------

Array moveaxis(const Array& a, int source, int destination) {
  const int from = axis_of(a, source, "moveaxis"), to = axis_of(a, destination, "moveaxis");
  std::vector<int> order = axes_of(a, {}, "moveaxis");
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return a.permute(order);
}

Array swapaxes(const Array& a, int one, int other) {
  std::vector<int> order = axes_of(a, {}, "swapaxes");
  std::swap(order[static_cast<std::size_t>(axis_of(a, one, "swapaxes"))],
            order[static_cast<std::size_t>(axis_of(a, other, "swapaxes"))]);
  return a.permute(order);
}

Array flip(const Array& a, const Axes& axes) {
  Array out = a;
  for (const int axis : axes_of(a, axes, "flip")) out = out.slice(axis, {}, {}, -1);
  return out;
}

Array roll(const Array& a, std::int64_t shift, int axis) {
  const int along = axis_of(a, axis, "roll");
  const std::int64_t n = extent(a, along);
  const std::int64_t by = n == 0 ? 0 : (shift % n + n) % n;
  if (by == 0) return a;
  return concat({a.slice(along, n - by), a.slice(along, 0, n - by)}, along);
}

Array repeat(const Array& a, std::int64_t count, int axis) {
  const int along = axis_of(a, axis, "repeat");
  if (count < 0) refuse(Errc::kInvalidArgument, "repeat " + std::to_string(count) + " times", a);
  Shape wide = a.shape(), shape = a.shape();
  wide.insert(wide.begin() + along + 1, count);
  shape[static_cast<std::size_t>(along)] =
      client::value_or_throw(ir::checked_volume(Shape{extent(a, along), count}));
  return a.expand_dims(along + 1).broadcast_to(wide).reshape(
      std::span<const std::int64_t>(shape.data(), shape.size()));
}

Array tile(const Array& a, const std::vector<std::int64_t>& counts) {
  if (static_cast<int>(counts.size()) != a.rank())
    refuse(Errc::kInvalidArgument,
           "tile wants a count for each dimension, not " + std::to_string(counts.size()), a);
  Array out = a;
  for (int d = 0; d < a.rank(); ++d) {
    const std::int64_t count = counts[static_cast<std::size_t>(d)];
    if (count < 0) refuse(Errc::kInvalidArgument, "tile " + std::to_string(count) + " times", a);
    if (count == 1) continue;
    Shape wide = out.shape(), shape = out.shape();
    wide.insert(wide.begin() + d, count);
    shape[static_cast<std::size_t>(d)] =
        client::value_or_throw(ir::checked_volume(Shape{extent(out, d), count}));
    out = out.expand_dims(d).broadcast_to(wide).reshape(
        std::span<const std::int64_t>(shape.data(), shape.size()));
  }
  return out;
}

Array diff(const Array& a, int axis) {
  const int along = axis_of(a, axis, "diff");
  return a.slice(along, 1) - a.slice(along, {}, -1);
}

Array tril(const Array& a, std::int64_t k) { return part(a, TapeOp::kGt, k, "tril"); }
Array triu(const Array& a, std::int64_t k) { return part(a, TapeOp::kLt, k, "triu"); }

std::vector<Array> meshgrid(const std::vector<Array>& vectors) {
  Shape shape;
  for (const Array& v : vectors) {
    if (v.rank() != 1) refuse(Errc::kShapeMismatch, "meshgrid wants vectors", v);
    shape.push_back(v.size());
  }
  std::vector<Array> out;
  for (std::size_t d = 0; d < vectors.size(); ++d) {
    Array v = vectors[d];
    for (std::size_t after = d + 1; after < vectors.size(); ++after) v = v.expand_dims(-1);
    for (std::size_t before = 0; before < d; ++before) v = v.expand_dims(0);
    out.push_back(v.broadcast_to(shape));
  }
  return out;
}

}  // namespace tilewise
