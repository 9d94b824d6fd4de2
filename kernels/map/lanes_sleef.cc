// Transcendental lanes from SLEEF, whose functions are within 1 ulp. The `finz` variants are used: an element's bits depend
// neither on its neighbours in the vector nor on the vector's width. Targets without them (no FMA, NEON): the C library.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_sleef.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"
#include "map/scalar_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;
using ir::TapeOp;

#undef TILEWISE_SLEEF_NAME
#undef TILEWISE_SLEEF_NAMEF
// Declared here and not by sleef.h, which looks at the compiler's flags rather than at the target in use.
#if HWY_TARGET == HWY_AVX3
#define TILEWISE_SLEEF_NAME(name, digits) Sleef_finz_##name##d8_##digits##avx512f
#define TILEWISE_SLEEF_NAMEF(name, digits) Sleef_finz_##name##f16_##digits##avx512f
using Doubles = __m512d;
using Floats = __m512;
#elif HWY_TARGET == HWY_AVX2
#define TILEWISE_SLEEF_NAME(name, digits) Sleef_finz_##name##d4_##digits##avx2
#define TILEWISE_SLEEF_NAMEF(name, digits) Sleef_finz_##name##f8_##digits##avx2
using Doubles = __m256d;
using Floats = __m256;
#endif

#ifdef TILEWISE_SLEEF_NAME
#define TILEWISE_UNARY(Name, name, digits, std_function) \
  extern "C" Doubles TILEWISE_SLEEF_NAME(name, digits)(Doubles); \
  extern "C" Floats TILEWISE_SLEEF_NAMEF(name, digits)(Floats); \
  struct Name { \
    static HWY_INLINE Doubles vec(Doubles x) { return TILEWISE_SLEEF_NAME(name, digits)(x); } \
    static HWY_INLINE Floats vec(Floats x) { return TILEWISE_SLEEF_NAMEF(name, digits)(x); } \
  };
#define TILEWISE_BINARY(Name, name, digits, std_function) \
  extern "C" Doubles TILEWISE_SLEEF_NAME(name, digits)(Doubles, Doubles); \
  extern "C" Floats TILEWISE_SLEEF_NAMEF(name, digits)(Floats, Floats); \
  struct Name { \
    static HWY_INLINE Doubles vec(Doubles x, Doubles y) { return TILEWISE_SLEEF_NAME(name, digits)(x, y); } \
    static HWY_INLINE Floats vec(Floats x, Floats y) { return TILEWISE_SLEEF_NAMEF(name, digits)(x, y); } \
  };

template <class Op, class T> HWY_INLINE void call_block(T* out, const T* a) {
  const hn::ScalableTag<T> d;
  for (std::size_t j = 0; j < kLaneBlock; j += HWY_LANES(T)) {
    decltype(hn::Zero(d)) v{Op::vec(hn::LoadU(d, a + j).raw)};
    hn::StoreU(v, d, out + j);
  }
}
template <class Op, class T> HWY_INLINE void call_block(T* out, const T* a, const T* b) {
  const hn::ScalableTag<T> d;
  for (std::size_t j = 0; j < kLaneBlock; j += HWY_LANES(T)) {
    decltype(hn::Zero(d)) v{Op::vec(hn::LoadU(d, a + j).raw, hn::LoadU(d, b + j).raw)};
    hn::StoreU(v, d, out + j);
  }
}
#else
#define TILEWISE_UNARY(Name, name, digits, std_function) \
  struct Name { \
    template <class T> static T scalar(T x) { return std_function(x); } \
  };
#define TILEWISE_BINARY(Name, name, digits, std_function) \
  struct Name { \
    template <class T> static T scalar(T x, T y) { return std_function(x, y); } \
  };
template <class Op, class T> void call_block(T* out, const T* a) {
  for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::scalar(a[j]);
}
template <class Op, class T> void call_block(T* out, const T* a, const T* b) {
  for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::scalar(a[j], b[j]);
}
#endif

