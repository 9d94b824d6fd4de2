// Loops over lane blocks, compiled once per Highway target. Include after hwy/highway.h inside foreach_target files.
#if defined(TILEWISE_LANE_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEWISE_LANE_LOOPS_INL_H_
#undef TILEWISE_LANE_LOOPS_INL_H_
#else
#define TILEWISE_LANE_LOOPS_INL_H_
#endif
#include <hwy/highway.h>

#include <cstring>

#include "map/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

// Constant trip counts vectorise fully, without a remainder. `ivdep`: out may equal an input, element by element.
template <class Op, class O, class A> HWY_INLINE void unary_block(O* out, const A* a) {
  if constexpr (requires { Op::block(out, a); }) {
    Op::block(out, a);
  } else {
#pragma GCC ivdep
    for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::template apply<O>(a[j]);
  }
}
template <class Op, class O, class A> HWY_INLINE void binary_block(O* out, const A* a, const A* b) {
  if constexpr (requires { Op::block(out, a, b); }) {
    Op::block(out, a, b);
  } else {
#pragma GCC ivdep
    for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::template apply<O>(a[j], b[j]);
  }
}

template <class Op, class T> HWY_INLINE void ternary_block(T* out, const T* a, const T* b, const T* c) {
#pragma GCC ivdep
  for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::template apply<T>(a[j], b[j], c[j]);
}

// For loops that compute for long: at the end of a page the hardware stops reading ahead, and begins again when it is too late.
// Asks for the block that comes half a page after this one.
constexpr std::size_t kAheadBytes = 2048;
template <class T> HWY_INLINE void ask_ahead(const T* block) {
  const auto* const at = reinterpret_cast<const char*>(block) + kAheadBytes;
  for (std::size_t b = 0; b < kLaneBlock * sizeof(T); b += 64) __builtin_prefetch(at + b, 0, 3);
}

// A vector function is taken for elements within an interval: good(). For others Op::fallback, by the element's value alone.
#define TILEWISE_GOOD_WITHIN(Above, low, Below, high) \
  template <class D, class V> static HWY_INLINE hwy::HWY_NAMESPACE::Mask<D> good(D d, V x) { \
    namespace hn = hwy::HWY_NAMESPACE; \
    using T = hn::TFromD<D>; \
    constexpr bool kDouble = sizeof(T) == 8; \
    (void)kDouble; \
    return hn::And(hn::Above(x, hn::Set(d, T(low))), hn::Below(x, hn::Set(d, T(high)))); \
  }
template <class Op, class T> HWY_INLINE bool all_good(const T* in) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<T, kLaneBlock> d;
  bool good = true;
  for (int j = 0; j < kLaneBlock; j += static_cast<int>(hn::Lanes(d)))
    good &= hn::AllTrue(d, Op::good(d, hn::LoadU(d, in + j)));
  return good;
}
template <class Op, class T> HWY_NOINLINE void fall_back(T* out, const T* in) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<T, 1> one;
  for (int j = 0; j < kLaneBlock; ++j)
    if (!hn::AllTrue(one, Op::good(one, hn::Set(one, in[j])))) out[j] = Op::fallback(in[j]);
}

// The ragged end, through a padded block. Kept out of the loops: its arrays would cost them a frame on each call.
template <class Op, class O, class A> HWY_NOINLINE void unary_rest(O* out, const A* a, std::size_t n) {
  A pa[kLaneBlock] = {};
  O to[kLaneBlock];
  std::memcpy(pa, a, n * sizeof(A));
  unary_block<Op, O, A>(to, pa);
  std::memcpy(out, to, n * sizeof(O));
}
template <class Op, class O, class A>
HWY_NOINLINE void binary_rest(O* out, const A* a, const A* b, std::size_t n) {
  A pa[kLaneBlock] = {}, pb[kLaneBlock] = {};
  O to[kLaneBlock];
  std::memcpy(pa, a, n * sizeof(A));
  std::memcpy(pb, b, n * sizeof(A));
  binary_block<Op, O, A>(to, pa, pb);
  std::memcpy(out, to, n * sizeof(O));
}
template <class Op, class T>
HWY_NOINLINE void ternary_rest(T* out, const T* a, const T* b, const T* c, std::size_t n) {
  T pa[kLaneBlock] = {}, pb[kLaneBlock] = {}, pc[kLaneBlock] = {}, to[kLaneBlock];
  std::memcpy(pa, a, n * sizeof(T));
  std::memcpy(pb, b, n * sizeof(T));
  std::memcpy(pc, c, n * sizeof(T));
  ternary_block<Op, T>(to, pa, pb, pc);
  std::memcpy(out, to, n * sizeof(T));
}

template <class Op, class O, class A> void unary_lane(const LaneArgs& args) {
  O* out = static_cast<O*>(args.out);
  const A* a = static_cast<const A*>(args.in[0]);
  std::int64_t n = args.n;
  for (; n >= kLaneBlock; n -= kLaneBlock, out += kLaneBlock, a += kLaneBlock) unary_block<Op, O, A>(out, a);
  if (n > 0) unary_rest<Op, O, A>(out, a, static_cast<std::size_t>(n));
}

