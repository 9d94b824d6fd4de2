// Folding rows into accumulators, once per Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/fold.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "reduce/fold.h"
#include "reduce/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::reduce {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;
using ir::ReduceKind;

template <class T>
constexpr T kHighest = is_float<T>      ? std::numeric_limits<T>::infinity()
                       : sizeof(T) == 1 ? T{1}
                                        : std::numeric_limits<T>::max();
template <class T>
constexpr T kLowest = is_float<T>      ? -std::numeric_limits<T>::infinity()
                      : sizeof(T) == 1 ? T{0}
                                       : std::numeric_limits<T>::min();

struct Prod {
  template <class T> static constexpr T kNeutral = T(1);
  template <class T> static HWY_INLINE T apply(T a, T x) {
    if constexpr (is_float<T>)
      return a * x;
    else
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) *
                            static_cast<std::make_unsigned_t<T>>(x));
  }
};
// A NaN in the accumulator fails every comparison and stays; one in x is taken (Highway's Ne is ordered: not for NaN).
struct Min {
  template <class T> static constexpr T kNeutral = kHighest<T>;
  template <class T> static HWY_INLINE T apply(T a, T x) { return (x < a) | (x != x) ? x : a; }
  template <class V> static HWY_INLINE V vec(V a, V x) {
    return hn::IfThenElse(hn::Or(hn::Lt(x, a), hn::Not(hn::Eq(x, x))), x, a);
  }
};
struct Max {
  template <class T> static constexpr T kNeutral = kLowest<T>;
  template <class T> static HWY_INLINE T apply(T a, T x) { return (x > a) | (x != x) ? x : a; }
  template <class V> static HWY_INLINE V vec(V a, V x) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, x), hn::Not(hn::Eq(x, x))), x, a);
  }
};
struct Any {
  template <class T> static constexpr T kNeutral = T(0);
  template <class T> static HWY_INLINE T apply(T a, T x) { return a | x; }
};
struct All {
  template <class T> static constexpr T kNeutral = T(1);
  template <class T> static HWY_INLINE T apply(T a, T x) { return a & x; }
};

template <class Op, class T>
constexpr bool kHasVectors = sizeof(T) >= 4 && !std::is_same_v<Op, Prod> && !std::is_same_v<Op, Any> &&
                             !std::is_same_v<Op, All>;

template <class Op, class T> void clear(void* acc, std::int64_t width) {
  T* a = static_cast<T*>(acc);
  for (std::int64_t j = 0; j < width; ++j) a[j] = Op::template kNeutral<T>;
}

constexpr std::int64_t kAhead = 1024;  // elements to ask for early

template <class Op, class T>
void rows(void* acc, const void* from, std::int64_t width, std::int64_t rows, std::int64_t pitch) {
  T* HWY_RESTRICT a = static_cast<T*>(acc);
  const T* HWY_RESTRICT x = static_cast<const T*>(from);
  if (width == 1 && rows == 1) {
    *a = Op::apply(*a, *x);
    return;
  }
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4, x += 4 * pitch) {  // four rows a pass over the accumulators
    if (pitch == width) {  // one stream, read in four places at once: more than the hardware foresees
      for (std::int64_t at = 0; at < 4 * width; at += 64 / static_cast<std::int64_t>(sizeof(T))) {
        __builtin_prefetch(x + kAhead + at, 0, 2);
      }
    }
    const T *HWY_RESTRICT x1 = x + pitch, *HWY_RESTRICT x2 = x1 + pitch, *HWY_RESTRICT x3 = x2 + pitch;
    for (std::int64_t j = 0; j < width; ++j) {
      a[j] = Op::apply(Op::apply(Op::apply(Op::apply(a[j], x[j]), x1[j]), x2[j]), x3[j]);
    }
  }
  for (; r < rows; ++r, x += pitch) {
    for (std::int64_t j = 0; j < width; ++j) a[j] = Op::apply(a[j], x[j]);
  }
}

template <class Op, class T> void lanes(void* acc, std::int64_t n) {
  T* a = static_cast<T*>(acc);
  if (n == 1) {
    for (int half = kFold / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) a[l] = Op::apply(a[l], a[l + half]);
    }
    return;
  }
  for (std::int64_t half = kFold / 2 * n; half >= n; half /= 2) {
    for (std::int64_t j = 0; j < half; ++j) a[j] = Op::apply(a[j], a[j + half]);
  }
}