TILEWISE_UNARY(Expm1, expm1, u10, std::expm1)
TILEWISE_UNARY(Log1p, log1p, u10, std::log1p)
TILEWISE_UNARY(Log2, log2, u10, std::log2)
TILEWISE_UNARY(Log10, log10, u10, std::log10)
TILEWISE_UNARY(Cos, cos, u10, std::cos)
TILEWISE_UNARY(Tan, tan, u10, std::tan)
TILEWISE_UNARY(Asin, asin, u10, std::asin)
TILEWISE_UNARY(Acos, acos, u10, std::acos)
TILEWISE_UNARY(Atan, atan, u10, std::atan)
TILEWISE_UNARY(Sinh, sinh, u10, std::sinh)
TILEWISE_UNARY(Cosh, cosh, u10, std::cosh)
TILEWISE_UNARY(Asinh, asinh, u10, std::asinh)
TILEWISE_UNARY(Acosh, acosh, u10, std::acosh)
TILEWISE_UNARY(Atanh, atanh, u10, std::atanh)
TILEWISE_BINARY(Atan2, atan2, u10, std::atan2)
TILEWISE_BINARY(Hypot, hypot, u05, std::hypot)
TILEWISE_BINARY(Pow, pow, u10, std::pow)
#undef TILEWISE_UNARY
#undef TILEWISE_BINARY

// Where SLEEF's answer is not the standard's or its digits run out, the C library's is taken, by the element's value alone.
template <class Op> struct Domain { static constexpr bool kAll = true; };
#define TILEWISE_DOMAIN(Name, std_function, Above, low, Below, high) \
  template <> struct Domain<Name> { \
    static constexpr bool kAll = false; \
    TILEWISE_GOOD_WITHIN(Above, low, Below, high) \
    template <class T> static T fallback(T x) { return std_function(x); } \
  };
// Near the ends of the range intermediate results overflow or lose digits, or shortcuts are taken early.
TILEWISE_DOMAIN(Sinh, std::sinh, Gt, kDouble ? -700 : -85, Lt, kDouble ? 700 : 85)
TILEWISE_DOMAIN(Cosh, std::cosh, Gt, kDouble ? -700 : -85, Lt, kDouble ? 700 : 85)
TILEWISE_DOMAIN(Expm1, std::expm1, Gt, kDouble ? -30 : -15, Lt, kDouble ? 700 : 85)
TILEWISE_DOMAIN(Log1p, std::log1p, Gt, -1, Lt, kDouble ? 1e300 : 1e37)
TILEWISE_DOMAIN(Cos, std::cos, Gt, -1e5, Lt, 1e5)
TILEWISE_DOMAIN(Tan, std::tan, Gt, -30, Lt, 30)
TILEWISE_DOMAIN(Asinh, std::asinh, Gt, kDouble ? -1e150 : -1e18, Lt, kDouble ? 1e150 : 1e18)
TILEWISE_DOMAIN(Acosh, std::acosh, Ge, 1, Lt, kDouble ? 1e150 : 1e18)
TILEWISE_DOMAIN(Atanh, std::atanh, Gt, -1, Lt, 1)
TILEWISE_DOMAIN(Asin, std::asin, Ge, -1, Le, 1)
TILEWISE_DOMAIN(Acos, std::acos, Ge, -1, Lt, 1)
#undef TILEWISE_DOMAIN

