#include <tilewise/functions.h>
#include <tilewise/ir/verify.h>

#include <algorithm>
#include <numeric>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::axis_of;
using client::block_volume;
using client::extent;
using client::refuse;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;

std::vector<int> axes_of(const Array& a, const Axes& axes, const char* function) {
  std::vector<int> out(static_cast<std::size_t>(a.rank()));
  std::iota(out.begin(), out.end(), 0);
  if (!axes.list()) return out;
  out.clear();
  for (const int axis : *axes.list()) out.push_back(axis_of(a, axis, function));
  return out;
}

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
    if (runs.dim(0).count() == 1 || runs.dim(1).count() == 1) return flat;
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
  Shape shape = a.shape();
  shape[static_cast<std::size_t>(along)] =
      client::value_or_throw(ir::checked_volume(Shape{extent(a, along), count}));
  const std::span<const std::int64_t> result(shape.data(), shape.size());
  if (a.rank() == limits::kMaxRank) {
    // No room for a dimension more: two neighbours that stay as they are become one meanwhile, if possible for nothing.
    int merged = along >= 2 ? 0 : a.rank() - 2;
    for (int d = 0; d + 1 < a.rank(); ++d)
      if (d != along && d + 1 != along && (extent(a, d) == 1 || extent(a, d + 1) == 1)) merged = d;
    Shape fewer = a.shape();
    fewer[static_cast<std::size_t>(merged)] *= extent(a, merged + 1);
    fewer.erase(fewer.begin() + merged + 1);
    const Array less = a.reshape(std::span<const std::int64_t>(fewer.data(), fewer.size()));
    return repeat(less, count, along > merged ? along - 1 : along).reshape(result);
  }
  Shape wide = a.shape();
  wide.insert(wide.begin() + along + 1, count);
  return a.expand_dims(along + 1).broadcast_to(wide).reshape(result);
}

namespace {

constexpr std::int64_t kJoined =
    static_cast<std::int64_t>(ir::kMaxStepOperands);          // copies that one step joins
constexpr std::int64_t kSharedBytes = std::int64_t{1} << 20;  // of a block in which several copies lie

// `count` copies (at least one) of `a` behind each other along d. `block`: cuts of the result along d; 0: those of the copies.
Array copies(const Array& a, int d, std::int64_t count, std::int64_t block) {
  std::vector<Array> parts;
  if (count <= kJoined) {
    parts.assign(static_cast<std::size_t>(count), a);
  } else {  // first a sixteenth
    const std::int64_t some = ir::ceil_div(count, kJoined);
    const Array unit = copies(a, d, some, block);
    parts.assign(static_cast<std::size_t>(count / some), unit);
    if (count % some > 0) parts.push_back(unit.slice(d, 0, count % some * extent(a, d)));
  }
  if (parts.size() == 1) return a;
  const std::vector<ir::Source> sources = Access::sources(parts);
  ir::Inferred joined = client::value_or_throw(ir::infer_concat(sources, d));
  if (block > 0) {
    std::vector<ir::DimGrid> dims = joined.op->space.dims();
    ir::DimGrid& along = dims[static_cast<std::size_t>(d)];
    along = client::value_or_throw(ir::DimGrid::uniform(along.extent(), block));
    joined.op->space = Grid(std::move(dims));
    joined.op->outputs[0].grid = joined.op->space;
  }
  return Access::record(a, std::move(joined));
}

}  // namespace

Array tile(const Array& a, const std::vector<std::int64_t>& counts) {
  if (static_cast<int>(counts.size()) != a.rank())
    refuse(Errc::kInvalidArgument,
           "tile wants a count for each dimension, not " + std::to_string(counts.size()), a);
  Array out = a;
  for (int d = 0; d < a.rank(); ++d) {
    const std::int64_t count = counts[static_cast<std::size_t>(d)], n = extent(out, d);
    if (count < 0) refuse(Errc::kInvalidArgument, "tile " + std::to_string(count) + " times", a);
    if (count == 1 || n == 0) continue;
    if (count == 0) {
      out = out.slice(d, 0, 0);
      continue;
    }
    client::value_or_throw(ir::checked_volume(Shape{n, count}));
    // Blocks stay as they are; of something short that is not cut along d, several copies make one.
    const ir::Source pair[] = {Access::source(out), Access::source(out)};
    const Grid cut = client::value_or_throw(ir::infer_concat(pair, d)).op->space;
    const std::int64_t bytes =
        std::max<std::int64_t>(1, block_volume(cut)) * static_cast<std::int64_t>(ir::size_of(out.dtype()));
    const std::int64_t shared = std::clamp<std::int64_t>(kSharedBytes / bytes, 1, count);
    out = copies(out, d, count, cut.dim(d).count() == 2 ? n * shared : 0);
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