template <class Op, class T>
void units(void* to, const void* from, std::int64_t units, std::int64_t length, std::int64_t n) {
  T* HWY_RESTRICT out = static_cast<T*>(to);
  const T* HWY_RESTRICT x = static_cast<const T*>(from);
  for (std::int64_t u = 0; u < units; ++u, out += n, x += length * n) {
    for (std::int64_t j = 0; j < n; ++j) {
      T s = x[j];
      for (std::int64_t r = 1; r < length; ++r) s = Op::apply(s, x[r * n + j]);
      out[j] = s;
    }
  }
}

template <class Op, class T> void lines(void* to, const void* from, std::int64_t count, std::int64_t length) {
  constexpr int kVectors = kFold / static_cast<int>(hn::MaxLanes(hn::CappedTag<T, kFold>()));
  constexpr int kAtOnce = std::clamp(8 / kVectors, 1, 4);  // accumulators in eight registers
  T* out = static_cast<T*>(to);
  const T* x = static_cast<const T*>(from);
  for (; count >= kAtOnce; count -= kAtOnce, out += kAtOnce, x += kAtOnce * length)
    fold_lines<Op, T, kAtOnce>(out, x, length);
  for (; count > 0; --count, ++out, x += length) fold_lines<Op, T, 1>(out, x, length);
}

template <class Op, class T> FoldFns fns() {
  FoldFns out{clear<Op, T>, rows<Op, T>, lanes<Op, T>, units<Op, T>};
  if constexpr (kHasVectors<Op, T>) out.lines = lines<Op, T>;
  return out;
}

// kUInt64 where int64's bits are not the answer; folds of complex numbers are in fold_complex.cc.
template <class Op> FoldFns number_fns(DType t, bool modular) {
  switch (t) {
    case DType::kInt32: return fns<Op, std::int32_t>();
    case DType::kInt64: return fns<Op, std::int64_t>();
    case DType::kUInt64: return modular ? fns<Op, std::int64_t>() : fns<Op, std::uint64_t>();
    case DType::kFloat32: return fns<Op, float>();
    case DType::kFloat64: return fns<Op, double>();
    default: return {};
  }
}

FoldFns folds_of(ReduceKind kind, DType t) {
  const bool is_bool = t == DType::kBool;
  switch (kind) {
    case ReduceKind::kSum: return number_fns<Sum>(t, true);
    case ReduceKind::kProd: return number_fns<Prod>(t, true);
    case ReduceKind::kMin: return is_bool ? fns<All, std::uint8_t>() : number_fns<Min>(t, false);
    case ReduceKind::kMax: return is_bool ? fns<Any, std::uint8_t>() : number_fns<Max>(t, false);
    case ReduceKind::kAny: return is_bool ? fns<Any, std::uint8_t>() : FoldFns{};
    case ReduceKind::kAll: return is_bool ? fns<All, std::uint8_t>() : FoldFns{};
    case ReduceKind::kArgMin:
    case ReduceKind::kArgMax:
    case ReduceKind::kMoments: return {};
  }
  return {};
}

template <bool kMin, class T> HWY_INLINE bool better(T x, T best) {
  const bool beats = kMin ? x < best : x > best;
  return beats | ((x != x) & (best == best));
}

// What cannot be better than `best`; of floats NaN on either side can, for whoever looks closer.
template <bool kMin, class V> HWY_INLINE auto no_better(V x, V best) {
  if constexpr (is_float<hn::TFromV<V>>)
    return kMin ? hn::Ge(x, best) : hn::Le(x, best);
  else
    return hn::Not(kMin ? hn::Lt(x, best) : hn::Gt(x, best));
}

constexpr std::int64_t kBlock = 128;

// Where the best of a block is, the first of equal ones; -1 if a NaN is there.
template <bool kMin, class T> HWY_INLINE int first_of_best(const T* x) {
  const hn::CappedTag<T, kBlock> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  using Op = std::conditional_t<kMin, Min, Max>;
  auto best = hn::LoadU(d, x);
  auto ordered = hn::Eq(best, best);
  for (int j = kLanes; j < kBlock; j += kLanes) {
    const auto v = hn::LoadU(d, x + j);
    best = Op::vec(best, v);
    ordered = hn::And(ordered, hn::Eq(v, v));
  }
  if (!hn::AllTrue(d, ordered)) return -1;
  const auto top = hn::Set(d, by_halves<Op>(d, best));
  for (int j = 0; j < kBlock; j += kLanes)
    if (const auto at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + j), top)); at >= 0)
      return j + static_cast<int>(at);
  return -1;
}

