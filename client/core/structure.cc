// Functions that move elements about, or repeat them; new arrays like others.
#include <tilewise/functions.h>
#include <tilewise/ir/verify.h>
#include <tilewise/linalg.h>
#include <tilewise/session.h>

#include <algorithm>
#include <numeric>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::axes_of;
using client::axis_of;
using client::computed_cuts;
using client::extent;
using client::refuse;
using client::value_or_throw;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;

Array reshaped(const Array& a, const Shape& shape) {
  return a.reshape(std::span<const std::int64_t>(shape.data(), shape.size()));
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

Array generated(const Array& like, const Shape& shape, const std::optional<Grid>& grid,
                const std::function<TapeValue(TapeBuilder&)>& build) {
  return Access::record(Access::state(like), nullptr,
                        ir::infer_generate(shape, grid, [&](TapeBuilder& t, auto) { return build(t); }));
}

std::string lengths(const char* function, std::size_t one, const char* what, std::size_t other) {
  return std::string(function) + ": " + std::to_string(one) + what + std::to_string(other) + " axes";
}

}  // namespace

// ---- axes --------------------------------------------------------------------------------------------------------------

Array moveaxis(const Array& a, int source, int destination) {
  return moveaxis(a, std::vector{source}, std::vector{destination});
}

Array moveaxis(const Array& a, const std::vector<int>& sources, const std::vector<int>& destinations) {
  if (sources.size() != destinations.size())
    refuse(Errc::kInvalidArgument,
           lengths("moveaxis", sources.size(), " axes to the places of ", destinations.size()), a);
  const std::vector<int> from = axes_of(a, Axes(sources), "moveaxis"),
                         to = axes_of(a, Axes(destinations), "moveaxis");
  std::vector<int> order(static_cast<std::size_t>(a.rank()), -1), rest;
  for (std::size_t i = 0; i < from.size(); ++i) order[static_cast<std::size_t>(to[i])] = from[i];
  for (int d = 0; d < a.rank(); ++d)
    if (std::find(from.begin(), from.end(), d) == from.end()) rest.push_back(d);
  auto next = rest.begin();
  for (int& d : order)
    if (d < 0) d = *next++;
  return a.rank() == 0 ? a : a.permute(order);
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

std::vector<Array> broadcast_arrays(const std::vector<Array>& arrays) {
  Shape shape;
  for (const Array& a : arrays) shape = value_or_throw(ir::broadcast(shape, a.shape()));
  std::vector<Array> out;
  for (const Array& a : arrays) out.push_back(a.broadcast_to(shape));
  return out;
}

std::vector<Array> meshgrid(const std::vector<Array>& vectors, std::string_view indexing) {
  if (indexing != "xy" && indexing != "ij")
    throw ArrayError(Errc::kInvalidArgument,
                     "meshgrid with indexing '" + std::string(indexing) + "', not xy or ij");
  std::vector<Array> across;
  for (std::size_t d = 0; d < vectors.size(); ++d) {
    Array v = vectors[d];
    if (v.rank() != 1) refuse(Errc::kShapeMismatch, "meshgrid wants vectors", v);
    const bool exchanged = indexing == "xy" && vectors.size() > 1 && d < 2;
    const std::size_t along = exchanged ? 1 - d : d;
    for (std::size_t after = along + 1; after < vectors.size(); ++after) v = v.expand_dims(-1);
    for (std::size_t before = 0; before < along; ++before) v = v.expand_dims(0);
    across.push_back(v);
  }
  return broadcast_arrays(across);
}

// ---- rolled, repeated ---------------------------------------------------------------------------------------------------

namespace {

// In the blocks of what is computed from `a`, whatever pieces they are made of: so an expression of an array and its rolls is of
// one cut, and in a loop stays so.
Array roll_axis(const Array& a, std::int64_t shift, int axis) {
  const std::int64_t n = extent(a, axis);
  const std::int64_t by = n == 0 ? 0 : (shift % n + n) % n;
  if (by == 0) return a;
  const std::vector<ir::Source> parts =
      Access::sources(std::vector{a.slice(axis, n - by), a.slice(axis, 0, n - by)});
  return Access::record(a, client::cut_as(value_or_throw(ir::infer_concat(parts, axis)), computed_cuts(a)));
}

// `a`, or flattened where no axis is given; and the axis.
std::pair<Array, int> along_axis(const Array& a, std::optional<int> axis, const char* function) {
  if (axis) return {a, axis_of(a, *axis, function)};
  return {a.reshape({-1}), 0};
}

// Element i along the axis for each position of [ends[i - 1], ends[i]).
Array spread(const Array& a, const Array& ends, std::int64_t total, int axis) {
  const Array positions = generated(a, {total}, std::nullopt, [](TapeBuilder& t) { return t.iota(0); });
  return take(a, searchsorted(ends, positions, "right"), axis);
}

void check_counts(const Array& a, std::int64_t counts, int axis) {
  if (counts != extent(a, axis))
    refuse(Errc::kShapeMismatch,
           "repeat: " + std::to_string(counts) + " counts along axis " + std::to_string(axis), a);
}

}  // namespace

Array roll(const Array& a, std::int64_t shift, const Axes& axes) {
  if (!axes.list()) return reshaped(roll_axis(a.reshape({-1}), shift, 0), a.shape());
  Array out = a;
  for (const int axis : *axes.list()) out = roll_axis(out, shift, axis_of(a, axis, "roll"));
  return out;
}

Array roll(const Array& a, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes) {
  if (shifts.size() != axes.size())
    refuse(Errc::kInvalidArgument, lengths("roll", shifts.size(), " shifts along ", axes.size()), a);
  Array out = a;
  for (std::size_t i = 0; i < axes.size(); ++i) out = roll_axis(out, shifts[i], axis_of(a, axes[i], "roll"));
  return out;
}

Array repeat(const Array& a, std::int64_t count, std::optional<int> axis) {
  const auto [from, along] = along_axis(a, axis, "repeat");
  if (count < 0) refuse(Errc::kInvalidArgument, "repeat " + std::to_string(count) + " times", a);
  Shape shape = from.shape();
  shape[static_cast<std::size_t>(along)] =
      value_or_throw(ir::checked_volume(Shape{extent(from, along), count}));
  if (from.rank() == limits::kMaxRank) {
    // No room for a dimension more: two neighbours that stay as they are become one meanwhile, if possible for nothing.
    int merged = along >= 2 ? 0 : from.rank() - 2;
    for (int d = 0; d + 1 < from.rank(); ++d)
      if (d != along && d + 1 != along && (extent(from, d) == 1 || extent(from, d + 1) == 1)) merged = d;
    Shape fewer = from.shape();
    fewer[static_cast<std::size_t>(merged)] *= extent(from, merged + 1);
    fewer.erase(fewer.begin() + merged + 1);
    return reshaped(repeat(reshaped(from, fewer), count, along > merged ? along - 1 : along), shape);
  }
  Shape wide = from.shape();
  wide.insert(wide.begin() + along + 1, count);
  return reshaped(from.expand_dims(along + 1).broadcast_to(wide), shape);
}

Array repeat(const Array& a, const std::vector<std::int64_t>& counts, std::optional<int> axis) {
  if (counts.size() == 1) return repeat(a, counts.front(), axis);
  const auto [from, along] = along_axis(a, axis, "repeat");
  check_counts(from, static_cast<std::int64_t>(counts.size()), along);
  std::vector<std::int64_t> ends;
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    if (count < 0) refuse(Errc::kInvalidArgument, "repeat " + std::to_string(count) + " times", a);
    if (__builtin_add_overflow(total, count, &total))
      refuse(Errc::kOutOfRange, "repeat: the result's extent passes 2^63 - 1", a);
    ends.push_back(total);
  }
  if (total == 0) return from.slice(along, 0, 0);
  const auto n = static_cast<std::int64_t>(ends.size());
  return spread(from, Session(Access::handle(a).session).from_memory(ends, {n}), total, along);
}

