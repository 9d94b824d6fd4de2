// The map family's truth: one element at a time, every value a long double, a double or an int64, the C library for
// functions. Shares nothing with the vector code but random_spec.h.
#include "map/reference.h"

#include <tilewise/kernels/random_spec.h>

#include <cmath>
#include <limits>

#include "map/map.h"

namespace tilewise::kernels::map {
namespace {

using ir::DType;
using ir::TapeOp;

std::int64_t wrap(__int128 value, DType t) {
  return t == DType::kInt32 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(value))
                            : static_cast<std::int64_t>(static_cast<std::uint64_t>(value));
}

// Rounds a result that was computed with more digits.
double rounded(long double value, DType t) {
  return t == DType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : static_cast<double>(value);
}

RefValue cast(RefValue a, DType from, DType to) {
  RefValue r;
  if (ir::is_floating(to)) {
    r.f = ir::is_floating(from) ? rounded(a.f, to)
                                : (to == DType::kFloat32 ? static_cast<double>(static_cast<float>(a.i))
                                                         : static_cast<double>(a.i));
  } else if (to == DType::kBool) {
    r.i = ir::is_floating(from) ? a.f != 0 : a.i != 0;
  } else if (ir::is_floating(from)) {
    const double low = to == DType::kInt32 ? -0x1p31 : -0x1p63;
    const double whole = std::trunc(a.f);
    const bool fits = whole >= low && whole < -low;  // false for NaN
    r.i = fits ? static_cast<std::int64_t>(whole) : static_cast<std::int64_t>(low);
  } else {
    r.i = wrap(a.i, to);
  }
  return r;
}

double floor_div(double a, double b) {
  if (b == 0) return a / b;
  const double r = std::fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double f = std::floor(q);
  return q - f > 0.5 ? f + 1 : f;
}

// The same steps, each rounded to float32.
double floor_div32(float a, float b) {
  if (b == 0) return a / b;
  const float r = std::fmod(a, b);
  float q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0f, a / b);
  const float f = std::floor(q);
  return q - f > 0.5f ? f + 1 : f;
}

double float_rem(double a, double b, DType t) {
  double r = std::fmod(a, b);
  if (b == 0 || std::isnan(r)) return r;
  if (r == 0) return std::copysign(0.0, b);
  return (b < 0) != (r < 0) ? rounded(r + b, t) : r;
}

double extremum(double a, double b, bool smallest) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == 0 && b == 0) return std::signbit(a) == smallest ? a : b;
  return smallest ? std::fmin(a, b) : std::fmax(a, b);
}

