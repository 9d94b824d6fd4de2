// Once per Highway target. Without contraction or reassociation the bits are the same in all.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/moments_fold.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "reduce/fold.h"
#include "reduce/lines-inl.h"
#include "reduce/moments_fold.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::reduce {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;

template <class T> void means(void* to, const void* from, double count, std::int64_t width) {
  T* HWY_RESTRICT mean = static_cast<T*>(to);
  const T* HWY_RESTRICT sum = static_cast<const T*>(from);
  for (std::int64_t j = 0; j < width; ++j) mean[j] = static_cast<T>(static_cast<double>(sum[j]) / count);
}

// Some vectors of columns stay in registers for all rows.
template <int kVectors, class D, class T>
HWY_INLINE void columns(D d, T* first, T* second, const T* x, const T* mean, std::int64_t rows,
                        std::int64_t pitch) {
  using V = decltype(hn::Zero(d));
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V a[kVectors], b[kVectors], m[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    a[v] = hn::LoadU(d, first + v * lanes);
    b[v] = hn::LoadU(d, second + v * lanes);
    m[v] = hn::LoadU(d, mean + v * lanes);
  }
  for (std::int64_t r = 0; r < rows; ++r, x += pitch) {
    for (int v = 0; v < kVectors; ++v) {
      const V off = hn::Sub(hn::LoadU(d, x + v * lanes), m[v]);
      a[v] = hn::Add(a[v], off);
      b[v] = hn::Add(b[v], hn::Mul(off, off));
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(a[v], d, first + v * lanes);
    hn::StoreU(b[v], d, second + v * lanes);
  }
}

template <class T>
void spread(void* to_first, void* to_second, const void* from, const void* around, std::int64_t width,
            std::int64_t rows, std::int64_t pitch) {
  T* HWY_RESTRICT first = static_cast<T*>(to_first);
  T* HWY_RESTRICT second = static_cast<T*>(to_second);
  const T* HWY_RESTRICT x = static_cast<const T*>(from);
  const T* HWY_RESTRICT mean = static_cast<const T*>(around);
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + 4 * lanes <= width; j += 4 * lanes)
    columns<4>(d, first + j, second + j, x + j, mean + j, rows, pitch);
  for (; j + lanes <= width; j += lanes) columns<1>(d, first + j, second + j, x + j, mean + j, rows, pitch);
  for (; j < width; ++j) {
    T a = first[j], b = second[j];
    for (std::int64_t r = 0; r < rows; ++r) {
      const T off = x[r * pitch + j] - mean[j];
      a = a + off;
      b = b + off * off;
    }
    first[j] = a;
    second[j] = b;
  }
}

template <class T>
void units(void* to_first, void* to_second, const void* from, const void* around, std::int64_t units,
           std::int64_t length, std::int64_t n) {
  T* HWY_RESTRICT first = static_cast<T*>(to_first);
  T* HWY_RESTRICT second = static_cast<T*>(to_second);
  const T* HWY_RESTRICT x = static_cast<const T*>(from);
  const T* HWY_RESTRICT mean = static_cast<const T*>(around);
  constexpr std::int64_t kTogether = 8;  // units whose additions do not wait for each other
  std::int64_t u = 0;
  for (; n == 1 && u + kTogether <= units; u += kTogether) {
    T a[kTogether] = {}, b[kTogether] = {};
    for (std::int64_t r = 0; r < length; ++r)
      for (std::int64_t k = 0; k < kTogether; ++k) {
        const T d = x[(u + k) * length + r] - mean[u + k];
        a[k] = a[k] + d;
        b[k] = b[k] + d * d;
      }
    for (std::int64_t k = 0; k < kTogether; ++k) first[u + k] = a[k], second[u + k] = b[k];
  }
  for (; u < units; ++u) {
    for (std::int64_t j = 0; j < n; ++j) {
      T a = 0, b = 0;
      for (std::int64_t r = 0; r < length; ++r) {
        const T d = x[(u * length + r) * n + j] - mean[u * n + j];
        a = a + d;
        b = b + d * d;
      }
      first[u * n + j] = a;
      second[u * n + j] = b;
    }
  }
}

template <class T>
void settle(const MomentRow& out, double count, const void* around, const void* of_first,
            const void* of_second, std::int64_t width) {
  const T* HWY_RESTRICT sum = static_cast<const T*>(out.sum);
  const T* HWY_RESTRICT mean = static_cast<const T*>(around);
  const T* HWY_RESTRICT first = static_cast<const T*>(of_first);
  const T* HWY_RESTRICT second = static_cast<const T*>(of_second);
  double *HWY_RESTRICT n = out.count, *HWY_RESTRICT shift = out.shift, *HWY_RESTRICT squares = out.squares;
  for (std::int64_t j = 0; j < width; ++j) {
    const double off = static_cast<double>(first[j]);
    const double left = static_cast<double>(second[j]) - off * (off / count);
    n[j] = count;
    shift[j] = (static_cast<double>(mean[j]) - static_cast<double>(sum[j]) / count) + off / count;
    squares[j] = left < 0 ? 0 : left;  // NaN stays
  }
}