// Blocks without a candidate, nearly all of them, cost one vector pass.
template <bool kMin, class T>
void arg_row(const void* from, std::int64_t n, std::int64_t first, bool empty, void* best,
             std::int64_t* best_index) {
  const T* x = static_cast<const T*>(from);
  T value = *static_cast<T*>(best);
  std::int64_t index = *best_index, i = 0;
  if (empty && n > 0) {
    value = x[0];
    index = first;
    i = 1;
  }
  const hn::CappedTag<T, kBlock> d;
  constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  for (std::int64_t end; i < n && value == value; i = end) {  // nothing beats the first NaN
    end = std::min(n, i + kBlock);
    if (end - i == kBlock) {
      const auto top = hn::Set(d, value);
      auto none = no_better<kMin>(hn::LoadU(d, x + i), top);
      for (std::int64_t j = kLanes; j < kBlock; j += kLanes)
        none = hn::And(none, no_better<kMin>(hn::LoadU(d, x + i + j), top));
      if (hn::AllTrue(d, none)) continue;
      if constexpr (sizeof(T) >= 4) {
        if (const int at = first_of_best<kMin>(x + i); at >= 0) {
          if (better<kMin>(x[i + at], value)) value = x[i + at], index = first + i + at;
          continue;
        }
      }
    }
    for (std::int64_t j = i; j < end; ++j) {
      if (better<kMin>(x[j], value)) {
        value = x[j];
        index = first + j;
      }
    }
  }
  *static_cast<T*>(best) = value;
  *best_index = index;
}

template <bool kMin, class T>
void arg_columns(const void* from, std::int64_t n, std::int64_t number, bool empty, void* to,
                 std::int64_t* best_index) {
  const T* HWY_RESTRICT x = static_cast<const T*>(from);
  T* HWY_RESTRICT best = static_cast<T*>(to);
  std::int64_t* HWY_RESTRICT index = best_index;
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const auto take_better = [&](std::int64_t j) {
    const bool take = empty | better<kMin>(x[j], best[j]);
    best[j] = take ? x[j] : best[j];
    index[j] = take ? number : index[j];
  };
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    if (!empty && hn::AllTrue(d, no_better<kMin>(hn::LoadU(d, x + j), hn::LoadU(d, best + j)))) continue;
    for (std::int64_t k = j; k < j + kLanes; ++k) take_better(k);
  }
  for (; j < n; ++j) take_better(j);
}

template <bool kMin, class T>
void arg_merge(const void* from, const std::int64_t* from_index, std::int64_t n, void* to,
               std::int64_t* best_index) {
  const T* x = static_cast<const T*>(from);
  T* best = static_cast<T*>(to);
  for (std::int64_t j = 0; j < n; ++j) {
    const bool tie = (x[j] == best[j]) | ((x[j] != x[j]) & (best[j] != best[j]));
    if (better<kMin>(x[j], best[j]) || (tie && from_index[j] < best_index[j])) {
      best[j] = x[j];
      best_index[j] = from_index[j];
    }
  }
}

template <bool kMin> ArgFns args_for(DType t) {
  switch (t) {
    case DType::kBool:
      return {arg_row<kMin, std::uint8_t>, arg_columns<kMin, std::uint8_t>, arg_merge<kMin, std::uint8_t>};
    case DType::kInt32:
      return {arg_row<kMin, std::int32_t>, arg_columns<kMin, std::int32_t>, arg_merge<kMin, std::int32_t>};
    case DType::kInt64:
      return {arg_row<kMin, std::int64_t>, arg_columns<kMin, std::int64_t>, arg_merge<kMin, std::int64_t>};
    case DType::kUInt64:
      return {arg_row<kMin, std::uint64_t>, arg_columns<kMin, std::uint64_t>, arg_merge<kMin, std::uint64_t>};
    case DType::kFloat32: return {arg_row<kMin, float>, arg_columns<kMin, float>, arg_merge<kMin, float>};
    case DType::kFloat64: return {arg_row<kMin, double>, arg_columns<kMin, double>, arg_merge<kMin, double>};
    default: break;
  }
  return {};
}

ArgFns args_of(bool smallest, DType t) { return smallest ? args_for<true>(t) : args_for<false>(t); }

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::reduce {
HWY_EXPORT(folds_of);
HWY_EXPORT(args_of);
FoldFns find_folds(ir::ReduceKind kind, ir::DType dtype) {
  if (ir::is_complex(dtype)) return complex_folds(kind, dtype);
  return HWY_DYNAMIC_DISPATCH(folds_of)(kind, dtype);
}
ArgFns find_args(bool smallest, ir::DType dtype) { return HWY_DYNAMIC_DISPATCH(args_of)(smallest, dtype); }
}  // namespace tilewise::kernels::reduce
#endif
