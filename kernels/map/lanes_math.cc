// Transcendental lanes. Highway's functions inside the domain where they were measured to be good (README, "Accuracy"),
// the C library for the elements outside it; which of the two is a function of the element's value alone.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_math.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <cmath>

#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"
#include "map/scalar_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;
using ir::TapeOp;

// vec: Highway's version; fallback: the C library's; good: where vec is used.
#define TILEWISE_MATH(Name, hwy_function, std_function, domain) \
  struct Name { \
    template <class D, class V> static HWY_INLINE V vec(D d, V x) { return hn::hwy_function(d, x); } \
    template <class T> static HWY_INLINE bool good(T x) { \
      constexpr bool kDouble = sizeof(T) == 8; \
      (void)kDouble; \
      return domain; \
    } \
    template <class T> static T fallback(T x) { return std_function(x); } \
  };
// The bounds keep clear of overflow, subnormal results and the zeros near which Highway's reductions lose digits.
TILEWISE_MATH(Exp, Exp, std::exp, x >= T(kDouble ? -700 : -87) && x <= T(kDouble ? 700 : 88))
TILEWISE_MATH(Expm1, Expm1, std::expm1, x >= T(kDouble ? -700 : -87) && x <= T(kDouble ? 700 : 88))
TILEWISE_MATH(Log, Log, std::log, x > T(0) && x < std::numeric_limits<T>::infinity())
TILEWISE_MATH(Log1p, Log1p, std::log1p, x > T(-1) && x < std::numeric_limits<T>::max() / 2)
TILEWISE_MATH(Sin, Sin, std::sin, x > T(-30) && x < T(30))
TILEWISE_MATH(Cos, Cos, std::cos,
              x > T(-30) && x < T(30) && x != T(0))  // the standard wants cos(0) == 1 exactly
TILEWISE_MATH(Tanh, Tanh, std::tanh, x > T(-300) && x < T(300))
#undef TILEWISE_MATH

template <class Op, class T> HWY_INLINE void math_block(T* out, const T* a) {
  const hn::CappedTag<T, kLaneBlock> d;
  constexpr int kStep = static_cast<int>(HWY_LANES(T) < kLaneBlock ? HWY_LANES(T) : kLaneBlock);
  alignas(64) T in[kLaneBlock];
  std::memcpy(in, a, sizeof(in));  // out may be a
  bool good = true;
  for (int j = 0; j < kLaneBlock; ++j) good &= Op::good(in[j]);
  for (int j = 0; j < kLaneBlock; j += kStep) hn::StoreU(Op::vec(d, hn::Load(d, in + j)), d, out + j);
  if (good) return;
  for (int j = 0; j < kLaneBlock; ++j) {
    if (!Op::good(in[j])) out[j] = Op::fallback(in[j]);
  }
}

template <class Op, class T> void math_lane(const LaneArgs& args) {
  T* out = static_cast<T*>(args.out);
  const T* a = static_cast<const T*>(args.in[0]);
  std::int64_t i = 0;
  for (; i + kLaneBlock <= args.n; i += kLaneBlock) math_block<Op, T>(out + i, a + i);
  if (const auto rest = static_cast<std::size_t>(args.n - i); rest > 0) {
    T ta[kLaneBlock], to[kLaneBlock];
    for (T& x : ta) x = T(0.5);  // inside every domain
    std::memcpy(ta, a + i, rest * sizeof(T));
    math_block<Op, T>(to, ta);
    std::memcpy(out + i, to, rest * sizeof(T));
  }
}

struct Tan {
  template <class O, class T> static HWY_INLINE O apply(T a) { return std::tan(a); }
};
struct Pow {  // squares are common, exact to the last bit and need no pow
  template <class O, class T> static HWY_INLINE O apply(T a, T b) {
    if constexpr (is_float<T>)
      return b == T(2) ? a * a : std::pow(a, b);
    else
      return integer_power<T>(a, b);
  }
};
struct Atan2 {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return std::atan2(a, b); }
};

template <class Op> LaneFn math_float(DType t) {
  if (t == DType::kFloat32) return math_lane<Op, float>;
  return t == DType::kFloat64 ? math_lane<Op, double> : nullptr;
}

LaneFn math_of(TapeOp op, DType t) {
  switch (op) {
    case TapeOp::kExp: return math_float<Exp>(t);
    case TapeOp::kExpm1: return math_float<Expm1>(t);
    case TapeOp::kLog: return math_float<Log>(t);
    case TapeOp::kLog1p: return math_float<Log1p>(t);
    case TapeOp::kSin: return math_float<Sin>(t);
    case TapeOp::kCos: return math_float<Cos>(t);
    case TapeOp::kTanh: return math_float<Tanh>(t);
    case TapeOp::kTan:
      if (t == DType::kFloat32) return unary_lane<Tan, float, float>;
      return t == DType::kFloat64 ? unary_lane<Tan, double, double> : nullptr;
    case TapeOp::kAtan2:
      if (t == DType::kFloat32) return binary_lane<Atan2, float, float>;
      return t == DType::kFloat64 ? binary_lane<Atan2, double, double> : nullptr;
    case TapeOp::kPow:
      switch (t) {
        case DType::kBool: return nullptr;
        case DType::kInt32: return binary_lane<Pow, std::int32_t, std::int32_t>;
        case DType::kInt64: return binary_lane<Pow, std::int64_t, std::int64_t>;
        case DType::kFloat32: return binary_lane<Pow, float, float>;
        case DType::kFloat64: return binary_lane<Pow, double, double>;
      }
      return nullptr;
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