double float_unary(TapeOp op, double a, DType t) {
  const long double x = a;
  switch (op) {
    case TapeOp::kNeg: return -a;
    case TapeOp::kAbs: return std::fabs(a);
    case TapeOp::kSign: return std::isnan(a) ? a : (a > 0 ? 1.0 : (a < 0 ? -1.0 : 0.0));
    case TapeOp::kSqrt: return t == DType::kFloat32 ? std::sqrt(static_cast<float>(a)) : std::sqrt(a);
    case TapeOp::kExp: return rounded(std::exp(x), t);
    case TapeOp::kExpm1: return rounded(std::expm1(x), t);
    case TapeOp::kLog: return rounded(std::log(x), t);
    case TapeOp::kLog1p: return rounded(std::log1p(x), t);
    case TapeOp::kSin: return rounded(std::sin(x), t);
    case TapeOp::kCos: return rounded(std::cos(x), t);
    case TapeOp::kTan: return rounded(std::tan(x), t);
    case TapeOp::kTanh: return rounded(std::tanh(x), t);
    case TapeOp::kFloor: return std::floor(a);
    case TapeOp::kCeil: return std::ceil(a);
    case TapeOp::kTrunc: return std::trunc(a);
    case TapeOp::kRound: return std::nearbyint(a);
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

double float_binary(TapeOp op, double a, double b, DType t) {
  // One operation on float32 values in double, rounded again, is the float32 operation (53 >= 2 * 24 + 2).
  switch (op) {
    case TapeOp::kAdd: return rounded(a + b, t);
    case TapeOp::kSub: return rounded(a - b, t);
    case TapeOp::kMul: return rounded(a * b, t);
    case TapeOp::kDiv: return rounded(a / b, t);
    case TapeOp::kFloorDiv:
      return t == DType::kFloat32 ? floor_div32(static_cast<float>(a), static_cast<float>(b))
                                  : floor_div(a, b);
    case TapeOp::kRem: return float_rem(a, b, t);
    case TapeOp::kPow:
      // glibc's x87 powl errs for infinities and exponents from 2^63.
      if (!std::isfinite(a) || !(std::fabs(b) < 0x1p62)) return rounded(std::pow(a, b), t);
      return rounded(std::pow(static_cast<long double>(a), static_cast<long double>(b)), t);
    case TapeOp::kAtan2:
      return rounded(std::atan2(static_cast<long double>(a), static_cast<long double>(b)), t);
    case TapeOp::kMinimum: return extremum(a, b, true);
    case TapeOp::kMaximum: return extremum(a, b, false);
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

std::int64_t int_power(std::int64_t base, std::int64_t exponent, DType t) {
  if (exponent < 0) {
    if (base == 1) return 1;
    return base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  std::uint64_t result = 1, square = static_cast<std::uint64_t>(base);  // modulo 2^64, then narrowed
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= square;
    square *= square;
  }
  return wrap(static_cast<__int128>(result), t);
}

std::int64_t int_op(TapeOp op, std::int64_t a, std::int64_t b, DType t) {
  const __int128 x = a, y = b;
  const int bits = static_cast<int>(ir::size_of(t)) * 8;
  const bool inside = b >= 0 && b < bits;
  switch (op) {
    case TapeOp::kNeg: return wrap(-x, t);
    case TapeOp::kAbs: return wrap(x < 0 ? -x : x, t);
    case TapeOp::kSign: return (a > 0) - (a < 0);
    case TapeOp::kFloor:
    case TapeOp::kCeil:
    case TapeOp::kTrunc:
    case TapeOp::kRound: return a;
    case TapeOp::kNot: return a == 0;
    case TapeOp::kInvert: return t == DType::kBool ? a == 0 : ~a;
    case TapeOp::kAdd: return wrap(x + y, t);
    case TapeOp::kSub: return wrap(x - y, t);
    case TapeOp::kMul: return wrap(x * y, t);
    case TapeOp::kFloorDiv: return b == 0 ? 0 : wrap(x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0), t);
    case TapeOp::kRem: return b == 0 ? 0 : wrap((x % y + y) % y, t);
    case TapeOp::kPow: return int_power(a, b, t);
    case TapeOp::kMinimum: return a < b ? a : b;
    case TapeOp::kMaximum: return a > b ? a : b;
    case TapeOp::kAnd: return a & b;
    case TapeOp::kOr: return a | b;
    case TapeOp::kXor: return a ^ b;
    case TapeOp::kShl:
      return inside ? wrap(static_cast<__int128>(static_cast<unsigned __int128>(x) << b), t) : 0;
    case TapeOp::kShr: return a >> (inside ? b : bits - 1);
    default: return 0;
  }
}

template <class T> bool compare(TapeOp op, T a, T b) {
  switch (op) {
    case TapeOp::kEq: return a == b;
    case TapeOp::kNe: return a != b;
    case TapeOp::kLt: return a < b;
    case TapeOp::kLe: return a <= b;
    case TapeOp::kGt: return a > b;
    default: return a >= b;
  }
}

double normal(std::uint64_t key, std::uint64_t counter, DType t) {
  namespace spec = random_spec;
  const spec::Words x = spec::block(key, counter);
  if (t == DType::kFloat32) {
    const float u = static_cast<float>((1u << 24) - (x.w[0] >> 8)) * 0x1p-24f;
    const float v = static_cast<float>(x.w[1] >> 8) * 0x1p-24f;
    const auto log_u = static_cast<float>(std::log(static_cast<double>(u)));
    const auto cos_v = static_cast<float>(std::cos(static_cast<double>(spec::kTwoPiF * v)));
    return std::sqrt(-2.0f * log_u) * cos_v;
  }
  const std::uint64_t first = x.w[0] | (std::uint64_t{x.w[1]} << 32),
                      second = x.w[2] | (std::uint64_t{x.w[3]} << 32);
  const double u = static_cast<double>((std::uint64_t{1} << 53) - (first >> 11)) * 0x1p-53;
  const double v = static_cast<double>(second >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * static_cast<double>(std::log(static_cast<long double>(u)))) *
         static_cast<double>(std::cos(static_cast<long double>(spec::kTwoPi * v)));
}

RefValue source(const ir::TapeInstr& in, const RefSite& at) {
  RefValue r;
  const auto key = static_cast<std::uint64_t>(in.imm_i);
  const auto counter = static_cast<std::uint64_t>(ir::ravel(at.global, *at.space_shape));
  switch (in.op) {
    case TapeOp::kLoad: return ref_load((*at.inputs)[static_cast<std::size_t>(in.imm_i)], at.local);
    case TapeOp::kConst:
      if (ir::is_floating(in.dtype))
        r.f = rounded(in.imm_f, in.dtype);
      else
        r.i = in.imm_i;
      return r;
    case TapeOp::kIota: r.i = at.global[static_cast<std::size_t>(in.imm_i)]; return r;
    case TapeOp::kUniform:
      r.f = in.dtype == DType::kFloat32 ? static_cast<double>(random_spec::uniform32(key, counter))
                                        : random_spec::uniform64(key, counter);
      return r;
    case TapeOp::kNormal: r.f = normal(key, counter, in.dtype); return r;
    default: r.i = static_cast<std::int64_t>(random_spec::draw64(key, counter)); return r;
  }
}

RefValue compute(const ir::TapeInstr& in, const RefValue* values, const ir::Tape& tape, const RefSite& at) {
  const RefValue a = values[in.a], b = values[in.b];
  const DType arg = tape.code[in.a].dtype;
  RefValue r;
  switch (in.op) {
    case TapeOp::kCast: return cast(a, arg, in.dtype);
    case TapeOp::kIsNan: r.i = ir::is_floating(arg) && std::isnan(a.f); return r;
    case TapeOp::kIsInf: r.i = ir::is_floating(arg) && std::isinf(a.f); return r;
    case TapeOp::kIsFinite: r.i = !ir::is_floating(arg) || std::isfinite(a.f); return r;
    case TapeOp::kEq:
    case TapeOp::kNe:
    case TapeOp::kLt:
    case TapeOp::kLe:
    case TapeOp::kGt:
    case TapeOp::kGe:
      r.i = ir::is_floating(arg) ? compare(in.op, a.f, b.f) : compare(in.op, a.i, b.i);
      return r;
    case TapeOp::kWhere: return a.i != 0 ? b : values[in.c];
    case TapeOp::kRandomBelow: {
      const auto draw = static_cast<unsigned __int128>(static_cast<std::uint64_t>(source(in, at).i));
      r.i = a.i <= 0 ? 0 : static_cast<std::int64_t>((draw * static_cast<std::uint64_t>(a.i)) >> 64);
      return r;
    }
    default: break;
  }
  if (ir::arity_of(in.op) == 0) return source(in, at);
  if (!ir::is_floating(in.dtype))
    r.i = int_op(in.op, a.i, b.i, in.dtype);
  else if (ir::arity_of(in.op) == 1)
    r.f = float_unary(in.op, a.f, in.dtype);
  else
    r.f = float_binary(in.op, a.f, b.f, in.dtype);
  return r;
}

}  // namespace

RefValue ref_load(const TensorView& view, const ir::Index& at) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * view.strides[d];
  RefValue r;
  switch (view.dtype) {
    case DType::kBool: r.i = static_cast<const std::uint8_t*>(view.data)[offset] != 0; break;
    case DType::kInt32: r.i = static_cast<const std::int32_t*>(view.data)[offset]; break;
    case DType::kInt64: r.i = static_cast<const std::int64_t*>(view.data)[offset]; break;
    case DType::kFloat32: r.f = static_cast<const float*>(view.data)[offset]; break;
    case DType::kFloat64: r.f = static_cast<const double*>(view.data)[offset]; break;
  }
  return r;
}

void ref_store(const TensorView& view, std::int64_t position, RefValue value) {
  switch (view.dtype) {
    case DType::kBool: static_cast<std::uint8_t*>(view.data)[position] = value.i != 0; break;
    case DType::kInt32:
      static_cast<std::int32_t*>(view.data)[position] = static_cast<std::int32_t>(value.i);
      break;
    case DType::kInt64: static_cast<std::int64_t*>(view.data)[position] = value.i; break;
    case DType::kFloat32: static_cast<float*>(view.data)[position] = static_cast<float>(value.f); break;
    case DType::kFloat64: static_cast<double*>(view.data)[position] = value.f; break;
  }
}

RefValue ref_tape(const ir::Tape& tape, const RefSite& at) {
  std::vector<RefValue> values(tape.code.size());
  for (std::size_t i = 0; i < tape.code.size(); ++i)
    values[i] = compute(tape.code[i], values.data(), tape, at);
  return values.back();
}

RefValue ref_cast(RefValue value, DType from, DType to) { return cast(value, from, to); }

Status reference(const KernelCall& call, const PluginTable*) {
  const ir::Tape& tape = call.op->get<ir::MapAttrs>().tape;
  const ir::Shape shape = call.box.shape();
  const std::int64_t total = ir::volume(shape);
  for (std::int64_t i = 0; i < total; ++i) {
    const RefSite at = ref_site(call, shape, i);
    ref_store(call.outputs[0], i, cast(ref_tape(tape, at), tape.result(), call.outputs[0].dtype));
  }
  return {};
}

RefSite ref_site(const KernelCall& call, const ir::Shape& shape, std::int64_t position) {
  RefSite at;
  at.local = ir::unravel(position, shape);
  at.global = at.local;
  for (std::size_t d = 0; d < at.global.size(); ++d) at.global[d] += call.box.lo[d];
  at.inputs = &call.inputs;
  at.space_shape = &call.space_shape;
  return at;
}

}  // namespace tilewise::kernels::map
