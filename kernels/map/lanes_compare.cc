// Comparisons, classification, casts and selection: lanes whose result may have another dtype than their arguments.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_compare.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"
#include "map/scalar_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

using ir::DType;
using ir::TapeOp;
using Bool = std::uint8_t;

#define TILEWISE_COMPARE(Name, sign) \
  struct Name { \
    template <class O, class T> static HWY_INLINE O apply(T a, T b) { return static_cast<O>(a sign b); } \
  };
TILEWISE_COMPARE(Eq, ==)
TILEWISE_COMPARE(Ne, !=)
TILEWISE_COMPARE(Lt, <)
TILEWISE_COMPARE(Le, <=)
TILEWISE_COMPARE(Gt, >)
TILEWISE_COMPARE(Ge, >=)
#undef TILEWISE_COMPARE

struct IsNan {
  template <class O, class T> static HWY_INLINE O apply(T a) { return static_cast<O>(a != a); }
};
struct IsInf {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (is_float<T>)
      return static_cast<O>(Abs::apply<T>(a) == std::numeric_limits<T>::infinity());
    else
      return 0;
  }
};
struct IsFinite {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (is_float<T>)
      return static_cast<O>(Abs::apply<T>(a) < std::numeric_limits<T>::infinity());
    else
      return 1;
  }
};

struct Signbit {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    return static_cast<O>(std::bit_cast<BitsOf<T>>(a) >> (sizeof(T) * 8 - 1));
  }
};

// Float to integer truncates; NaN and whatever does not fit give the smallest integer, as x86's cvttsd2si does. To uint64:
// negative numbers down to -2^63 wrap, as C casts through int64 do; what does not fit gives 2^63.
struct Cast {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (sizeof(O) == 1) {
      return static_cast<O>(a != 0);
    } else if constexpr (is_float<T> && std::is_same_v<O, std::uint64_t>) {
      constexpr T kTop = T(0x1p63);
      const bool small = a >= -kTop && a < kTop, large = a >= kTop && a < T(0x1p64);
      const auto low = static_cast<std::uint64_t>(static_cast<std::int64_t>(small ? a : T{0}));
      const auto high =
          static_cast<std::uint64_t>(static_cast<std::int64_t>(large ? a - kTop : T{0})) | 1ull << 63;
      return small ? low : (large ? high : 1ull << 63);
    } else if constexpr (is_float<T> && !is_float<O>) {
      constexpr T kLow = static_cast<T>(std::numeric_limits<O>::min());
      // float64 -> int32 accepts everything above -2^31 - 1 that truncates into range; elsewhere the bound is exact.
      bool inside;
      if constexpr (sizeof(T) > sizeof(O))
        inside = a > kLow - 1 && a < -kLow;
      else
        inside = a >= kLow && a < -kLow;
      const O value = static_cast<O>(inside ? a : T{0});
      return inside ? value : std::numeric_limits<O>::min();
    } else {
      return static_cast<O>(a);
    }
  }
};

template <class Op> LaneFn float_to_bool(DType t) {
  if (t == DType::kFloat32) return unary_lane<Op, Bool, float>;
  return t == DType::kFloat64 ? unary_lane<Op, Bool, double> : nullptr;
}
template <class Op> LaneFn binary_to_bool(DType t) {
  switch (t) {
    case DType::kBool: return binary_lane<Op, Bool, Bool>;
    case DType::kInt32: return binary_lane<Op, Bool, std::int32_t>;
    case DType::kInt64: return binary_lane<Op, Bool, std::int64_t>;
    case DType::kUInt64: return binary_lane<Op, Bool, std::uint64_t>;
    case DType::kFloat32: return binary_lane<Op, Bool, float>;
    case DType::kFloat64: return binary_lane<Op, Bool, double>;
    default: return nullptr;
  }
}
template <class From> LaneFn cast_from(DType to) {
  switch (to) {
    case DType::kBool: return unary_lane<Cast, Bool, From>;
    case DType::kInt32: return unary_lane<Cast, std::int32_t, From>;
    case DType::kInt64: return unary_lane<Cast, std::int64_t, From>;
    case DType::kUInt64:
      if constexpr (is_float<From>)
        return unary_lane<Cast, std::uint64_t, From>;
      else
        return unary_lane<Cast, std::int64_t, From>;  // the same bits
    case DType::kFloat32: return unary_lane<Cast, float, From>;
    case DType::kFloat64: return unary_lane<Cast, double, From>;
    default: return nullptr;
  }
}
LaneFn cast_lane(DType to, DType from) {
  switch (from) {
    case DType::kBool: return cast_from<Bool>(to);
    case DType::kInt32: return cast_from<std::int32_t>(to);
    case DType::kInt64: return cast_from<std::int64_t>(to);
    case DType::kUInt64:
      if (to == DType::kFloat32) return unary_lane<Cast, float, std::uint64_t>;
      if (to == DType::kFloat64) return unary_lane<Cast, double, std::uint64_t>;
      return cast_from<std::int64_t>(to);
    case DType::kFloat32: return cast_from<float>(to);
    case DType::kFloat64: return cast_from<double>(to);
    default: return nullptr;
  }
}
struct Pair {
  std::uint64_t low, high;
};
LaneFn where_of(DType t) {  // only sizes matter
  switch (ir::size_of(t)) {
    case 1: return where_lane<Bool>;
    case 4: return where_lane<std::int32_t>;
    case 8: return where_lane<std::int64_t>;
    case 16: return where_lane<Pair>;
    default: return nullptr;
  }
}

LaneFn compare_lane(TapeOp op, DType out, DType arg) {
  if (op == TapeOp::kCast) return cast_lane(out, arg);
  if (op == TapeOp::kWhere) return out == arg ? where_of(out) : nullptr;
  if (out != DType::kBool) return nullptr;
  switch (op) {
    case TapeOp::kEq: return binary_to_bool<Eq>(arg);
    case TapeOp::kNe: return binary_to_bool<Ne>(arg);
    case TapeOp::kLt: return binary_to_bool<Lt>(arg);
    case TapeOp::kLe: return binary_to_bool<Le>(arg);
    case TapeOp::kGt: return binary_to_bool<Gt>(arg);
    case TapeOp::kGe: return binary_to_bool<Ge>(arg);
    case TapeOp::kIsNan: return float_to_bool<IsNan>(arg);
    case TapeOp::kIsInf: return float_to_bool<IsInf>(arg);
    case TapeOp::kIsFinite: return float_to_bool<IsFinite>(arg);
    case TapeOp::kSignbit: return float_to_bool<Signbit>(arg);
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(compare_lane);
LaneFn find_compare(ir::TapeOp op, ir::DType out, ir::DType arg) {
  return HWY_DYNAMIC_DISPATCH(compare_lane)(op, out, arg);
}
}  // namespace tilewise::kernels::map
#endif