Array repeat(const Array& a, const Array& counts, std::optional<int> axis) {
  if (!ir::is_integer(counts.dtype()))
    refuse(Errc::kInvalidArgument, "repeat: counts of dtype " + std::string(name_of(counts.dtype())), counts);
  if (counts.rank() > 1) refuse(Errc::kShapeMismatch, "repeat wants a vector of counts, or one", counts);
  const Array wide = counts.astype(DType::kInt64);
  if (counts.size() == 1) return repeat(a, wide.item<std::int64_t>(), axis);
  const auto [from, along] = along_axis(a, axis, "repeat");
  check_counts(from, counts.size(), along);
  if (counts.size() == 0) return from;
  const std::vector<std::int64_t> known = stack({min(wide), max(wide), sum(wide)}).get<std::int64_t>();
  if (known[0] < 0) refuse(Errc::kInvalidArgument, "repeat " + std::to_string(known[0]) + " times", a);
  if (known[1] > INT64_MAX / counts.size())
    refuse(Errc::kOutOfRange, "repeat " + std::to_string(known[1]) + " times: too many", a);
  if (known[2] == 0) return from.slice(along, 0, 0);
  return spread(from, cumulative_sum(wide), known[2], along);
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
  ir::Inferred joined = value_or_throw(ir::infer_concat(sources, d));
  if (block > 0) {
    std::vector<ir::DimGrid> dims = joined.op->space.dims();
    ir::DimGrid& along = dims[static_cast<std::size_t>(d)];
    along = value_or_throw(ir::DimGrid::uniform(along.extent(), block));
    joined = client::cut_as(std::move(joined), Grid(std::move(dims)));
  }
  return Access::record(a, std::move(joined));
}

}  // namespace

