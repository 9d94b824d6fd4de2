#include <tilewise/functions.h>
#include <tilewise/session.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::axes_of;
using client::axis_of;
using client::block_volume;
using client::extent;
using client::refuse;
using ir::TapeBuilder;
using ir::TapeValue;

}  // namespace

// ---- elementwise -------------------------------------------------------------------------------------------------------

Array clip(const Array& a, const Bound& low, const Bound& high) {
  Array out = a;
  if (low.number()) out = maximum(out, *low.number());
  if (low.array().valid()) out = maximum(out, low.array());
  if (high.number()) out = minimum(out, *high.number());
  if (high.array().valid()) out = minimum(out, high.array());
  return out;
}

// ---- comparisons -------------------------------------------------------------------------------------------------------

namespace {

Array both_nan(const Array& a, const Array& b) { return isnan(a) & isnan(b); }

}  // namespace

Array isclose(const Array& a, const Array& b, const Closeness& closeness) {
  const bool exact = !ir::is_floating(b.dtype()) && !ir::is_complex(b.dtype());
  const Array to = exact ? b.astype(DType::kFloat64) : b;
  const Array out = ((abs(a - to) <= closeness.atol + closeness.rtol * abs(to)) & isfinite(to)) | (a == to);
  return closeness.equal_nan ? out | both_nan(a, to) : out;
}
Array allclose(const Array& a, const Array& b, const Closeness& closeness) {
  return all(isclose(a, b, closeness));
}
Array array_equal(const Array& a, const Array& b, bool equal_nan) {
  if (a.shape() != b.shape()) return Session(Access::handle(a).session).full({}, false);
  return all(equal_nan ? (a == b) | both_nan(a, b) : a == b);
}

// ---- statistics --------------------------------------------------------------------------------------------------------

Array var(const Array& a, const Axes& axes, double correction, bool keepdims) {
  // Cast as mean() does, so that the two are made of the same array.
  if (ir::is_half(a.dtype()))
    return var(a.astype(DType::kFloat32), axes, correction, keepdims).astype(a.dtype());
  if (!ir::is_floating(a.dtype()) && !ir::is_complex(a.dtype()))
    return var(a.astype(DType::kFloat64), axes, correction, keepdims);
  std::int64_t n = 1;
  for (const int axis : axes_of(a, axes, "var")) n *= extent(a, axis);
  const Array squares =
      Access::record(a, infer_reduce(Access::source(a), ir::ReduceKind::kMoments, axes.list(), keepdims));
  return (squares / std::max(0.0, static_cast<double>(n) - correction)).astype(a.dtype());
}
Array stddev(const Array& a, const Axes& axes, double correction, bool keepdims) {
  if (ir::is_half(a.dtype()))  // the root may fit where its square does not
    return stddev(a.astype(DType::kFloat32), axes, correction, keepdims).astype(a.dtype());
  return sqrt(var(a, axes, correction, keepdims));
}
Array count_nonzero(const Array& a, const Axes& axes, bool keepdims) {
  return sum(a.dtype() == DType::kBool ? a : a != 0, axes, keepdims);
}
// ---- statistics of what is a number ------------------------------------------------------------------------------------

namespace {

// NaN counts as `instead`. Of integers and bool none is.
Array without_nan(const Array& a, const Scalar& instead) {
  return ir::is_floating(a.dtype()) || ir::is_complex(a.dtype()) ? where(isnan(a), instead, a) : a;
}
// `extreme` of what is left, NaN where nothing is.
Array nan_extreme(Array (*extreme)(const Array&, const Axes&, bool), const Array& a, double least,
                  const Axes& axes, bool keepdims) {
  if (!ir::is_floating(a.dtype())) return extreme(a, axes, keepdims);
  const Array found = extreme(without_nan(a, least), axes, keepdims);
  return where(all(isnan(a), axes, keepdims), std::numeric_limits<double>::quiet_NaN(), found);
}

}  // namespace