// Each line is read twice, the second time from the cache; meanwhile the next ones are asked for.
template <class T, int kLines>
HWY_INLINE void moments_of_lines(const MomentRow& out, const T* x, std::int64_t length) {
  const hn::CappedTag<T, kFold> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d)), kVectors = kFold / kLanes;
  constexpr int kCacheLine = 64 / static_cast<int>(sizeof(T));
  using V = decltype(hn::Zero(d));
  T* const sum = static_cast<T*>(out.sum);
  fold_lines<Sum, T, kLines>(sum, x, length);
  T mean[kLines], first[kLines], second[kLines];
  means<T>(mean, sum, static_cast<double>(length), kLines);
  V a[kLines][kVectors], b[kLines][kVectors], m[kLines];
  for (int k = 0; k < kLines; ++k) {
    m[k] = hn::Set(d, mean[k]);
    for (int v = 0; v < kVectors; ++v) a[k][v] = b[k][v] = hn::Set(d, T(-0.0));
  }
  const std::int64_t whole = length / kFold, rest = length % kFold;
  for (std::int64_t r = 0; r < whole; ++r)
    for (int k = 0; k < kLines; ++k) {
      const T* const at = x + k * length + r * kFold;
      for (int c = 0; c < kFold; c += kCacheLine) __builtin_prefetch(at + kLines * length + c, 0, 2);
      for (int v = 0; v < kVectors; ++v) {
        const V off = hn::Sub(hn::LoadU(d, at + v * kLanes), m[k]);
        a[k][v] = hn::Add(a[k][v], off);
        b[k][v] = hn::Add(b[k][v], hn::Mul(off, off));
      }
    }
  for (int k = 0; k < kLines; ++k) {
    if (rest > 0) {
      T lanes_a[kFold], lanes_b[kFold];
      for (int v = 0; v < kVectors; ++v)
        hn::StoreU(a[k][v], d, lanes_a + v * kLanes), hn::StoreU(b[k][v], d, lanes_b + v * kLanes);
      for (std::int64_t j = 0; j < rest; ++j) {
        const T off = x[k * length + whole * kFold + j] - mean[k];
        lanes_a[j] = lanes_a[j] + off;
        lanes_b[j] = lanes_b[j] + off * off;
      }
      for (int v = 0; v < kVectors; ++v)
        a[k][v] = hn::LoadU(d, lanes_a + v * kLanes), b[k][v] = hn::LoadU(d, lanes_b + v * kLanes);
    }
    first[k] = fold_lanes<Sum>(d, a[k]);
    second[k] = fold_lanes<Sum>(d, b[k]);
  }
  settle<T>(out, static_cast<double>(length), mean, first, second, kLines);
}

template <class T>
void lines(const MomentRow& out, const void* from, std::int64_t count, std::int64_t length) {
  constexpr int kVectors = kFold / static_cast<int>(hn::MaxLanes(hn::CappedTag<T, kFold>()));
  constexpr int kAtOnce = kVectors <= 2 ? 2 : 1;
  const T* x = static_cast<const T*>(from);
  const std::int64_t size = sizeof(T);
  std::int64_t k = 0;
  for (; k + kAtOnce <= count; k += kAtOnce)
    moments_of_lines<T, kAtOnce>(out.at(k, size), x + k * length, length);
  for (; k < count; ++k) moments_of_lines<T, 1>(out.at(k, size), x + k * length, length);
}

template <class T> void join(const MomentRow& to, const MomentRow& from, std::int64_t width) {
  double *HWY_RESTRICT na = to.count, *HWY_RESTRICT ta = to.shift, *HWY_RESTRICT qa = to.squares;
  T* HWY_RESTRICT sa = static_cast<T*>(to.sum);
  const double *HWY_RESTRICT nb = from.count, *HWY_RESTRICT tb = from.shift, *HWY_RESTRICT qb = from.squares;
  const T* HWY_RESTRICT sb = static_cast<const T*>(from.sum);
  for (std::int64_t j = 0; j < width; ++j) {
    const double n = na[j] + nb[j];
    const T sum = sa[j] + sb[j];
    const double mean_a = static_cast<double>(sa[j]) / na[j], mean_b = static_cast<double>(sb[j]) / nb[j];
    const double off = (mean_b - mean_a) + (tb[j] - ta[j]), part = nb[j] / n;
    const double shift = (mean_a - static_cast<double>(sum) / n) + (ta[j] + off * part);
    const double squares = (qa[j] + qb[j]) + (off * off) * (na[j] * part);
    const bool a = nb[j] == 0, b = na[j] == 0;  // one alone
    ta[j] = a ? ta[j] : b ? tb[j] : shift;
    qa[j] = a ? qa[j] : b ? qb[j] : squares;
    sa[j] = a ? sa[j] : b ? sb[j] : sum;
    na[j] = n;
  }
}

template <class T> MomentFns fns() { return {means<T>, spread<T>, units<T>, settle<T>, lines<T>, join<T>}; }

MomentFns moments_of(DType t) {
  return t == DType::kFloat32 ? fns<float>() : t == DType::kFloat64 ? fns<double>() : MomentFns{};
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::reduce {
HWY_EXPORT(moments_of);
MomentFns find_moments(ir::DType dtype) { return HWY_DYNAMIC_DISPATCH(moments_of)(dtype); }
}  // namespace tilewise::kernels::reduce
#endif