Array tile(const Array& a, const std::vector<std::int64_t>& counts) {
  Array out = a;
  while (out.rank() < static_cast<int>(counts.size())) out = out.expand_dims(0);
  const std::size_t before = static_cast<std::size_t>(out.rank()) - counts.size();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const int d = static_cast<int>(before + i);
    const std::int64_t count = counts[i], n = extent(out, d);
    if (count < 0) refuse(Errc::kInvalidArgument, "tile " + std::to_string(count) + " times", a);
    if (count == 1 || n == 0) continue;
    if (count == 0) {
      out = out.slice(d, 0, 0);
      continue;
    }
    value_or_throw(ir::checked_volume(Shape{n, count}));
    // Blocks stay as they are; of something short that is not cut along d, several copies make one.
    const Grid cut = computed_cuts(out);
    const std::int64_t bytes = std::max<std::int64_t>(1, client::block_volume(cut)) *
                               static_cast<std::int64_t>(ir::size_of(out.dtype()));
    const std::int64_t shared = std::clamp<std::int64_t>(kSharedBytes / bytes, 1, count);
    out = copies(out, d, count, cut.dim(d).count() == 1 ? n * shared : 0);
  }
  return out;
}

// ---- differences, diagonals ---------------------------------------------------------------------------------------------

Array diff(const Array& a, int axis, std::int64_t n, const Array& prepend, const Array& append) {
  const int along = axis_of(a, axis, "diff");
  if (n < 0) refuse(Errc::kInvalidArgument, "diff " + std::to_string(n) + " times", a);
  std::vector<Array> parts;
  for (const Array& part : {prepend, a, append})
    if (part.valid()) parts.push_back(part);
  Array out = parts.size() == 1 ? a : concat(parts, along);
  for (; n > 0 && extent(out, along) > 0; --n) out = out.slice(along, 1) - out.slice(along, {}, -1);
  return out;
}

Array tril(const Array& a, std::int64_t k) { return part(a, TapeOp::kGt, k, "tril"); }
Array triu(const Array& a, std::int64_t k) { return part(a, TapeOp::kLt, k, "triu"); }

Array diag(const Array& a, std::int64_t k) {
  if (a.rank() == 2) return diagonal(a, k);
  if (a.rank() != 1) refuse(Errc::kShapeMismatch, "diag wants a vector or a matrix", a);
  std::int64_t n = 0;
  if (k == INT64_MIN || __builtin_add_overflow(a.size(), k < 0 ? -k : k, &n))
    refuse(Errc::kOutOfRange, "diag: diagonal " + std::to_string(k), a);
  if (k < 0) return diag(a, -k).T();
  // Row i has element i at column i + k; the last k rows have nothing.
  const Array rows = k == 0 ? a : concat({a, generated(a, {k}, std::nullopt, [&](TapeBuilder& t) {
                                            return client::filled(t, 0, a.dtype());
                                          })});
  const ir::Source source = Access::source(rows.expand_dims(1).broadcast_to({n, n}));
  return Access::record(
      rows, infer_map(std::span(&source, 1), [&](TapeBuilder& t, std::span<const TapeValue> v) {
        const TapeValue off = t.binary(TapeOp::kSub, t.iota(1), t.iota(0));
        return t.where(t.binary(TapeOp::kEq, off, ir::Scalar(k)), v[0], client::filled(t, 0, a.dtype()));
      }));
}

// ---- like others --------------------------------------------------------------------------------------------------------

Array full_like(const Array& a, const Scalar& value, const LikeOptions& options) {
  const DType dtype = options.dtype.value_or(a.dtype());
  const auto build = [&](TapeBuilder& t) { return client::filled(t, value, dtype); };
  if (!options.block.empty())
    return generated(a, a.shape(), client::grid_of(a.shape(), options.block), build);
  // Cut as what is computed from `a`; what is not loaded is not read.
  const ir::Source source = Access::source(a);
  return Access::record(a, infer_map(std::span(&source, 1), [&](TapeBuilder& t, auto) { return build(t); }));
}
Array zeros_like(const Array& a, const LikeOptions& options) { return full_like(a, 0, options); }
Array ones_like(const Array& a, const LikeOptions& options) { return full_like(a, 1, options); }
Array empty_like(const Array& a, const LikeOptions& options) { return zeros_like(a, options); }

}  // namespace tilewise
