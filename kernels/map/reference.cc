// The map family's truth: one element at a time, every value a long double, a double or an int64, the C library for
// functions. Shares nothing with the vector code but random_spec.h.
#include "map/reference.h"

#include <tilewise/ir/element_types.h>
#include <tilewise/kernels/random_spec.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "map/map.h"

namespace tilewise::kernels::map {
namespace {

using ir::DType;
using ir::TapeOp;

std::int64_t wrap(__int128 value, DType t) {
  return ir::wrapped(t, static_cast<std::int64_t>(static_cast<std::uint64_t>(value)));
}

// An integer of dtype t as a number.
__int128 number(std::int64_t bits, DType t) {
  return t == DType::kUInt64 ? static_cast<__int128>(static_cast<std::uint64_t>(bits)) : bits;
}

// To the nearest value with `digits` bits, ties to even.
double rounded_to(long double value, int digits, int lowest_exponent, double largest) {
  if (value == 0 || !std::isfinite(value)) return static_cast<double>(value);
  const int exponent = std::max(std::ilogb(value), lowest_exponent) - (digits - 1);
  const long double whole = std::nearbyint(std::scalbn(value, -exponent));
  const auto result = static_cast<double>(std::scalbn(whole, exponent));
  if (std::fabs(result) > largest) return std::copysign(std::numeric_limits<double>::infinity(), result);
  return result == 0 ? std::copysign(0.0, static_cast<double>(value)) : result;
}

// Rounds a result that was computed with more digits. Complex dtypes: one of the parts.
double rounded(long double value, DType t) {
  switch (ir::real_dtype(t)) {
    case DType::kFloat16: return rounded_to(value, 11, -14, 65504);
    case DType::kBFloat16: return rounded_to(value, 8, -126, 0x1.FEp127);
    case DType::kFloat32: return static_cast<double>(static_cast<float>(value));
    default: return static_cast<double>(value);
  }
}

// A float as an integer: truncated; what does not fit the dtype that kernels compute in gives its lowest value (uint64: see
// README.md), and then wraps.
std::int64_t whole_of(double f, DType to) {
  const DType wide = ir::compute_dtype(to);
  const double low = wide == DType::kInt32 ? -0x1p31 : -0x1p63, whole = std::trunc(f);
  if (wide == DType::kUInt64 && whole >= 0x1p63 && whole < 0x1p64)
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(whole));
  const bool fits = whole >= low && whole < -low;  // false for NaN
  return ir::wrapped(to, fits ? static_cast<std::int64_t>(whole) : static_cast<std::int64_t>(low));
}

RefValue cast(RefValue a, DType from, DType to) {
  if (from == to) return a;
  RefValue r;
  const bool from_float = ir::is_floating(from) || ir::is_complex(from);
  if (ir::is_floating(to) || ir::is_complex(to)) {
    const auto one = [&](long double v) { return rounded(v, to); };
    r.f = one(from_float ? static_cast<long double>(a.f) : static_cast<long double>(number(a.i, from)));
    r.g = ir::is_complex(to) && from_float ? one(a.g) : 0;
  } else if (to == DType::kBool) {
    r.i = from_float ? a.f != 0 || a.g != 0 : a.i != 0;
  } else if (from_float) {
    r.i = whole_of(a.f, to);
  } else {
    r.i = ir::wrapped(to, a.i);
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

// The same steps, each rounded to float32 (16-bit floats: rounded again at the end).
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
  return (b < 0) != (r < 0) ? rounded(rounded(r + b, ir::compute_dtype(t)), t) : r;
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
    case TapeOp::kSqrt:
      return t == DType::kFloat64 ? std::sqrt(a) : rounded(std::sqrt(static_cast<float>(a)), t);
    case TapeOp::kExp: return rounded(std::exp(x), t);
    case TapeOp::kExpm1: return rounded(std::expm1(x), t);
    case TapeOp::kLog: return rounded(std::log(x), t);
    case TapeOp::kLog1p: return rounded(std::log1p(x), t);
    case TapeOp::kSin: return rounded(std::sin(x), t);
    case TapeOp::kCos: return rounded(std::cos(x), t);
    case TapeOp::kTan: return rounded(std::tan(x), t);
    case TapeOp::kTanh: return rounded(std::tanh(x), t);
    case TapeOp::kAcos: return rounded(std::acos(x), t);
    case TapeOp::kAcosh: return rounded(std::acosh(x), t);
    case TapeOp::kAsin: return rounded(std::asin(x), t);
    case TapeOp::kAsinh: return rounded(std::asinh(x), t);
    case TapeOp::kAtan: return rounded(std::atan(x), t);
    case TapeOp::kAtanh: return rounded(std::atanh(x), t);
    case TapeOp::kCosh: return rounded(std::cosh(x), t);
    case TapeOp::kSinh: return rounded(std::sinh(x), t);
    case TapeOp::kLog2: return rounded(std::log2(x), t);
    case TapeOp::kLog10: return rounded(std::log10(x), t);
    case TapeOp::kFloor: return std::floor(a);
    case TapeOp::kCeil: return std::ceil(a);
    case TapeOp::kTrunc: return std::trunc(a);
    case TapeOp::kRound: return std::nearbyint(a);
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

// The neighbour of a towards b among the numbers of dtype t.
double neighbour(double a, double b, DType t) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return b;
  if (t == DType::kFloat64) return std::nextafter(a, b);
  if (t == DType::kFloat32) return std::nextafter(static_cast<float>(a), static_cast<float>(b));
  // Half the distance to the next number of a's own size, and a little: rounding does the rest.
  const bool brain = t == DType::kBFloat16;
  const int digits = brain ? 8 : 11, lowest = brain ? -126 : -14;
  const double largest = brain ? 0x1.FEp127 : 65504;
  if (std::isinf(a)) return std::copysign(largest, a);
  if (a == 0) return std::copysign(std::scalbn(1.0, lowest - (digits - 1)), b);
  int exponent = std::max(std::ilogb(a), lowest);
  const bool inwards = (b < a) == (a > 0);
  if (inwards && exponent > lowest && std::fabs(a) == std::scalbn(1.0, exponent)) --exponent;
  const double step = std::scalbn(1.0, exponent - (digits - 1));
  const double to = b > a ? a + step : a - step;
  if (std::fabs(to) > largest) return std::copysign(std::numeric_limits<double>::infinity(), a);
  return to == 0 ? std::copysign(0.0, a) : to;
}

double log_add_exp(double a, double b, DType t) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b && std::isinf(a)) return a;
  const long double high = std::max(a, b), low = std::min(a, b);
  return rounded(high + std::log1p(std::exp(low - high)), t);
}

