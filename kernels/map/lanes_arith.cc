// Arithmetic, rounding, bit and shift lanes: argument and result share a dtype.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_arith.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"
#include "map/remainder-inl.h"
#include "map/scalar_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

using ir::DType;
using ir::TapeOp;

// With FMA a vector at a time; one by one without.
template <class Op, bool kQuotient> struct DivideDown : Op {
  template <class T>
  static HWY_INLINE void block(T* out, const T* a, const T* b) requires(is_float<T>&& HWY_NATIVE_FMA != 0) {
    divide_down_block<kQuotient>(out, a, b);
  }
};

// Of the dtypes that kernels compute in.
template <class Op> LaneFn unary_number(DType t) {
  switch (t) {
    case DType::kInt32: return unary_lane<Op, std::int32_t, std::int32_t>;
    case DType::kInt64: return unary_lane<Op, std::int64_t, std::int64_t>;
    case DType::kUInt64: return unary_lane<Op, std::uint64_t, std::uint64_t>;
    case DType::kFloat32: return unary_lane<Op, float, float>;
    case DType::kFloat64: return unary_lane<Op, double, double>;
    default: return nullptr;
  }
}
template <class Op> LaneFn unary_float(DType t) {
  if (t == DType::kFloat32) return unary_lane<Op, float, float>;
  return t == DType::kFloat64 ? unary_lane<Op, double, double> : nullptr;
}
template <class Op> LaneFn binary_integer(DType t) {
  if (t == DType::kInt32) return binary_lane<Op, std::int32_t, std::int32_t>;
  if (t == DType::kInt64) return binary_lane<Op, std::int64_t, std::int64_t>;
  return t == DType::kUInt64 ? binary_lane<Op, std::uint64_t, std::uint64_t> : nullptr;
}
// Where int64 and uint64 have the same bits.
template <class Op> LaneFn binary_modular(DType t) {
  return binary_integer<Op>(t == DType::kUInt64 ? DType::kInt64 : t);
}
template <class Op> LaneFn binary_float(DType t) {
  if (t == DType::kFloat32) return binary_lane<Op, float, float>;
  if (t == DType::kFloat64) return binary_lane<Op, double, double>;
  return nullptr;
}
template <class Op> LaneFn binary_number(DType t) {
  return ir::is_floating(t) ? binary_float<Op>(t) : binary_integer<Op>(t);
}
template <class Op> LaneFn binary_ring(DType t) {
  return ir::is_floating(t) ? binary_float<Op>(t) : binary_modular<Op>(t);
}
template <class Op> LaneFn binary_bits(DType t) {  // bool too
  return t == DType::kBool ? binary_lane<Op, std::uint8_t, std::uint8_t> : binary_modular<Op>(t);
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

LaneFn arith_lane(TapeOp op, DType t) {
  switch (op) {
    case TapeOp::kNeg: return unary_number<Neg>(t);
    case TapeOp::kAbs: return unary_number<Abs>(t);
    case TapeOp::kSign: return unary_number<Sign>(t);
    case TapeOp::kFloor: return unary_float<Floor>(t);
    case TapeOp::kCeil: return unary_float<Ceil>(t);
    case TapeOp::kTrunc: return unary_float<Trunc>(t);
    case TapeOp::kRound: return unary_float<Round>(t);
    case TapeOp::kSqrt: return unary_float<Sqrt>(t);
    case TapeOp::kNot: return t == DType::kBool ? unary_lane<Not, std::uint8_t, std::uint8_t> : nullptr;
    case TapeOp::kInvert:
      if (t == DType::kBool) return unary_lane<Invert, std::uint8_t, std::uint8_t>;
      if (t == DType::kInt32) return unary_lane<Invert, std::int32_t, std::int32_t>;
      return t == DType::kInt64 || t == DType::kUInt64 ? unary_lane<Invert, std::int64_t, std::int64_t>
                                                       : nullptr;
    case TapeOp::kAdd: return binary_ring<Add>(t);
    case TapeOp::kSub: return binary_ring<Sub>(t);
    case TapeOp::kMul: return binary_ring<Mul>(t);
    case TapeOp::kDiv: return binary_float<Div>(t);
    case TapeOp::kFloorDiv: return binary_number<DivideDown<FloorDiv, true>>(t);
    case TapeOp::kRem: return binary_number<DivideDown<Rem, false>>(t);
    case TapeOp::kMinimum: return t == DType::kBool ? binary_bits<And>(t) : binary_number<Minimum>(t);
    case TapeOp::kMaximum: return t == DType::kBool ? binary_bits<Or>(t) : binary_number<Maximum>(t);
    case TapeOp::kAnd: return binary_bits<And>(t);
    case TapeOp::kOr: return binary_bits<Or>(t);
    case TapeOp::kXor: return binary_bits<Xor>(t);
    case TapeOp::kShl: return binary_modular<Shl>(t);
    case TapeOp::kShr: return binary_integer<Shr>(t);
    case TapeOp::kCopysign: return binary_float<Copysign>(t);
    case TapeOp::kNextafter: return binary_float<Nextafter>(t);
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(arith_lane);
LaneFn find_arith(ir::TapeOp op, ir::DType t) { return HWY_DYNAMIC_DISPATCH(arith_lane)(op, t); }
HWY_EXPORT(target_name);
const char* lane_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }
}  // namespace tilewise::kernels::map
#endif
