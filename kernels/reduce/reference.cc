// Reductions, one output at a time, over the elements in C order: integers exactly, float sums and products in long
// double, rounded once. Partials are combined as the contract says: in the order of the steps, each rounded.
#include <cmath>
#include <limits>
#include <optional>

#include <tilewise/ir/verify.h>

#include "map/reference.h"
#include "reduce/reduce.h"
#include "reduce/reference_moments.h"

namespace tilewise::kernels::reduce {
namespace {

using ir::DType;
using ir::ReduceKind;
using map::RefValue;

struct Accumulator {
  ReduceKind kind;
  DType dtype;            // of the values
  bool stepwise = false;  // round each operation to dtype: where the contract fixes the order
  long double f = 0, g = 0;
  std::uint64_t i = 0;
  RefValue best;
  std::int64_t position = -1;
  bool empty = true;

  void add(RefValue value, std::int64_t at) {
    const bool is_float = ir::is_floating(dtype);
    if (ir::is_complex(dtype)) return add_complex(value);
    switch (kind) {
      case ReduceKind::kSum:
        f = empty ? value.f : stepwise ? once(static_cast<double>(f) + value.f) : f + value.f;
        i += static_cast<std::uint64_t>(value.i);
        break;
      case ReduceKind::kProd:
        f = empty ? value.f : stepwise ? once(static_cast<double>(f) * value.f) : f * value.f;
        i = empty ? static_cast<std::uint64_t>(value.i) : i * static_cast<std::uint64_t>(value.i);
        break;
      case ReduceKind::kAny: i |= static_cast<std::uint64_t>(value.i); break;
      case ReduceKind::kAll:
        i = empty ? static_cast<std::uint64_t>(value.i) : (i & static_cast<std::uint64_t>(value.i));
        break;
      default:
        if (empty || beats(value, at, is_float)) {
          best = value;
          position = at;
        }
    }
    empty = false;
  }

  void add_complex(RefValue v) {
    const long double x = f, y = g, a = v.f, b = v.g;
    const bool product = kind == ReduceKind::kProd;
    f = empty ? a : product ? x * a - y * b : x + a;
    g = empty ? b : product ? x * b + y * a : y + b;
    if (stepwise) {  // as complex arithmetic rounds
      const auto part = [this](double p, double q) { return once(once(p) + once(q)); };
      const auto dx = static_cast<double>(x), dy = static_cast<double>(y);
      if (!empty && product) {
        f = part(dx * v.f, -(dy * v.g));
        g = part(dx * v.g, dy * v.f);
      } else if (!empty) {  // in double at once: a long double's sum would be rounded twice
        f = once(dx + v.f);
        g = once(dy + v.g);
      }
    }
    empty = false;
  }

  double once(double value) const {
    return ir::real_dtype(dtype) == DType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
  }

  bool beats(RefValue value, std::int64_t at, bool is_float) const {
    const bool smallest = kind == ReduceKind::kMin || kind == ReduceKind::kArgMin;
    if (is_float) {
      const bool nan = std::isnan(value.f), was = std::isnan(best.f);
      if (nan || was) return nan && (!was || at < position);
      if (value.f == best.f) return at < position;
      return smallest ? value.f < best.f : value.f > best.f;
    }
    if (value.i == best.i) return at < position;
    if (dtype == DType::kUInt64) {
      const auto x = static_cast<std::uint64_t>(value.i), y = static_cast<std::uint64_t>(best.i);
      return smallest ? x < y : x > y;
    }
    return smallest ? value.i < best.i : value.i > best.i;
  }

  RefValue result() const {
    RefValue r;
    if (kind == ReduceKind::kSum || kind == ReduceKind::kProd) {
      r.f =
          static_cast<double>(dtype == DType::kFloat32 ? static_cast<long double>(static_cast<float>(f)) : f);
      r.i = static_cast<std::int64_t>(i);
      r.g = static_cast<double>(g);
      if (dtype == DType::kInt32) r.i = static_cast<std::int32_t>(static_cast<std::uint32_t>(i));
      return r;
    }
    if (kind == ReduceKind::kAny || kind == ReduceKind::kAll)
      r.i = static_cast<std::int64_t>(i);
    else
      r = best;
    return r;
  }
};

std::optional<RefValue> neutral(ReduceKind kind, DType t) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool wide = t == DType::kInt64;
  RefValue r;
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kAny: return r;
    case ReduceKind::kProd:
      r.f = 1;
      r.i = 1;
      return r;
    case ReduceKind::kAll: r.i = 1; return r;
    case ReduceKind::kMin:
      r.f = infinity;
      r.i = t == DType::kUInt64 ? -1
            : t == DType::kBool ? 1
                                : (wide ? std::numeric_limits<std::int64_t>::max()
                                        : std::numeric_limits<std::int32_t>::max());
      return r;
    case ReduceKind::kMax:
      r.f = -infinity;
      r.i = t == DType::kUInt64 || t == DType::kBool ? 0
                                                     : (wide ? std::numeric_limits<std::int64_t>::min()
                                                             : std::numeric_limits<std::int32_t>::min());
      return r;
    default: return std::nullopt;
  }
}