// Exponents that are common and need no pow: 2, 3, 0.5, -1, each result within half a unit of its last place (3: and a trifle).
// `known`: where y is one of them.
template <class D, class V = hn::Vec<D>> HWY_INLINE V plain_power(D d, V x, V y, hn::Mask<D>& known) {
  using T = hn::TFromD<D>;
  const auto is = [&](double exponent) { return hn::Eq(y, hn::Set(d, static_cast<T>(exponent))); };
  const V square = hn::Mul(x, x);
  V power = square;
  known = is(2);
#if HWY_NATIVE_FMA
  if (const auto cube = is(3); !hn::AllFalse(d, cube)) {
    const V rounded = hn::Mul(square, x);
    const V lost = hn::MulAdd(hn::MulSub(x, x, square), x, hn::MulSub(square, x, rounded));
    // What is lost of smaller numbers is not exact, of larger ones not finite.
    const auto good =
        hn::And(hn::Gt(hn::Abs(x), hn::Set(d, static_cast<T>(sizeof(T) == 8 ? 0x1p-300 : 0x1p-30))),
                hn::Lt(hn::Abs(rounded), hn::Inf(d)));
    power = hn::IfThenElse(cube, hn::Add(rounded, lost), power);
    known = hn::Or(known, hn::And(cube, good));
  }
  if (const auto root = hn::And(is(0.5), hn::Gt(x, hn::Zero(d))); !hn::AllFalse(d, root)) {
    power = hn::IfThenElse(root, hn::Sqrt(x), power);
    known = hn::Or(known, root);
  }
  if (const auto reciprocal = is(-1); !hn::AllFalse(d, reciprocal)) {
    power = hn::IfThenElse(reciprocal, hn::Div(hn::Set(d, T(1)), x), power);
    known = hn::Or(known, reciprocal);
  }
#endif
  return power;
}

// Whether SLEEF's pow is good: finite numbers with a result that is a normal number.
template <class D, class V = hn::Vec<D>> HWY_INLINE hn::Mask<D> is_good_power(D d, V x, V y, V power) {
  using Limits = std::numeric_limits<hn::TFromD<D>>;
  const V top = hn::Set(d, Limits::max()), size = hn::Abs(power);
  const auto finite = hn::And(hn::Le(hn::Abs(x), top), hn::Le(hn::Abs(y), top));
  return hn::And(finite, hn::And(hn::Ge(size, hn::Set(d, Limits::min())), hn::Le(size, top)));
}

template <class T> void pow_block(T* out, const T* a, const T* b) {
  const hn::CappedTag<T, kLaneBlock> d;
  hn::Mask<decltype(d)> known;
  alignas(64) T to[kLaneBlock];  // `out` may be an operand
  bool all = true;
  for (std::size_t j = 0; j < kLaneBlock; j += hn::Lanes(d)) {
    hn::Store(plain_power(d, hn::LoadU(d, a + j), hn::LoadU(d, b + j), known), d, to + j);
    all = all && hn::AllTrue(d, known);
  }
  if (!all) {
    call_block<Pow>(to, a, b);
    all = true;
    for (std::size_t j = 0; j < kLaneBlock; j += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, a + j), y = hn::LoadU(d, b + j), power = hn::Load(d, to + j);
      const auto plain = plain_power(d, x, y, known);
      hn::Store(hn::IfThenElse(known, plain, power), d, to + j);
      all = all && hn::AllTrue(d, hn::Or(known, is_good_power(d, x, y, power)));
    }
  }
  if (!all) {
    const hn::CappedTag<T, 1> one;
    hn::Mask<decltype(one)> plain;
    for (int j = 0; j < kLaneBlock; ++j) {
      const auto x = hn::Set(one, a[j]), y = hn::Set(one, b[j]), power = hn::Set(one, to[j]);
      plain_power(one, x, y, plain);
      if (!hn::AllTrue(one, hn::Or(plain, is_good_power(one, x, y, power)))) to[j] = std::pow(a[j], b[j]);
    }
  }
  std::memcpy(out, to, sizeof to);
}

template <class Op, class T> void binary_block_of(T* out, const T* a, const T* b) {
  if constexpr (std::is_same_v<Op, Pow>)
    pow_block(out, a, b);
  else
    call_block<Op>(out, a, b);
}

template <class Op, class T> void unary_block_of(T* out, const T* a) {
  if constexpr (Domain<Op>::kAll) {
    call_block<Op>(out, a);
  } else {
    alignas(64) T in[kLaneBlock];
    std::memcpy(in, a, sizeof(in));  // out may be a
    call_block<Op>(out, in);
    if (!all_good<Domain<Op>>(in)) fall_back<Domain<Op>>(out, in);
  }
}

