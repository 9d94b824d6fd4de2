// Random arrays: elements are functions of a key and their position in the whole array.
#include <tilewise/functions.h>
#include <tilewise/session.h>

#include <tilewise/ir/element_types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::grid_of;
using client::refuse;
using client::SessionState;
using client::value_or_throw;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;

void check_drawn(DType dtype, const char* what) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    throw ArrayError(Errc::kInvalidArgument,
                     std::string(what) + " of " + std::string(name_of(dtype)) + ": only float32 and float64");
  }
}

Array generate(SessionState& state, const Shape& shape, const RandomOptions& options,
               const std::function<TapeValue(TapeBuilder&)>& build) {
  return Access::record(
      state, nullptr,
      infer_generate(shape, grid_of(shape, options.block), [&](TapeBuilder& t, auto) { return build(t); }));
}

// A seed of its own is a generator of its own; else streams of the session's seed, one an array.
std::uint64_t key_of(SessionState& state, const RandomOptions& options) {
  return options.seed ? ir::random_key(*options.seed, 0)
                      : ir::random_key(state.options().seed, state.next_stream());
}

double rounded_to(double value, DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return ir::Float16(value);
    case DType::kBFloat16: return ir::BFloat16(value);
    case DType::kFloat32: return static_cast<float>(value);
    default: return value;
  }
}

// The largest number of the dtype below `value`, one of the dtype's own.
double below(double value, DType dtype) {
  if (dtype == DType::kFloat64) return std::nextafter(value, -std::numeric_limits<double>::infinity());
  if (dtype == DType::kFloat32)
    return std::nextafter(static_cast<float>(value), -std::numeric_limits<float>::infinity());
  const bool brain = dtype == DType::kBFloat16;
  const std::uint16_t bits = brain ? ir::bfloat16_bits(value) : ir::float16_bits(value);
  const auto next = static_cast<std::uint16_t>(value == 0 ? 0x8001 : value > 0 ? bits - 1 : bits + 1);
  return brain ? ir::bfloat16_value(next) : ir::float16_value(next);
}

}  // namespace

Array Random::uniform(const Shape& shape, const RandomOptions& options, double low, double high) const {
  const DType dtype = options.dtype;
  if (!is_floating(dtype)) {
    throw ArrayError(Errc::kInvalidArgument,
                     "uniform of " + std::string(name_of(dtype)) + ": only real floats");
  }
  const double first = rounded_to(low, dtype), end = rounded_to(high, dtype);
  if (!(low <= high) || !std::isfinite(rounded_to(high - low, ir::compute_dtype(dtype))) ||
      !std::isfinite(first) || !std::isfinite(end)) {
    throw ArrayError(Errc::kInvalidArgument, "uniform in [" + std::to_string(low) + ", " +
                                                 std::to_string(high) + ") as " +
                                                 std::string(name_of(dtype)));
  }
  const std::uint64_t key = key_of(*state_, options);
  return generate(*state_, shape, options, [&](TapeBuilder& t) {
    TapeValue v = t.uniform(ir::compute_dtype(dtype), key);
    if (low != 0 || high != 1) {
      v = t.binary(TapeOp::kMul, v, ir::Scalar(high - low));
      v = t.binary(TapeOp::kAdd, v, ir::Scalar(low));
    } else if (!is_half(dtype)) {
      return v;  // below 1 already
    }
    // Rounding may reach `high`. Where nothing lies between the bounds all numbers are `low`.
    const ir::Scalar last(std::max(first, below(end, dtype)));
    return t.binary(TapeOp::kMinimum, t.cast(v, dtype), last);
  });
}

Array Random::normal(const Shape& shape, const RandomOptions& options, double mean, double stddev) const {
  check_drawn(options.dtype, "normal");
  if (!(stddev >= 0))
    throw ArrayError(Errc::kInvalidArgument,
                     "normal with stddev " + std::to_string(stddev) + ", not 0 or above");
  const std::uint64_t key = key_of(*state_, options);
  return generate(*state_, shape, options, [&](TapeBuilder& t) {
    TapeValue v = t.normal(options.dtype, key);
    if (stddev != 1) v = t.binary(TapeOp::kMul, v, ir::Scalar(stddev));
    return mean == 0 ? v : t.binary(TapeOp::kAdd, v, ir::Scalar(mean));
  });
}