Array nansum(const Array& a, const Axes& axes, bool keepdims, std::optional<DType> dtype) {
  return sum(without_nan(a, 0), axes, keepdims, dtype);
}
Array nanprod(const Array& a, const Axes& axes, bool keepdims, std::optional<DType> dtype) {
  return prod(without_nan(a, 1), axes, keepdims, dtype);
}
Array nanmin(const Array& a, const Axes& axes, bool keepdims) {
  return nan_extreme(min, a, std::numeric_limits<double>::infinity(), axes, keepdims);
}
Array nanmax(const Array& a, const Axes& axes, bool keepdims) {
  return nan_extreme(max, a, -std::numeric_limits<double>::infinity(), axes, keepdims);
}
Array nanmean(const Array& a, const Axes& axes, bool keepdims) {
  if (ir::is_half(a.dtype())) return nanmean(a.astype(DType::kFloat32), axes, keepdims).astype(a.dtype());
  if (!ir::is_floating(a.dtype()) && !ir::is_complex(a.dtype())) return mean(a, axes, keepdims);
  const Array numbers = sum(!isnan(a), axes, keepdims);
  return (nansum(a, axes, keepdims) / numbers.astype(ir::real_dtype(a.dtype()))).astype(a.dtype());
}

// ---- running sums and products -----------------------------------------------------------------------------------------

namespace {

Array cumulative(ir::ReduceKind kind, const Array& a, std::optional<int> axis, std::optional<DType> dtype,
                 bool include_initial) {
  const bool sums = kind == ir::ReduceKind::kSum;
  const char* const function = sums ? "cumulative_sum" : "cumulative_prod";
  if (a.rank() == 0 || (!axis && a.rank() != 1))
    refuse(Errc::kInvalidArgument,
           std::string(function) + (a.rank() == 0 ? " wants a dimension" : " wants an axis"), a);
  const int along = axis_of(a, axis.value_or(0), function);
  if (dtype == DType::kBool) refuse(Errc::kInvalidArgument, std::string(function) + " as bool", a);
  const bool number = ir::is_floating(a.dtype()) || ir::is_complex(a.dtype());
  const DType result = dtype                                ? *dtype
                       : number                             ? a.dtype()
                       : ir::is_unsigned_integer(a.dtype()) ? DType::kUInt64
                                                            : DType::kInt64;
  const Array wide = a.astype(result).astype(compute_dtype(result));
  Array out = Access::record(wide, infer_scan(Access::source(wide), kind, along)).astype(result);
  if (!include_initial) return out;
  Shape one = a.shape();
  one[static_cast<std::size_t>(along)] = 1;
  const Array initial = Access::record(
      a, ir::infer_generate(one, {}, [&](TapeBuilder& t, std::span<const TapeValue>) {
        return t.cast(t.constant(ir::Scalar(std::int64_t{sums ? 0 : 1}), DType::kInt64), result);
      }));
  return concat({initial, out}, along);
}

}  // namespace

Array cumulative_sum(const Array& a, std::optional<int> axis, std::optional<DType> dtype,
                     bool include_initial) {
  return cumulative(ir::ReduceKind::kSum, a, axis, dtype, include_initial);
}
Array cumulative_prod(const Array& a, std::optional<int> axis, std::optional<DType> dtype,
                      bool include_initial) {
  return cumulative(ir::ReduceKind::kProd, a, axis, dtype, include_initial);
}

// ---- products ----------------------------------------------------------------------------------------------------------

namespace {

void numeric(const Array& a, const char* function) {
  if (a.dtype() == DType::kBool)
    refuse(Errc::kInvalidArgument, std::string(function) + " of bool: cast to a number first", a);
}

}  // namespace

Array outer(const Array& a, const Array& b) {
  numeric(a, "outer"), numeric(b, "outer");
  if (a.rank() != 1) refuse(Errc::kShapeMismatch, "outer wants vectors", a);
  if (b.rank() != 1) refuse(Errc::kShapeMismatch, "outer wants vectors", b);
  return a.expand_dims(1) * b.expand_dims(0);
}

