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
#pragma GCC ivdep
  for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::template apply<O>(a[j]);
}
template <class Op, class O, class A> HWY_INLINE void binary_block(O* out, const A* a, const A* b) {
#pragma GCC ivdep
  for (int j = 0; j < kLaneBlock; ++j) out[j] = Op::template apply<O>(a[j], b[j]);
}

HWY_INLINE void ask(const std::byte*& ahead, std::int64_t step) {
  for (const std::byte* end = ahead + step; ahead < end; ahead += 64) __builtin_prefetch(ahead, 0, 2);
}

template <class Op, class O, class A> void unary_lane(const LaneArgs& args) {
  O* out = static_cast<O*>(args.out);
  const A* a = static_cast<const A*>(args.in[0]);
  std::int64_t i = 0;
  const std::byte* ahead = args.ahead;
  for (; i + kLaneBlock <= args.n; i += kLaneBlock) {
    ask(ahead, args.ahead_step);
    unary_block<Op, O, A>(out + i, a + i);
  }
  if (const auto rest = static_cast<std::size_t>(args.n - i); rest > 0) {
    A ta[kLaneBlock] = {};
    O to[kLaneBlock];
    std::memcpy(ta, a + i, rest * sizeof(A));
    unary_block<Op, O, A>(to, ta);
    std::memcpy(out + i, to, rest * sizeof(O));
  }
}

template <class Op, class O, class A> void binary_lane(const LaneArgs& args) {
  O* out = static_cast<O*>(args.out);
  const A* a = static_cast<const A*>(args.in[0]);
  const A* b = static_cast<const A*>(args.in[1]);
  const std::int64_t sa = args.splat[0] ? 0 : kLaneBlock, sb = args.splat[1] ? 0 : kLaneBlock;
  std::int64_t i = 0;
  const std::byte* ahead = args.ahead;
  for (; i + kLaneBlock <= args.n; i += kLaneBlock, a += sa, b += sb) {
    ask(ahead, args.ahead_step);
    binary_block<Op, O, A>(out + i, a, b);
  }
  if (const auto rest = static_cast<std::size_t>(args.n - i); rest > 0) {
    A ta[kLaneBlock] = {}, tb[kLaneBlock] = {};
    O to[kLaneBlock];
    std::memcpy(ta, a, rest * sizeof(A));
    std::memcpy(tb, b, rest * sizeof(A));
    binary_block<Op, O, A>(to, ta, tb);
    std::memcpy(out + i, to, rest * sizeof(O));
  }
}

template <class T> HWY_INLINE void where_block(T* out, const std::uint8_t* m, const T* a, const T* b) {
#pragma GCC ivdep
  for (int j = 0; j < kLaneBlock; ++j) out[j] = m[j] != 0 ? a[j] : b[j];
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