double float_binary(TapeOp op, double a, double b, DType t) {
  // One operation on narrower values in double, rounded again, is the narrower operation (53 >= 2 * 24 + 2).
  switch (op) {
    case TapeOp::kAdd: return rounded(a + b, t);
    case TapeOp::kSub: return rounded(a - b, t);
    case TapeOp::kMul: return rounded(a * b, t);
    case TapeOp::kDiv: return rounded(a / b, t);
    case TapeOp::kFloorDiv:
      return t == DType::kFloat64 ? floor_div(a, b)
                                  : rounded(floor_div32(static_cast<float>(a), static_cast<float>(b)), t);
    case TapeOp::kRem: return float_rem(a, b, t);
    case TapeOp::kPow:
      // glibc's x87 powl errs for infinities and exponents from 2^63.
      if (!std::isfinite(a) || !(std::fabs(b) < 0x1p62)) return rounded(std::pow(a, b), t);
      return rounded(std::pow(static_cast<long double>(a), static_cast<long double>(b)), t);
    case TapeOp::kAtan2:
      return rounded(std::atan2(static_cast<long double>(a), static_cast<long double>(b)), t);
    case TapeOp::kMinimum: return extremum(a, b, true);
    case TapeOp::kMaximum: return extremum(a, b, false);
    case TapeOp::kCopysign: return std::copysign(a, b);
    case TapeOp::kNextafter: return neighbour(a, b, t);
    case TapeOp::kHypot:
      return rounded(std::hypot(static_cast<long double>(a), static_cast<long double>(b)), t);
    case TapeOp::kLogaddexp: return log_add_exp(a, b, t);
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

std::int64_t int_power(__int128 base, __int128 exponent, DType t) {
  if (exponent < 0) {
    if (base == 1) return 1;
    return base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  auto result = std::uint64_t{1}, square = static_cast<std::uint64_t>(base);  // modulo 2^64, then narrowed
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= square;
    square *= square;
  }
  return wrap(static_cast<__int128>(result), t);
}

std::int64_t int_op(TapeOp op, std::int64_t a, std::int64_t b, DType t) {
  const __int128 x = number(a, t), y = number(b, t);
  const int bits = static_cast<int>(ir::size_of(t)) * 8;
  const bool inside = y >= 0 && y < bits;
  switch (op) {
    case TapeOp::kNeg: return wrap(-x, t);
    case TapeOp::kAbs: return wrap(x < 0 ? -x : x, t);
    case TapeOp::kSign: return (x > 0) - (x < 0);
    case TapeOp::kNot: return a == 0;
    case TapeOp::kInvert: return t == DType::kBool ? a == 0 : wrap(~x, t);
    case TapeOp::kAdd: return wrap(x + y, t);
    case TapeOp::kSub: return wrap(x - y, t);
    case TapeOp::kMul:
      return wrap(
          static_cast<__int128>(static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y)), t);
    case TapeOp::kFloorDiv: return y == 0 ? 0 : wrap(x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0), t);
    case TapeOp::kRem: return y == 0 ? 0 : wrap((x % y + y) % y, t);
    case TapeOp::kPow: return int_power(x, y, t);
    case TapeOp::kMinimum: return x < y ? a : b;
    case TapeOp::kMaximum: return x > y ? a : b;
    case TapeOp::kAnd: return a & b;
    case TapeOp::kOr: return a | b;
    case TapeOp::kXor: return a ^ b;
    case TapeOp::kShl:
      return inside ? wrap(static_cast<__int128>(static_cast<unsigned __int128>(x) << static_cast<int>(y)), t)
                    : 0;
    case TapeOp::kShr:
      if (!inside) return x < 0 ? -1 : 0;
      return wrap(x >> static_cast<int>(y), t);
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

using Wide = std::complex<long double>;

Wide complex_function(TapeOp op, Wide z) {
  switch (op) {
    case TapeOp::kSqrt: return std::sqrt(z);
    case TapeOp::kExp: return std::exp(z);
    case TapeOp::kExpm1:  // 2 e^(z/2) sinh(z/2), where the difference would cancel
      if (z.imag() == 0) return {std::expm1(z.real()), z.imag()};
      if (std::abs(z) < 1) return 2.0L * std::exp(z / 2.0L) * std::sinh(z / 2.0L);
      return std::exp(z) - 1.0L;
    case TapeOp::kLog: return std::log(z);
    case TapeOp::kLog1p:  // 2 artanh(z / (2 + z)), where the sum would lose digits
      if (z.imag() == 0 && z.real() > -1) return {std::log1p(z.real()), z.imag()};
      return std::abs(z) < 0.5L ? 2.0L * std::atanh(z / (2.0L + z)) : std::log(1.0L + z);
    case TapeOp::kLog2: return std::log(z) / std::log(2.0L);
    case TapeOp::kLog10: return std::log(z) / std::log(10.0L);
    case TapeOp::kSin: return std::sin(z);
    case TapeOp::kCos: return std::cos(z);
    case TapeOp::kTan: return std::tan(z);
    case TapeOp::kSinh: return std::sinh(z);
    case TapeOp::kCosh: return std::cosh(z);
    case TapeOp::kTanh: return std::tanh(z);
    case TapeOp::kAsin: return std::asin(z);
    case TapeOp::kAcos: return std::acos(z);
    case TapeOp::kAtan: return std::atan(z);
    case TapeOp::kAsinh: return std::asinh(z);
    case TapeOp::kAcosh: return std::acosh(z);
    case TapeOp::kAtanh: return std::atanh(z);
    case TapeOp::kSign: return z == Wide(0) ? Wide(0) : z / std::hypot(z.real(), z.imag());
    default: return {std::numeric_limits<long double>::quiet_NaN(), 0};
  }
}

// Smith's division.
RefValue complex_quotient(RefValue a, RefValue b, DType t) {
  const auto r = [t](double v) { return rounded(v, t); };
  if (b.f == 0 && b.g == 0) return {r(a.f / std::fabs(b.f)), r(a.g / std::fabs(b.f)), 0};
  if (std::fabs(b.f) >= std::fabs(b.g)) {
    const double ratio = r(b.g / b.f), scale = r(b.f + r(b.g * ratio));
    return {r(r(a.f + r(a.g * ratio)) / scale), r(r(a.g - r(a.f * ratio)) / scale), 0};
  }
  const double ratio = r(b.f / b.g), scale = r(b.g + r(b.f * ratio));
  return {r(r(r(a.f * ratio) + a.g) / scale), r(r(r(a.g * ratio) - a.f) / scale), 0};
}

RefValue complex_op(TapeOp op, RefValue a, RefValue b, DType t) {
  const auto r = [t](double v) { return rounded(v, t); };
  const RefValue product{r(r(a.f * b.f) - r(a.g * b.g)), r(r(a.f * b.g) + r(a.g * b.f)), 0};
  switch (op) {
    case TapeOp::kAdd: return {r(a.f + b.f), r(a.g + b.g), 0};
    case TapeOp::kSub: return {r(a.f - b.f), r(a.g - b.g), 0};
    case TapeOp::kMul: return product;
    case TapeOp::kDiv: return complex_quotient(a, b, t);
    case TapeOp::kNeg: return {-a.f, -a.g, 0};
    case TapeOp::kConj: return {a.f, -a.g, 0};
    case TapeOp::kRound: return {std::nearbyint(a.f), std::nearbyint(a.g), 0};
    case TapeOp::kComplex: return {a.f, b.f, 0};
    case TapeOp::kPow: {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      if (b.g == 0 && b.f == 0) return {1, 0, 0};
      if (b.g == 0 && b.f == 1) return a;
      if (b.g == 0 && b.f == 2) {
        const double re = a.f * a.f - a.g * a.g, im = a.f * a.g + a.g * a.f;
        return {r(re), r(im), 0};
      }
      if (a.f == 0 && a.g == 0) return b.f > 0 ? RefValue{} : RefValue{nan, nan, 0};
      const Wide z = std::pow(Wide(a.f, a.g), Wide(b.f, b.g));
      return {rounded(z.real(), t), rounded(z.imag(), t), 0};
    }
    default: {
      const Wide z = complex_function(op, Wide(a.f, a.g));
      return {rounded(z.real(), t), rounded(z.imag(), t), 0};
    }
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
      if (ir::is_floating(in.dtype) || ir::is_complex(in.dtype))
        r.f = rounded(rounded(in.imm_f, ir::compute_dtype(in.dtype)), in.dtype);
      else
        r.i = in.imm_i;
      if (ir::is_complex(in.dtype)) r.g = rounded(std::bit_cast<double>(in.imm_i), in.dtype);
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
  const int arity = ir::arity_of(in.op);  // of others `a` may be an operand
  const RefValue a = arity > 0 ? values[in.a] : RefValue{}, b = arity > 1 ? values[in.b] : RefValue{};
  const DType arg = arity > 0 ? tape.code[in.a].dtype : in.dtype;
  RefValue r;
  switch (in.op) {
    case TapeOp::kCast: return cast(a, arg, in.dtype);
    case TapeOp::kIsNan: r.i = std::isnan(a.f) || std::isnan(a.g); return r;
    case TapeOp::kIsInf: r.i = std::isinf(a.f) || std::isinf(a.g); return r;
    case TapeOp::kIsFinite: r.i = std::isfinite(a.f) && std::isfinite(a.g); return r;
    case TapeOp::kSignbit: r.i = std::signbit(a.f); return r;
    case TapeOp::kReal: r.f = a.f; return r;
    case TapeOp::kImag: r.f = a.g; return r;
    case TapeOp::kAbs:
      if (!ir::is_complex(arg)) break;
      r.f = rounded(std::hypot(static_cast<long double>(a.f), static_cast<long double>(a.g)), in.dtype);
      return r;
    case TapeOp::kEq:
    case TapeOp::kNe:
    case TapeOp::kLt:
    case TapeOp::kLe:
    case TapeOp::kGt:
    case TapeOp::kGe:
      if (ir::is_complex(arg)) {
        const bool equal = a.f == b.f && a.g == b.g;
        r.i = in.op == TapeOp::kEq ? equal : !equal;
      } else if (ir::is_floating(arg)) {
        r.i = compare(in.op, a.f, b.f);
      } else {
        r.i = compare(in.op, number(a.i, arg), number(b.i, arg));
      }
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
  if (ir::is_complex(in.dtype)) return complex_op(in.op, a, b, in.dtype);
  if (!ir::is_floating(in.dtype))
    r.i = int_op(in.op, a.i, b.i, in.dtype);
  else if (ir::arity_of(in.op) == 1)
    r.f = float_unary(in.op, a.f, in.dtype);
  else
    r.f = float_binary(in.op, a.f, b.f, in.dtype);
  return r;
}

template <class T> T get(const void* at, int index = 0) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(at) + index * static_cast<int>(sizeof(T)), sizeof(T));
  return value;
}
template <class T> void put(void* at, T value, int index = 0) {
  std::memcpy(static_cast<std::byte*>(at) + index * static_cast<int>(sizeof(T)), &value, sizeof(T));
}

RefValue load_as(DType t, const void* at) {
  RefValue r;
  switch (t) {
    case DType::kBool: r.i = get<std::uint8_t>(at) != 0; break;
    case DType::kInt8: r.i = get<std::int8_t>(at); break;
    case DType::kInt16: r.i = get<std::int16_t>(at); break;
    case DType::kInt32: r.i = get<std::int32_t>(at); break;
    case DType::kUInt8: r.i = get<std::uint8_t>(at); break;
    case DType::kUInt16: r.i = get<std::uint16_t>(at); break;
    case DType::kUInt32: r.i = get<std::uint32_t>(at); break;
    case DType::kInt64:
    case DType::kUInt64: r.i = get<std::int64_t>(at); break;
    case DType::kFloat16: r.f = ir::float16_value(get<std::uint16_t>(at)); break;
    case DType::kBFloat16: r.f = ir::bfloat16_value(get<std::uint16_t>(at)); break;
    case DType::kFloat32: r.f = get<float>(at); break;
    case DType::kFloat64: r.f = get<double>(at); break;
    case DType::kComplex64:
      r.f = get<float>(at);
      r.g = get<float>(at, 1);
      break;
    case DType::kComplex128:
      r.f = get<double>(at);
      r.g = get<double>(at, 1);
      break;
  }
  return r;
}

void store_as(DType t, void* at, RefValue v) {
  switch (t) {
    case DType::kBool: return put(at, static_cast<std::uint8_t>(v.i != 0));
    case DType::kInt8:
    case DType::kUInt8: return put(at, static_cast<std::uint8_t>(v.i));
    case DType::kInt16:
    case DType::kUInt16: return put(at, static_cast<std::uint16_t>(v.i));
    case DType::kInt32:
    case DType::kUInt32: return put(at, static_cast<std::uint32_t>(v.i));
    case DType::kInt64:
    case DType::kUInt64: return put(at, v.i);
    case DType::kFloat16: return put(at, ir::float16_bits(v.f));
    case DType::kBFloat16: return put(at, ir::bfloat16_bits(v.f));
    case DType::kFloat32: return put(at, static_cast<float>(v.f));
    case DType::kFloat64: return put(at, v.f);
    case DType::kComplex64: put(at, static_cast<float>(v.f)); return put(at, static_cast<float>(v.g), 1);
    case DType::kComplex128: put(at, v.f); return put(at, v.g, 1);
  }
}

}  // namespace

RefValue ref_load(const TensorView& view, const ir::Index& at) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * view.strides[d];
  const void* at_element =
      static_cast<const std::byte*>(view.data) + offset * static_cast<std::int64_t>(ir::size_of(view.dtype));
  return load_as(view.dtype, at_element);
}