template <class Op, class T> void unary_calls(const LaneArgs& args) {
  T* out = static_cast<T*>(args.out);
  const T* a = static_cast<const T*>(args.in[0]);
  std::int64_t i = 0;
  for (; i + kLaneBlock <= args.n; i += kLaneBlock) {
    ask_ahead(a + i);
    unary_block_of<Op, T>(out + i, a + i);
  }
  if (const auto rest = static_cast<std::size_t>(args.n - i); rest > 0) {
    T ta[kLaneBlock], to[kLaneBlock];
    for (T& x : ta) x = T(0.5);
    std::memcpy(ta, a + i, rest * sizeof(T));
    unary_block_of<Op, T>(to, ta);
    std::memcpy(out + i, to, rest * sizeof(T));
  }
}

template <class Op, class T> void binary_calls(const LaneArgs& args) {
  T* out = static_cast<T*>(args.out);
  const T* a = static_cast<const T*>(args.in[0]);
  const T* b = static_cast<const T*>(args.in[1]);
  const std::int64_t sa = args.splat[0] ? 0 : kLaneBlock, sb = args.splat[1] ? 0 : kLaneBlock;
  std::int64_t i = 0;
  for (; i + kLaneBlock <= args.n; i += kLaneBlock, a += sa, b += sb) {
    ask_ahead(a);
    ask_ahead(b);
    binary_block_of<Op, T>(out + i, a, b);
  }
  if (const auto rest = static_cast<std::size_t>(args.n - i); rest > 0) {
    T ta[kLaneBlock], tb[kLaneBlock], to[kLaneBlock];
    for (int j = 0; j < kLaneBlock; ++j) ta[j] = tb[j] = T(0.5);
    std::memcpy(ta, a, rest * sizeof(T));
    std::memcpy(tb, b, rest * sizeof(T));
    binary_block_of<Op, T>(to, ta, tb);
    std::memcpy(out + i, to, rest * sizeof(T));
  }
}

template <class Op> LaneFn unary_of_float(DType t) {
  if (t == DType::kFloat32) return unary_calls<Op, float>;
  return t == DType::kFloat64 ? unary_calls<Op, double> : nullptr;
}
template <class Op> LaneFn binary_of_float(DType t) {
  if (t == DType::kFloat32) return binary_calls<Op, float>;
  return t == DType::kFloat64 ? binary_calls<Op, double> : nullptr;
}

LaneFn sleef_of(TapeOp op, DType t) {
  switch (op) {
    case TapeOp::kExpm1: return unary_of_float<Expm1>(t);
    case TapeOp::kLog1p: return unary_of_float<Log1p>(t);
    case TapeOp::kLog2: return unary_of_float<Log2>(t);
    case TapeOp::kLog10: return unary_of_float<Log10>(t);
    case TapeOp::kCos: return unary_of_float<Cos>(t);
    case TapeOp::kTan: return unary_of_float<Tan>(t);
    case TapeOp::kAsin: return unary_of_float<Asin>(t);
    case TapeOp::kAcos: return unary_of_float<Acos>(t);
    case TapeOp::kAtan: return unary_of_float<Atan>(t);
    case TapeOp::kSinh: return unary_of_float<Sinh>(t);
    case TapeOp::kCosh: return unary_of_float<Cosh>(t);
    case TapeOp::kAsinh: return unary_of_float<Asinh>(t);
    case TapeOp::kAcosh: return unary_of_float<Acosh>(t);
    case TapeOp::kAtanh: return unary_of_float<Atanh>(t);
    case TapeOp::kAtan2: return binary_of_float<Atan2>(t);
    case TapeOp::kHypot: return binary_of_float<Hypot>(t);
    case TapeOp::kPow: return binary_of_float<Pow>(t);
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(sleef_of);
LaneFn find_sleef(ir::TapeOp op, ir::DType t) { return HWY_DYNAMIC_DISPATCH(sleef_of)(op, t); }
}  // namespace tilewise::kernels::map
#endif