Array vecdot(const Array& a, const Array& b, int axis) {
  numeric(a, "vecdot"), numeric(b, "vecdot");
  const int one = axis_of(a, axis, "vecdot"), other = axis_of(b, axis, "vecdot");
  if (axis >= 0 && a.rank() != b.rank())
    refuse(Errc::kInvalidArgument, "vecdot of arrays of two ranks wants an axis counted from the end", a);
  if (extent(a, one) != extent(b, other)) {
    refuse(Errc::kShapeMismatch, "vecdot along " + std::to_string(extent(b, other)) + " elements", a);
  }
  const DType common = ir::common_dtype(a.dtype(), b.dtype());
  const auto last = [&](const Array& x, int at) { return moveaxis(x.astype(compute_dtype(common)), at, -1); };
  const Array left = last(a, one);
  return sum((ir::is_complex(left.dtype()) ? conj(left) : left) * last(b, other), -1).astype(common);
}

Array tensordot(const Array& a, const Array& b, const std::vector<int>& axes_a,
                const std::vector<int>& axes_b) {
  numeric(a, "tensordot"), numeric(b, "tensordot");
  const std::string with = " with one of shape " + ir::to_string(b.shape());
  if (axes_a.size() != axes_b.size())
    refuse(Errc::kInvalidArgument,
           "tensordot over " + std::to_string(axes_a.size()) + " axes against " +
               std::to_string(axes_b.size()) + with,
           a);
  // Axes that stay, in order, and those that are summed over, as asked: before or behind.
  const auto order = [&](const Array& x, const std::vector<int>& axes, bool behind) {
    std::vector<int> summed, kept;
    for (const int axis : axes) {
      const int at = axis_of(x, axis, "tensordot");
      if (std::find(summed.begin(), summed.end(), at) != summed.end())
        refuse(Errc::kInvalidArgument, "tensordot: axis " + std::to_string(axis) + " twice", x);
      summed.push_back(at);
    }
    for (int d = 0; d < x.rank(); ++d)
      if (std::find(summed.begin(), summed.end(), d) == summed.end()) kept.push_back(d);
    if (behind)
      kept.insert(kept.end(), summed.begin(), summed.end());
    else
      kept.insert(kept.begin(), summed.begin(), summed.end());
    return x.permute(kept);
  };
  const Array left = order(a, axes_a, true), right = order(b, axes_b, false);
  const int axes = static_cast<int>(axes_a.size());
  Shape result;
  std::int64_t rows = 1, inner = 1, columns = 1;
  for (int d = 0; d < left.rank() - axes; ++d) rows *= extent(left, d), result.push_back(extent(left, d));
  for (int d = 0; d < axes; ++d) {
    if (extent(left, left.rank() - axes + d) != extent(right, d))
      refuse(Errc::kShapeMismatch, "tensordot over " + std::to_string(axes) + " axes" + with, a);
    inner *= extent(right, d);
  }
  for (int d = axes; d < right.rank(); ++d) columns *= extent(right, d), result.push_back(extent(right, d));
  // What is cut within its rows has blocks of one row, but products want panels of many: about square ones of that size.
  const auto matrix = [](const Array& x, std::int64_t height, std::int64_t width) {
    const Array flat = x.reshape({height, width});
    const Grid runs = flat.grid();
    if (runs.dim(0).count() <= 1 || runs.dim(1).count() <= 1) return flat;  // of nothing: 0
    const std::int64_t most = block_volume(runs);
    std::int64_t side = 1;
    while (2 * side <= height && 2 * side <= most / (2 * side)) side *= 2;
    return flat.reblock({side, std::min(width, most / side)});
  };
  return matmul(matrix(left, rows, inner), matrix(right, inner, columns))
      .reshape(std::span<const std::int64_t>(result.data(), result.size()));
}

Array tensordot(const Array& a, const Array& b, int axes) {
  if (axes < 0 || axes > a.rank() || axes > b.rank()) {
    refuse(Errc::kOutOfRange,
           "tensordot over " + std::to_string(axes) + " axes with one of shape " + ir::to_string(b.shape()),
           a);
  }
  std::vector<int> last, first;
  for (int d = 0; d < axes; ++d) last.push_back(a.rank() - axes + d), first.push_back(d);
  return tensordot(a, b, last, first);
}

Array matrix_transpose(const Array& a) {
  if (a.rank() < 2) refuse(Errc::kShapeMismatch, "matrix_transpose wants two dimensions or more", a);
  return swapaxes(a, -1, -2);
}

}  // namespace tilewise
