// Lines of at most kLine contiguous elements folded in registers, in the order of host.cc. Include after hwy/highway.h inside
// foreach_target files.
#if defined(TILEWISE_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEWISE_LINES_INL_H_
#undef TILEWISE_LINES_INL_H_
#else
#define TILEWISE_LINES_INL_H_
#endif
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "reduce/fold.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::reduce {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T> constexpr bool is_float = std::is_floating_point_v<T>;

struct Sum {
  template <class T> static constexpr T kNeutral = is_float<T> ? T(-0.0) : T(0);
  template <class T> static HWY_INLINE T apply(T a, T x) {
    if constexpr (is_float<T>)
      return a + x;
    else
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(x));
  }
  template <class V> static HWY_INLINE V vec(V a, V x) { return hn::Add(a, x); }
};

// The lanes of a vector by halves.
template <class Op, class D, class V> HWY_INLINE hn::TFromD<D> by_halves([[maybe_unused]] D d, V v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) > 1) {
    const hn::Half<D> half;
    return by_halves<Op>(half, Op::vec(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

// The kFold lanes of some vectors by halves: l with l + 8, then + 4, + 2, + 1.
template <class Op, class D, class V, std::size_t kVectors>
HWY_INLINE hn::TFromD<D> fold_lanes(D d, V (&a)[kVectors]) {
  for (std::size_t half = kVectors / 2; half > 0; half /= 2)
    for (std::size_t v = 0; v < half; ++v) a[v] = Op::vec(a[v], a[v + half]);
  return by_halves<Op>(d, a[0]);
}

// Several lines at once: so many loads are on their way that memory is not waited for where a line ends.
// `Op`: kNeutral<T>, and vec(accumulator, values).
template <class Op, class T, int kLines> HWY_INLINE void fold_lines(T* out, const T* x, std::int64_t length) {
  const hn::CappedTag<T, kFold> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d)), kVectors = kFold / kLanes;
  using V = decltype(hn::Zero(d));
  V a[kLines][kVectors];
  for (auto& line : a)
    for (V& v : line) v = hn::Set(d, Op::template kNeutral<T>);
  const std::int64_t whole = length / kFold, rest = length % kFold;
  for (std::int64_t r = 0; r < whole; ++r)
    for (int k = 0; k < kLines; ++k)
      for (int v = 0; v < kVectors; ++v)
        a[k][v] = Op::vec(a[k][v], hn::LoadU(d, x + k * length + r * kFold + v * kLanes));
  for (int k = 0; k < kLines; ++k) {
    if (rest > 0) {
      T padded[kFold];
      std::fill_n(padded, kFold, Op::template kNeutral<T>);
      std::copy_n(x + k * length + whole * kFold, rest, padded);
      for (int v = 0; v < kVectors; ++v) a[k][v] = Op::vec(a[k][v], hn::LoadU(d, padded + v * kLanes));
    }
    out[k] = fold_lanes<Op>(d, a[k]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::reduce
HWY_AFTER_NAMESPACE();
#endif