// Position of a global index among the reduced axes of the space.
std::int64_t position_of(const ir::Index& global, const ir::Shape& space, std::uint32_t axes) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < global.size(); ++d) {
    if (axes >> d & 1) at = at * space[d] + global[d];
  }
  return at;
}

Status reduce_blocks(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::ReduceAttrs>();
  const TensorView& out = call.outputs[0];
  if (attrs.kind == ReduceKind::kMoments) return reference_moments(call);
  const ir::Shape shape = call.box.shape();
  ir::Shape kept = shape;
  for (std::size_t d = 0; d < kept.size(); ++d) {
    if (attrs.axes >> d & 1) kept[d] = 1;
  }
  std::vector<Accumulator> sums(static_cast<std::size_t>(ir::volume(kept)),
                                Accumulator{attrs.kind, out.dtype});
  const std::int64_t total = ir::volume(shape);
  for (std::int64_t i = 0; i < total; ++i) {
    const map::RefSite at = map::ref_site(call, shape, i);
    ir::Index to = at.local;
    for (std::size_t d = 0; d < to.size(); ++d) {
      if (attrs.axes >> d & 1) to[d] = 0;
    }
    const RefValue value = map::ref_cast(map::ref_tape(attrs.tape, at), attrs.tape.result(), out.dtype);
    sums[static_cast<std::size_t>(ir::ravel(to, kept))].add(
        value, position_of(at.global, call.space_shape, attrs.axes));
  }
  for (std::size_t o = 0; o < sums.size(); ++o) {
    const auto empty = neutral(attrs.kind, out.dtype);
    if (sums[o].empty && !empty) return error(Errc::kInvalidArgument, "a position in nothing");
    map::ref_store(out, static_cast<std::int64_t>(o), sums[o].empty ? *empty : sums[o].result());
    if (ir::is_arg(attrs.kind)) static_cast<std::int64_t*>(call.outputs[1].data)[o] = sums[o].position;
  }
  return {};
}

Status combine_blocks(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::CombineAttrs>();
  const TensorView& out = call.outputs[0];
  if (attrs.kind == ReduceKind::kMoments) return reference_join(call);
  const std::int64_t total = ir::volume(out.shape);
  const bool reads = !call.inputs.empty() && call.inputs[0].data != nullptr;
  ir::Shape rest;
  if (reads) rest = call.inputs[0].shape;
  const std::int64_t parts = reads ? rest[static_cast<std::size_t>(attrs.axis)] : 0;
  if (reads) rest[static_cast<std::size_t>(attrs.axis)] = 1;
  TensorView old = out;
  old.shape = {total};
  old.strides = {1};
  for (std::int64_t o = 0; o < total; ++o) {
    Accumulator sum{attrs.kind, out.dtype, true};
    if (call.step > 0) {
      const std::int64_t where =
          ir::is_arg(attrs.kind) ? static_cast<std::int64_t*>(call.outputs[1].data)[o] : 0;
      sum.add(map::ref_load(old, {o}), where);
    }
    for (std::int64_t part = 0; part < parts; ++part) {
      ir::Index at = ir::unravel(o, rest);
      at[static_cast<std::size_t>(attrs.axis)] = part;
      const std::int64_t where =
          ir::is_arg(attrs.kind) ? map::ref_load(call.inputs[1], at).i : part + call.step;
      sum.add(map::ref_load(call.inputs[0], at), where);
    }
    const auto empty = neutral(attrs.kind, out.dtype);
    if (sum.empty && !empty) return error(Errc::kInvalidArgument, "a position in nothing");
    map::ref_store(out, o, sum.empty ? *empty : sum.result());
    if (ir::is_arg(attrs.kind)) static_cast<std::int64_t*>(call.outputs[1].data)[o] = sum.position;
  }
  return {};
}

}  // namespace

Status reference(const KernelCall& call, const PluginTable*) {
  return call.op->kind == ir::OpKind::kCombine ? combine_blocks(call) : reduce_blocks(call);
}

}  // namespace tilewise::kernels::reduce