template <class Op, class O, class A> void binary_lane(const LaneArgs& args) {
  O* out = static_cast<O*>(args.out);
  const A* a = static_cast<const A*>(args.in[0]);
  const A* b = static_cast<const A*>(args.in[1]);
  const std::int64_t sa = args.splat[0] ? 0 : kLaneBlock, sb = args.splat[1] ? 0 : kLaneBlock;
  std::int64_t n = args.n;
  for (; n >= kLaneBlock; n -= kLaneBlock, out += kLaneBlock, a += sa, b += sb) {
    binary_block<Op, O, A>(out, a, b);
  }
  if (n > 0) binary_rest<Op, O, A>(out, a, b, static_cast<std::size_t>(n));
}

template <class Op, class T> void ternary_lane(const LaneArgs& args) {
  T* out = static_cast<T*>(args.out);
  const T* a = static_cast<const T*>(args.in[0]);
  const T* b = static_cast<const T*>(args.in[1]);
  const T* c = static_cast<const T*>(args.in[2]);
  const std::int64_t sa = args.splat[0] ? 0 : kLaneBlock, sb = args.splat[1] ? 0 : kLaneBlock,
                     sc = args.splat[2] ? 0 : kLaneBlock;
  std::int64_t n = args.n;
  for (; n >= kLaneBlock; n -= kLaneBlock, out += kLaneBlock, a += sa, b += sb, c += sc) {
    ternary_block<Op, T>(out, a, b, c);
  }
  if (n > 0) ternary_rest<Op, T>(out, a, b, c, static_cast<std::size_t>(n));
}

// Compilers make branches of this, which random masks send astray. So the mask's bytes become bits, and those the lanes of each vector.
template <class T> HWY_INLINE void where_block(T* out, const std::uint8_t* m, const T* a, const T* b) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Bytes = hn::CappedTag<std::uint8_t, kLaneBlock>;
  if constexpr (sizeof(T) <= 8 && hn::MaxLanes(Bytes()) >= 8) {  // so that theirs are whole bytes of bits
    const Bytes bytes;
    std::uint8_t packed[16] = {};  // its calls may write 8
    for (std::size_t j = 0; j < kLaneBlock; j += hn::Lanes(bytes))
      hn::StoreMaskBits(bytes, hn::Ne(hn::LoadU(bytes, m + j), hn::Zero(bytes)), packed + j / 8);
    std::uint64_t bits;
    std::memcpy(&bits, packed, sizeof bits);
    const hn::CappedTag<T, kLaneBlock> d;
    for (std::size_t j = 0; j < kLaneBlock; j += hn::Lanes(d), bits >>= hn::Lanes(d)) {
      std::memcpy(packed, &bits, sizeof bits);
      hn::StoreU(hn::IfThenElse(hn::LoadMaskBits(d, packed), hn::LoadU(d, a + j), hn::LoadU(d, b + j)), d,
                 out + j);
    }
  } else if constexpr (sizeof(T) > 8) {
#pragma GCC ivdep
    for (int j = 0; j < kLaneBlock; ++j) {
      const std::uint64_t pick = m[j] != 0 ? ~std::uint64_t{0} : 0;
      out[j] = {(a[j].low & pick) | (b[j].low & ~pick), (a[j].high & pick) | (b[j].high & ~pick)};
    }
  } else {
#pragma GCC ivdep
    for (int j = 0; j < kLaneBlock; ++j) out[j] = m[j] != 0 ? a[j] : b[j];
  }
}

template <class T> void where_lane(const LaneArgs& args) {
  T* out = static_cast<T*>(args.out);
  const auto* m = static_cast<const std::uint8_t*>(args.in[0]);
  const T* a = static_cast<const T*>(args.in[1]);
  const T* b = static_cast<const T*>(args.in[2]);
  const std::int64_t sm = args.splat[0] ? 0 : kLaneBlock, sa = args.splat[1] ? 0 : kLaneBlock,
                     sb = args.splat[2] ? 0 : kLaneBlock;
  std::int64_t i = 0;
  for (; i + kLaneBlock <= args.n; i += kLaneBlock, m += sm, a += sa, b += sb)
    where_block<T>(out + i, m, a, b);
  if (const auto rest = static_cast<std::size_t>(args.n - i); rest > 0) {
    std::uint8_t tm[kLaneBlock] = {};
    T ta[kLaneBlock] = {}, tb[kLaneBlock] = {}, to[kLaneBlock];
    std::memcpy(tm, m, rest);
    std::memcpy(ta, a, rest * sizeof(T));
    std::memcpy(tb, b, rest * sizeof(T));
    where_block<T>(to, tm, ta, tb);
    std::memcpy(out + i, to, rest * sizeof(T));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();
#endif
