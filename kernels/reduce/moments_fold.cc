// Once per Highway target. Plain loops: without contraction or reassociation their bits are the same in all.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/moments_fold.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "reduce/fold.h"
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

// Sixteen lanes stay in registers.
template <class T>
HWY_INLINE void spread_of_16(T* first, T* second, const T* x, const T* mean, std::int64_t rows) {
  const hn::CappedTag<T, kFold> d;
  constexpr int kLanes = static_cast<int>(HWY_LANES(T) < kFold ? HWY_LANES(T) : kFold);
  constexpr int kVectors = kFold / kLanes;
  using V = decltype(hn::Zero(d));
  V a[kVectors], b[kVectors], m[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    a[v] = hn::LoadU(d, first + v * kLanes);
    b[v] = hn::LoadU(d, second + v * kLanes);
    m[v] = hn::LoadU(d, mean + v * kLanes);
  }
  for (std::int64_t r = 0; r < rows; ++r, x += kFold) {
    for (int v = 0; v < kVectors; ++v) {
      const V off = hn::Sub(hn::LoadU(d, x + v * kLanes), m[v]);
      a[v] = hn::Add(a[v], off);
      b[v] = hn::Add(b[v], hn::Mul(off, off));
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(a[v], d, first + v * kLanes);
    hn::StoreU(b[v], d, second + v * kLanes);
  }
}

template <class T>
void spread(void* to_first, void* to_second, const void* from, const void* around, std::int64_t width,
            std::int64_t rows, std::int64_t pitch) {
  T* HWY_RESTRICT first = static_cast<T*>(to_first);
  T* HWY_RESTRICT second = static_cast<T*>(to_second);
  const T* HWY_RESTRICT x = static_cast<const T*>(from);
  const T* HWY_RESTRICT mean = static_cast<const T*>(around);
  if (width == kFold && pitch == kFold) return spread_of_16(first, second, x, mean, rows);
  for (std::int64_t r = 0; r < rows; ++r, x += pitch) {
    for (std::int64_t j = 0; j < width; ++j) {
      const T d = x[j] - mean[j];
      first[j] = first[j] + d;
      second[j] = second[j] + d * d;
    }
  }
}

template <class T>
void units(void* to_first, void* to_second, const void* from, const void* around, std::int64_t units,
           std::int64_t length, std::int64_t n) {
  T* HWY_RESTRICT first = static_cast<T*>(to_first);
  T* HWY_RESTRICT second = static_cast<T*>(to_second);
  const T* HWY_RESTRICT x = static_cast<const T*>(from);
  const T* HWY_RESTRICT mean = static_cast<const T*>(around);
  for (std::int64_t u = 0; u < units; ++u, first += n, second += n, mean += n, x += length * n) {
    for (std::int64_t j = 0; j < n; ++j) {
      T a = 0, b = 0;
      for (std::int64_t r = 0; r < length; ++r) {
        const T d = x[r * n + j] - mean[j];
        a = a + d;
        b = b + d * d;
      }
      first[j] = a;
      second[j] = b;
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

template <class T> MomentFns fns() { return {means<T>, spread<T>, units<T>, settle<T>, join<T>}; }

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
