// Transcendental lanes (more of them in lanes_sleef.cc). Our own functions and Highway's inside the domain where they were measured
// to be good (README, "Accuracy"), the C library for the elements outside it; which of the two is a function of the element's value alone.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_math.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <cmath>

#include "map/exponential-inl.h"
#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"
#include "map/scalar_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;
using ir::TapeOp;

// vec: Highway's version, unless a struct below has a better one; fallback: the C library's.
#define TILEWISE_MATH(Name, hwy_function, std_function, Above, low, Below, high) \
  struct Name { \
    template <class D, class V> static HWY_INLINE V vec(D d, V x) { return hn::hwy_function(d, x); } \
    template <class T> static constexpr bool kVector = true; \
    TILEWISE_GOOD_WITHIN(Above, low, Below, high) \
    template <class T> static T fallback(T x) { return std_function(x); } \
  };
// The bounds keep clear of overflow, subnormal results and the zeros near which Highway's reductions lose digits.
TILEWISE_MATH(HighwayExp, Exp, std::exp, Ge, kDouble ? -700 : -87, Le, kDouble ? 700 : 88)
TILEWISE_MATH(LogOfNormal, Log, std::log, Ge, std::numeric_limits<T>::min(), Lt,
              std::numeric_limits<T>::infinity())
TILEWISE_MATH(SinOfNonzero, Sin, std::sin, Gt, -30, Lt, 30)
#undef TILEWISE_MATH
constexpr bool kFma = HWY_NATIVE_FMA != 0;  // without it what wants it is the C library's
struct Exp : HighwayExp {
  template <class T> static constexpr bool kVector = sizeof(T) == 4 || kFma;
  template <class D, class V> static HWY_INLINE V vec(D d, V x) {
    if constexpr (sizeof(hn::TFromD<D>) == 4)
      return HighwayExp::vec(d, x);
    else
      return FastExp::vec(d, x);
  }
};
struct Log : LogOfNormal {  // Highway's, without what it does for subnormal numbers
  template <class D, class V> static HWY_INLINE V vec(D d, V x) { return hn::impl::Log<D, V, false>(d, x); }
};
struct Tanh : FastTanh {
  template <class T> static constexpr bool kVector = kFma;
  template <class D, class V> static HWY_INLINE hn::Mask<D> good(D d, V) {
    return hn::FirstN(d, hn::MaxLanes(d));
  }
  template <class T> static T fallback(T x) { return std::tanh(x); }
};
struct Sin : SinOfNonzero {  // Highway's makes +0 of -0
  template <class D, class V> static HWY_INLINE V vec(D d, V x) {
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, SinOfNonzero::vec(d, x));
  }
};

template <class Op, class T> HWY_NOINLINE void mixed_block(T* out, const T* a) {
  const hn::CappedTag<T, kLaneBlock> d;
  T in[kLaneBlock];
  std::memcpy(in, a, sizeof(in));  // out may be a
  for (std::size_t j = 0; j < kLaneBlock; j += hn::MaxLanes(d))
    hn::StoreU(Op::vec(d, hn::LoadU(d, in + j)), d, out + j);
  fall_back<Op>(out, in);
}

template <class Op, class T> HWY_INLINE void math_block(T* out, const T* a) {
  if constexpr (!Op::template kVector<T>) {
    for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::fallback(a[j]);
  } else {
    const hn::CappedTag<T, kLaneBlock> d;
    constexpr std::size_t kLanes = hn::MaxLanes(d), kVectors = kLaneBlock / kLanes;
    decltype(hn::Zero(d)) y[kVectors];  // stays in registers until it is known that all are good
    auto good = hn::FirstN(d, kLanes);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::LoadU(d, a + v * kLanes);
      good = hn::And(good, Op::good(d, x));
      y[v] = Op::vec(d, x);
    }
    if (!hn::AllTrue(d, good)) return mixed_block<Op>(out, a);
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(y[v], d, out + v * kLanes);
  }
}

template <class Op, class T> void math_lane(const LaneArgs& args) {
  T* out = static_cast<T*>(args.out);
  const T* a = static_cast<const T*>(args.in[0]);
  std::int64_t i = 0;
  for (; i + kLaneBlock <= args.n; i += kLaneBlock) {
    ask_ahead(a + i);
    math_block<Op, T>(out + i, a + i);
  }
  if (const auto rest = static_cast<std::size_t>(args.n - i); rest > 0) {
    T ta[kLaneBlock], to[kLaneBlock];
    for (T& x : ta) x = T(0.5);  // inside every domain
    std::memcpy(ta, a + i, rest * sizeof(T));
    math_block<Op, T>(to, ta);
    std::memcpy(out + i, to, rest * sizeof(T));
  }
}

struct IntegerPower {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return integer_power<T>(a, b); }
};
// log(exp(a) + exp(b)) without overflow; equal infinities stay. Where the two terms cancel, or the second is most of the sum,
// with more digits.
struct Logaddexp {
  template <class W, class T> static T sum(T high, T low) {
    const W top = high, bottom = low, gap = bottom - top;
    const W virtual_top =
        bottom - gap;  // what rounding the gap lost (T. J. Dekker, 1971) counts: exp magnifies it
    const W lost = virtual_top - top;
    const W ratio = std::exp(gap);
    return static_cast<T>(top + std::log1p(lost < 1 && lost > -1 ? ratio + ratio * lost : ratio));
  }
  template <class O, class T> static HWY_INLINE O apply(T a, T b) {
    if ((a != a) | (b != b)) return a + b;
    const T high = a > b ? a : b, low = a > b ? b : a;
    if (Abs::apply<T>(high) == std::numeric_limits<T>::infinity()) return high;
    if constexpr (sizeof(T) == 4) {
      return sum<double>(high, low);
    } else {
      return high < 1 ? sum<long double>(high, low) : sum<double>(high, low);
    }
  }
};

template <class Op> LaneFn math_float(DType t) {
  if (t == DType::kFloat32) return math_lane<Op, float>;
  return t == DType::kFloat64 ? math_lane<Op, double> : nullptr;
}

LaneFn math_of(TapeOp op, DType t) {
  switch (op) {
    case TapeOp::kExp: return math_float<Exp>(t);
    case TapeOp::kLog: return math_float<Log>(t);
    case TapeOp::kSin: return math_float<Sin>(t);
    case TapeOp::kTanh: return math_float<Tanh>(t);
    case TapeOp::kLogaddexp:
      if (t == DType::kFloat32) return binary_lane<Logaddexp, float, float>;
      return t == DType::kFloat64 ? binary_lane<Logaddexp, double, double> : nullptr;
    case TapeOp::kPow:
      switch (t) {
        case DType::kInt32: return binary_lane<IntegerPower, std::int32_t, std::int32_t>;
        case DType::kInt64: return binary_lane<IntegerPower, std::int64_t, std::int64_t>;
        case DType::kUInt64: return binary_lane<IntegerPower, std::uint64_t, std::uint64_t>;
        default: return nullptr;
      }
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(math_of);
LaneFn find_math(ir::TapeOp op, ir::DType t) { return HWY_DYNAMIC_DISPATCH(math_of)(op, t); }
}  // namespace tilewise::kernels::map
#endif
