// pad(): one join of views an axis.
#include <tilewise/functions.h>
#include <tilewise/ir/verify.h>
#include <tilewise/session.h>

#include <algorithm>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::extent;
using client::refuse;
using client::value_or_throw;

enum class PadMode { kConstant, kEdge, kReflect, kWrap };

PadMode mode_named(std::string_view name, const Array& a) {
  if (name == "constant") return PadMode::kConstant;
  if (name == "edge") return PadMode::kEdge;
  if (name == "reflect") return PadMode::kReflect;
  if (name == "wrap") return PadMode::kWrap;
  refuse(Errc::kInvalidArgument, "pad: mode '" + std::string(name) + "', not constant, edge, reflect or wrap",
         a);
}

struct Padding {
  int axis;
  std::int64_t before, after;
  PadMode mode;
};

std::int64_t period_of(const Padding& p, std::int64_t n) {
  return p.mode == PadMode::kReflect ? std::max<std::int64_t>(1, n - 1) : n;
}

// What stands at positions [lo, hi) of `a` repeated without end: forwards, and reflected every other time backwards.
void add_repeats(const Array& a, const Padding& p, std::int64_t lo, std::int64_t hi,
                 std::vector<Array>& parts) {
  const std::int64_t n = extent(a, p.axis), period = period_of(p, n);
  while (lo < hi) {
    const std::int64_t turn = lo >= 0 ? lo / period : -((period - 1 - lo) / period);
    const std::int64_t from = lo - turn * period, to = std::min(period, hi - turn * period);
    if (p.mode == PadMode::kReflect && turn % 2 != 0)
      parts.push_back(a.slice(p.axis, n - 1 - from, n - 1 - to, -1));  // never down to element 0
    else
      parts.push_back(a.slice(p.axis, from, to));
    lo += to - from;
  }
}

// Many turns: each position looked up.
Array by_positions(const Array& a, const Padding& p) {
  const std::int64_t n = extent(a, p.axis), turn = p.mode == PadMode::kReflect ? 2 * period_of(p, n) : n;
  std::int64_t total = n;
  if (__builtin_add_overflow(total, p.before, &total) || __builtin_add_overflow(total, p.after, &total))
    refuse(Errc::kOutOfRange, "pad: the result's extent passes 2^63 - 1", a);
  return take(
      a,
      Access::record(Access::state(a), nullptr,
                     ir::infer_generate(
                         {total}, std::nullopt,
                         [&](ir::TapeBuilder& t, auto) {
                           using ir::TapeOp;
                           const ir::TapeValue i =
                               t.binary(TapeOp::kRem, t.binary(TapeOp::kSub, t.iota(0), ir::Scalar(p.before)),
                                        ir::Scalar(turn));
                           if (p.mode == PadMode::kWrap) return i;
                           return t.binary(TapeOp::kMinimum, i, t.binary(TapeOp::kSub, ir::Scalar(turn), i));
                         })),
      p.axis);
}

// Cuts with so many elements more at either end. These go to the block beside them, unless it is the largest already: a loop that
// pads both ends and cuts off one would collect everything in one block. Nothing where the ends are longer than a block: then
// the cuts are those of a join.
std::optional<ir::DimGrid> with_ends(const ir::DimGrid& own, const Padding& p) {
  const std::int64_t n = own.extent(), count = own.count();
  if (count == 0 || count + 2 > limits::kMaxExplicitCuts || std::max(p.before, p.after) > own.max_size())
    return std::nullopt;
  const auto takes_more = [&](std::int64_t block) {
    bool any = count == 1;
    for (std::int64_t i = 0; i < count && !any; ++i) any = i != block && own.size(i) >= own.size(block);
    return any;
  };
  std::vector<std::int64_t> starts = {0};
  if (p.before > 0 && !takes_more(0)) starts.push_back(p.before);
  for (std::int64_t i = 1; i < count; ++i) starts.push_back(p.before + own.begin(i));
  if (p.after > 0 && !takes_more(count - 1)) starts.push_back(p.before + n);
  return value_or_throw(ir::DimGrid::cuts(p.before + n + p.after, std::move(starts)));
}

Array padded(const Array& a, const Padding& p, const Scalar& value) {
  if (p.before == 0 && p.after == 0) return a;
  const std::int64_t n = extent(a, p.axis);
  if (n == 0 && p.mode != PadMode::kConstant)
    refuse(Errc::kInvalidArgument, "pad: axis " + std::to_string(p.axis) + " has nothing to repeat", a);
  const auto repeated = [&](const Array& from, std::int64_t times) {
    Shape shape = a.shape();
    shape[static_cast<std::size_t>(p.axis)] = times;
    return from.broadcast_to(shape);
  };
  std::vector<Array> parts;
  const bool one_value = p.mode == PadMode::kReflect && n == 1;
  if (p.mode == PadMode::kConstant || p.mode == PadMode::kEdge || one_value) {
    const auto end = [&](std::int64_t at) {
      if (p.mode != PadMode::kConstant) return a.slice(p.axis, at, at + 1);
      return Session(Access::handle(a).session).full({}, value, {.dtype = a.dtype()});
    };
    if (p.before > 0) parts.push_back(repeated(end(0), p.before));
    parts.push_back(a);
    if (p.after > 0) parts.push_back(repeated(end(n - 1), p.after));
  } else {
    const std::int64_t period = period_of(p, n);
    if (p.before / period + p.after / period + 5 > static_cast<std::int64_t>(ir::kMaxStepOperands))
      return by_positions(a, p);
    add_repeats(a, p, -p.before, 0, parts);
    parts.push_back(a);
    add_repeats(a, p, n, n + p.after, parts);
  }
  ir::Inferred joined = value_or_throw(ir::infer_concat(Access::sources(parts), p.axis));
  const Grid own = client::computed_cuts(a);
  std::vector<ir::DimGrid> dims = own.dims();
  const auto d = static_cast<std::size_t>(p.axis);
  dims[d] = with_ends(own.dim(p.axis), p).value_or(joined.op->space.dim(p.axis));
  return Access::record(a, client::cut_as(std::move(joined), Grid(std::move(dims))));
}

}  // namespace

Array pad(const Array& a, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths,
          std::string_view mode, const Scalar& value) {
  const PadMode how = mode_named(mode, a);
  if (widths.size() != 1 && widths.size() != static_cast<std::size_t>(a.rank()))
    refuse(Errc::kInvalidArgument, "pad: widths of " + std::to_string(widths.size()) + " axes", a);
  Array out = a;
  for (int d = 0; d < a.rank(); ++d) {
    const auto& [before, after] = widths[widths.size() == 1 ? 0 : static_cast<std::size_t>(d)];
    if (before < 0 || after < 0)
      refuse(Errc::kInvalidArgument, "pad by " + std::to_string(std::min(before, after)) + " elements", a);
    out = padded(out, {d, before, after, how}, value);
  }
  return out;
}

Array pad(const Array& a, std::int64_t width, std::string_view mode, const Scalar& value) {
  return pad(a, std::vector{std::pair{width, width}}, mode, value);
}

}  // namespace tilewise