Array Random::integers(std::int64_t low, std::int64_t high, const Shape& shape,
                       const RandomOptions& options) const {
  std::int64_t span = 0;
  if (low >= high || __builtin_sub_overflow(high, low, &span)) {
    throw ArrayError(Errc::kInvalidArgument,
                     "random integers in [" + std::to_string(low) + ", " + std::to_string(high) +
                         "): " + (low >= high ? "there are none" : "2^63 of them or more"));
  }
  const std::uint64_t key = key_of(*state_, options);
  return generate(*state_, shape, options, [&](TapeBuilder& t) {
    const TapeValue v = t.random_below(t.constant(ir::Scalar(span), DType::kInt64), key);
    return low == 0 ? v : t.binary(TapeOp::kAdd, v, ir::Scalar(low));
  });
}

namespace {

void check_positive(const char* what, const char* name, double value) {
  if (!(value > 0))
    throw ArrayError(Errc::kInvalidArgument,
                     std::string(what) + " with " + name + " " + std::to_string(value) + ", not above 0");
}

}  // namespace

Array Random::exponential(const Shape& shape, const RandomOptions& options, double scale) const {
  check_drawn(options.dtype, "exponential");
  check_positive("exponential", "scale", scale);
  const std::uint64_t key = key_of(*state_, options);
  return generate(*state_, shape, options, [&](TapeBuilder& t) {
    const TapeValue u = t.uniform(options.dtype, key);  // below 1, so the logarithm is finite
    return t.binary(TapeOp::kMul, t.unary(TapeOp::kLog1p, t.unary(TapeOp::kNeg, u)), ir::Scalar(-scale));
  });
}

Array Random::gamma(double alpha, const Shape& shape, const RandomOptions& options, double scale) const {
  check_drawn(options.dtype, "gamma");
  check_positive("gamma", "alpha", alpha);
  check_positive("gamma", "scale", scale);
  const std::optional<Grid> given = grid_of(shape, options.block);
  const Grid grid = given ? *given : value_or_throw(Grid::by_default(shape, size_of(options.dtype)));
  ir::CallAttrs attrs;
  attrs.kernel = ir::builtin::Gamma::kName;
  attrs.version = "1";
  attrs.params = ir::builtin::bytes_of(ir::builtin::Gamma{static_cast<std::int64_t>(key_of(*state_, options)),
                                                          std::bit_cast<std::int64_t>(alpha),
                                                          std::bit_cast<std::int64_t>(scale)});
  attrs.flops_per_point = 300 * static_cast<double>(client::block_volume(grid));
  return Access::record(*state_, nullptr, infer_call({}, std::move(attrs), grid, {{0, options.dtype, grid}}));
}

Array Random::permutation(std::int64_t n, const RandomOptions& options) const {
  if (n < 0) throw ArrayError(Errc::kInvalidArgument, "permutation of " + std::to_string(n) + " numbers");
  const std::uint64_t key = key_of(*state_, options);
  return argsort(generate(*state_, {n}, options, [&](TapeBuilder& t) { return t.random_int(key); }));
}

Array Random::permutation(const Array& x, const RandomOptions& options, int axis) const {
  const int along = client::axis_of(x, axis, "permutation");
  RandomOptions line = options;
  line.block = {};
  return take(x, permutation(client::extent(x, along), line), along);
}

Array Random::choice(const Array& x, const Shape& shape, const RandomOptions& options, bool replace) const {
  if (x.rank() != 1) refuse(Errc::kShapeMismatch, "choice wants a vector", x);
  const std::int64_t count = value_or_throw(ir::checked_volume(shape));
  const bool enough = replace ? x.size() > 0 || count == 0 : count <= x.size();
  if (!enough) refuse(Errc::kInvalidArgument, "choice of " + std::to_string(count) + " elements", x);
  RandomOptions line = options;
  line.block = {};
  const Array indices = count == 0 ? permutation(0, line)
                        : replace  ? integers(0, x.size(), {count}, line)
                                   : permutation(x.size(), line).slice(0, 0, count);
  return take(x, indices).reshape(std::span<const std::int64_t>(shape.data(), shape.size()));
}

}  // namespace tilewise
