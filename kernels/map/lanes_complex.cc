// Complex arithmetic: the textbook formulas, each operation rounded by itself (division by Smith's method: Algorithm 116,
// Communications of the ACM 5, 1962). What moves or compares parts lives here too; functions are in lanes_complex_math.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_complex.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"
#include "map/magnitude-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

using ir::DType;
using ir::TapeOp;
using Bool = std::uint8_t;

template <class T> struct Complex { T re, im; };
using C64 = Complex<float>;
using C128 = Complex<double>;

struct CAdd {
  template <class O, class C> static HWY_INLINE O apply(C a, C b) { return {a.re + b.re, a.im + b.im}; }
};
struct CSub {
  template <class O, class C> static HWY_INLINE O apply(C a, C b) { return {a.re - b.re, a.im - b.im}; }
};
struct CMul {
  template <class O, class C> static HWY_INLINE O apply(C a, C b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};
struct CDiv {
  template <class O, class C> static HWY_INLINE O apply(C a, C b) {
    const bool wide = std::abs(b.re) >= std::abs(b.im);
    const auto big = wide ? b.re : b.im, small = wide ? b.im : b.re;
    const auto ratio = small / big, scale = big + small * ratio;
    const auto re = wide ? a.re + a.im * ratio : a.re * ratio + a.im;
    const auto im = wide ? a.im - a.re * ratio : a.im * ratio - a.re;
    // By zero: what dividing both parts by it gives.
    const bool zero = b.re == 0 && b.im == 0;
    return {zero ? a.re / std::abs(b.re) : re / scale, zero ? a.im / std::abs(b.re) : im / scale};
  }
};
struct CNeg {
  template <class O, class C> static HWY_INLINE O apply(C a) { return {-a.re, -a.im}; }
};
struct CConj {
  template <class O, class C> static HWY_INLINE O apply(C a) { return {a.re, -a.im}; }
};
struct CRound {
  template <class O, class C> static HWY_INLINE O apply(C a) {
    return {std::nearbyint(a.re), std::nearbyint(a.im)};
  }
};
struct CReal {
  template <class O, class C> static HWY_INLINE O apply(C a) { return a.re; }
};
struct CImag {
  template <class O, class C> static HWY_INLINE O apply(C a) { return a.im; }
};
struct CMake {
  template <class O, class T> static HWY_INLINE O apply(T re, T im) { return {re, im}; }
};
struct CFrom {  // a real number or another complex one
  template <class O, class T> static HWY_INLINE O apply(T a) {
    using Part = decltype(O::re);
    if constexpr (std::is_floating_point_v<T>)
      return {static_cast<Part>(a), Part{0}};
    else
      return {static_cast<Part>(a.re), static_cast<Part>(a.im)};
  }
};
struct CTruth {
  template <class O, class C> static HWY_INLINE O apply(C a) {
    return static_cast<O>((a.re != 0) | (a.im != 0));
  }
};
struct CEq {
  template <class O, class C> static HWY_INLINE O apply(C a, C b) {
    return static_cast<O>((a.re == b.re) & (a.im == b.im));
  }
};
struct CNe {
  template <class O, class C> static HWY_INLINE O apply(C a, C b) {
    return static_cast<O>((a.re != b.re) | (a.im != b.im));
  }
};
struct CIsNan {
  template <class O, class C> static HWY_INLINE O apply(C a) {
    return static_cast<O>((a.re != a.re) | (a.im != a.im));
  }
};
template <class T> HWY_INLINE bool infinite(T x) { return std::abs(x) == std::numeric_limits<T>::infinity(); }
template <class T> HWY_INLINE bool finite(T x) { return std::abs(x) < std::numeric_limits<T>::infinity(); }
struct CIsInf {
  template <class O, class C> static HWY_INLINE O apply(C a) {
    return static_cast<O>(infinite(a.re) | infinite(a.im));
  }
};
struct CIsFinite {
  template <class O, class C> static HWY_INLINE O apply(C a) {
    return static_cast<O>(finite(a.re) & finite(a.im));
  }
};

// Products and quotients with the parts in arrays of their own: of interleaved ones g++ 12 makes fused multiply-adds
// (its add-sub pattern), contraction or not.
template <class Op, class T>
HWY_INLINE void parts_block(Complex<T>* out, const Complex<T>* a, const Complex<T>* b) {
  alignas(64) T ar[kLaneBlock], ai[kLaneBlock], br[kLaneBlock], bi[kLaneBlock], re[kLaneBlock],
      im[kLaneBlock];
  for (int j = 0; j < kLaneBlock; ++j) {
    ar[j] = a[j].re, ai[j] = a[j].im;
    br[j] = b[j].re, bi[j] = b[j].im;
  }
  for (int j = 0; j < kLaneBlock; ++j) {
    const Complex<T> c = Op::template apply<Complex<T>>(Complex<T>{ar[j], ai[j]}, Complex<T>{br[j], bi[j]});
    re[j] = c.re;
    im[j] = c.im;
  }
  for (int j = 0; j < kLaneBlock; ++j) out[j] = {re[j], im[j]};
}
template <class Op, class T> void parts_lane(const LaneArgs& args) {
  using C = Complex<T>;
  C* out = static_cast<C*>(args.out);
  const C* a = static_cast<const C*>(args.in[0]);
  const C* b = static_cast<const C*>(args.in[1]);
  const std::int64_t sa = args.splat[0] ? 0 : kLaneBlock, sb = args.splat[1] ? 0 : kLaneBlock;
  std::int64_t n = args.n;
  for (; n >= kLaneBlock; n -= kLaneBlock, out += kLaneBlock, a += sa, b += sb) parts_block<Op, T>(out, a, b);
  if (n <= 0) return;
  C pa[kLaneBlock] = {}, pb[kLaneBlock] = {}, to[kLaneBlock];
  std::memcpy(pa, a, static_cast<std::size_t>(n) * sizeof(C));
  std::memcpy(pb, b, static_cast<std::size_t>(n) * sizeof(C));
  parts_block<Op, T>(to, pa, pb);
  std::memcpy(out, to, static_cast<std::size_t>(n) * sizeof(C));
}

template <class T> HWY_INLINE void magnitudes(T* out, const Complex<T>* a) {
  alignas(64) T re[kLaneBlock], im[kLaneBlock];
  for (int j = 0; j < kLaneBlock; ++j) re[j] = a[j].re, im[j] = a[j].im;
  for (int j = 0; j < kLaneBlock; ++j) out[j] = magnitude(re[j], im[j]);
}
template <class T> void magnitude_lane(const LaneArgs& args) {
  T* out = static_cast<T*>(args.out);
  const auto* a = static_cast<const Complex<T>*>(args.in[0]);
  std::int64_t n = args.n;
  for (; n >= kLaneBlock; n -= kLaneBlock, out += kLaneBlock, a += kLaneBlock) magnitudes(out, a);
  if (n <= 0) return;
  Complex<T> padded[kLaneBlock] = {};
  T to[kLaneBlock];
  std::memcpy(padded, a, static_cast<std::size_t>(n) * sizeof(Complex<T>));
  magnitudes(to, padded);
  std::memcpy(out, to, static_cast<std::size_t>(n) * sizeof(T));
}

LaneFn complex_cast(DType out, DType arg) {
  if (out == DType::kBool)
    return arg == DType::kComplex64 ? unary_lane<CTruth, Bool, C64> : unary_lane<CTruth, Bool, C128>;
  if (out == DType::kComplex64) {
    if (arg == DType::kFloat32) return unary_lane<CFrom, C64, float>;
    if (arg == DType::kComplex64)
      return unary_lane<CFrom, C64, C64>;  // a copy: of an alias that is a tape's result
    return arg == DType::kComplex128 ? unary_lane<CFrom, C64, C128> : nullptr;
  }
  if (out != DType::kComplex128) return nullptr;
  if (arg == DType::kFloat64) return unary_lane<CFrom, C128, double>;
  if (arg == DType::kComplex128) return unary_lane<CFrom, C128, C128>;
  return arg == DType::kComplex64 ? unary_lane<CFrom, C128, C64> : nullptr;
}

template <class C, class T> LaneFn lane_for(TapeOp op) {
  switch (op) {
    case TapeOp::kAdd: return binary_lane<CAdd, C, C>;
    case TapeOp::kSub: return binary_lane<CSub, C, C>;
    case TapeOp::kMul: return parts_lane<CMul, T>;
    case TapeOp::kDiv: return parts_lane<CDiv, T>;
    case TapeOp::kNeg: return unary_lane<CNeg, C, C>;
    case TapeOp::kConj: return unary_lane<CConj, C, C>;
    case TapeOp::kRound: return unary_lane<CRound, C, C>;
    case TapeOp::kReal: return unary_lane<CReal, T, C>;
    case TapeOp::kImag: return unary_lane<CImag, T, C>;
    case TapeOp::kAbs: return magnitude_lane<T>;
    case TapeOp::kComplex: return binary_lane<CMake, C, T>;
    case TapeOp::kEq: return binary_lane<CEq, Bool, C>;
    case TapeOp::kNe: return binary_lane<CNe, Bool, C>;
    case TapeOp::kIsNan: return unary_lane<CIsNan, Bool, C>;
    case TapeOp::kIsInf: return unary_lane<CIsInf, Bool, C>;
    case TapeOp::kIsFinite: return unary_lane<CIsFinite, Bool, C>;
    default: return nullptr;
  }
}

LaneFn complex_lane(TapeOp op, DType out, DType arg) {
  if (op == TapeOp::kCast) return complex_cast(out, arg);
  const DType t = ir::is_complex(out) ? out : arg;
  return t == DType::kComplex64 ? lane_for<C64, float>(op) : lane_for<C128, double>(op);
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(complex_lane);
LaneFn find_complex(ir::TapeOp op, ir::DType out, ir::DType arg) {
  return HWY_DYNAMIC_DISPATCH(complex_lane)(op, out, arg);
}
}  // namespace tilewise::kernels::map
#endif
