// Floor division and remainder of floats, a vector at a time, with the bits of floor_divmod (scalar_ops-inl.h). Include after
// hwy/highway.h inside foreach_target files.
//
// The remainder a - trunc(a / b) b is exact with FMA: it is a multiple of b's last place and no larger than b, so it is a float.
// Where the division rounds up to a whole number, the quotient is one too large; adding b back is then exact too.
#if defined(TILEWISE_REMAINDER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEWISE_REMAINDER_INL_H_
#undef TILEWISE_REMAINDER_INL_H_
#else
#define TILEWISE_REMAINDER_INL_H_
#endif
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "map/lanes.h"
#include "map/scalar_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

// floor_divmod's quotient or remainder; `good`: where that holds, quotients below 2^52 (float32: 2^23) of finite numbers.
template <bool kQuotient, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V divide_down(D d, V a, V b, hwy::HWY_NAMESPACE::Mask<D>& good) {
  namespace hn = hwy::HWY_NAMESPACE;
  using T = hn::TFromD<D>;
  constexpr T kTop = T(std::int64_t{1} << (std::numeric_limits<T>::digits - 1));
  const V zero = hn::Zero(d), ratio = hn::Div(a, b);
  good = hn::And(hn::Lt(hn::Abs(ratio), hn::Set(d, kTop)), hn::Lt(hn::Abs(b), hn::Inf(d)));
  V r = hn::NegMulAdd(hn::Trunc(ratio), b, a);
  const auto too_far =
      hn::Or(hn::And(hn::Lt(a, zero), hn::Gt(r, zero)), hn::And(hn::Gt(a, zero), hn::Lt(r, zero)));
  r = hn::IfThenElse(too_far, hn::Add(r, hn::CopySign(b, a)), r);  // fmod(a, b)
  // On the other side of zero than b.
  const auto up =
      hn::Or(hn::And(hn::Lt(r, zero), hn::Gt(b, zero)), hn::And(hn::Gt(r, zero), hn::Lt(b, zero)));
  if constexpr (kQuotient) {
    const V one = hn::Set(d, T(1));
    V q = hn::Div(hn::Sub(a, r), b);
    q = hn::IfThenElse(up, hn::Sub(q, one), q);
    const V down = hn::Floor(q);
    const V nearest = hn::IfThenElse(hn::Gt(hn::Sub(q, down), hn::Set(d, T(0.5))), hn::Add(down, one), down);
    return hn::IfThenElse(hn::Eq(q, zero), hn::CopySign(zero, ratio), nearest);
  } else {
    return hn::IfThenElse(hn::Eq(r, zero), hn::CopySign(zero, b), hn::IfThenElse(up, hn::Add(r, b), r));
  }
}

template <bool kQuotient, class T> HWY_INLINE void divide_down_block(T* out, const T* a, const T* b) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<T, kLaneBlock> d;
  T to[kLaneBlock];  // `out` may be an operand, which is wanted again
  bool all_good = true;
  for (std::size_t j = 0; j < kLaneBlock; j += hn::Lanes(d)) {
    hn::Mask<decltype(d)> good;
    hn::StoreU(divide_down<kQuotient>(d, hn::LoadU(d, a + j), hn::LoadU(d, b + j), good), d, to + j);
    all_good = all_good && hn::AllTrue(d, good);
  }
  if (!all_good) {
    const hn::CappedTag<T, 1> one;
    for (int j = 0; j < kLaneBlock; ++j) {
      hn::Mask<decltype(one)> good;
      divide_down<kQuotient>(one, hn::Set(one, a[j]), hn::Set(one, b[j]), good);
      if (hn::AllTrue(one, good)) continue;
      const DivMod<T> slow = floor_divmod<T>(a[j], b[j]);
      to[j] = kQuotient ? slow.quotient : slow.remainder;
    }
  }
  std::memcpy(out, to, sizeof to);
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();
#endif
