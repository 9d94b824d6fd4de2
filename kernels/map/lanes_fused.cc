// Two instructions in one loop, once per Highway target: what lies between them never leaves a register. Each is rounded
// by itself, so the bits are those of the two loops.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_fused.cc"
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

template <class Outer, class Inner> struct OfFirst {  // Outer(Inner(a, b), c)
  template <class O, class T> static HWY_INLINE O apply(T a, T b, T c) {
    return Outer::template apply<T>(Inner::template apply<T>(a, b), c);
  }
};
template <class Outer, class Inner> struct OfSecond {  // Outer(c, Inner(a, b))
  template <class O, class T> static HWY_INLINE O apply(T a, T b, T c) {
    return Outer::template apply<T>(c, Inner::template apply<T>(a, b));
  }
};
template <class Outer, class Inner> struct Of {  // of one argument or two
  template <class O, class... T> static HWY_INLINE O apply(T... args) {
    return Outer::template apply<O>(Inner::template apply<O>(args...));
  }
};

template <template <class, class> class Order, class Outer, class T> LaneFn binary_of(TapeOp inner) {
  switch (inner) {
    case TapeOp::kAdd: return ternary_lane<Order<Outer, Add>, T>;
    case TapeOp::kSub: return ternary_lane<Order<Outer, Sub>, T>;
    case TapeOp::kMul: return ternary_lane<Order<Outer, Mul>, T>;
    default: return nullptr;
  }
}

template <class Outer, class T> LaneFn unary_of(TapeOp inner) {
  switch (inner) {
    case TapeOp::kAdd: return binary_lane<Of<Outer, Add>, T, T>;
    case TapeOp::kSub: return binary_lane<Of<Outer, Sub>, T, T>;
    case TapeOp::kMul: return binary_lane<Of<Outer, Mul>, T, T>;
    case TapeOp::kAbs: return unary_lane<Of<Outer, Abs>, T, T>;
    case TapeOp::kNeg: return unary_lane<Of<Outer, Neg>, T, T>;
    default: return nullptr;
  }
}

template <class T> LaneFn fused_of(TapeOp outer, TapeOp inner, bool first) {
  switch (outer) {
    case TapeOp::kAdd: return first ? binary_of<OfFirst, Add, T>(inner) : binary_of<OfSecond, Add, T>(inner);
    case TapeOp::kSub: return first ? binary_of<OfFirst, Sub, T>(inner) : binary_of<OfSecond, Sub, T>(inner);
    case TapeOp::kMul: return first ? binary_of<OfFirst, Mul, T>(inner) : binary_of<OfSecond, Mul, T>(inner);
    case TapeOp::kAbs: return unary_of<Abs, T>(inner);
    case TapeOp::kNeg: return unary_of<Neg, T>(inner);
    case TapeOp::kSqrt: return unary_of<Sqrt, T>(inner);
    default: return nullptr;
  }
}

LaneFn fused_lane(TapeOp outer, TapeOp inner, bool first, DType t) {
  if (t == DType::kFloat32) return fused_of<float>(outer, inner, first);
  if (t == DType::kFloat64) return fused_of<double>(outer, inner, first);
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(fused_lane);
LaneFn find_fused(ir::TapeOp outer, ir::TapeOp inner, bool first, ir::DType t) {
  return HWY_DYNAMIC_DISPATCH(fused_lane)(outer, inner, first, t);
}
}  // namespace tilewise::kernels::map
#endif