void ref_store(const TensorView& view, std::int64_t position, RefValue value) {
  void* at =
      static_cast<std::byte*>(view.data) + position * static_cast<std::int64_t>(ir::size_of(view.dtype));
  store_as(view.dtype, at, value);
}

void ref_tape(const ir::Tape& tape, const RefSite& at, std::span<RefValue> outputs) {
  std::vector<RefValue> values(tape.code.size());
  for (std::size_t i = 0; i < tape.code.size(); ++i)
    values[i] = compute(tape.code[i], values.data(), tape, at);
  for (std::size_t o = 0; o < outputs.size(); ++o) outputs[o] = values[tape.output(o)];
}

RefValue ref_tape(const ir::Tape& tape, const RefSite& at) {
  RefValue output;
  ref_tape(tape, at, {&output, 1});
  return output;
}

RefValue ref_cast(RefValue value, DType from, DType to) { return cast(value, from, to); }

Status reference(const KernelCall& call, const PluginTable*) {
  const ir::Tape& tape = call.op->get<ir::MapAttrs>().tape;
  const ir::Shape shape = call.box.shape();
  const std::int64_t total = ir::volume(shape);
  std::vector<RefValue> outputs(tape.output_count());
  for (std::int64_t i = 0; i < total; ++i) {
    ref_tape(tape, ref_site(call, shape, i), outputs);
    for (std::size_t o = 0; o < outputs.size(); ++o) ref_store(call.outputs[o], i, outputs[o]);
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
