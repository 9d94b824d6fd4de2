// Between the dtypes that arrays have and those that kernels compute in, once per Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_narrow.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "map/half-inl.h"
#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;

struct Convert {
  template <class O, class T> static HWY_INLINE O apply(T a) { return static_cast<O>(a); }
};
template <class Narrow> struct Wrap {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    return static_cast<O>(static_cast<Narrow>(a));
  }
};
struct WidenF16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return widen_f16(a); }
};
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3  // both have instructions for it, with the same bits
template <class Store> HWY_INLINE void convert_f16(const float* a, const Store& store) {
  const hn::CappedTag<float, kLaneBlock> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  for (std::size_t j = 0; j < kLaneBlock; j += hn::Lanes(d))
    store(j, hn::DemoteTo(half, hn::LoadU(d, a + j)));
}
struct NarrowF16 {
  static HWY_INLINE void block(std::uint16_t* out, const float* a) {
    const hn::Rebind<hwy::float16_t, hn::CappedTag<float, kLaneBlock>> half;
    convert_f16(a, [&](std::size_t j, auto v)
                       HWY_ATTR { hn::StoreU(v, half, reinterpret_cast<hwy::float16_t*>(out + j)); });
  }
};
struct FitF16 {
  static HWY_INLINE void block(float* out, const float* a) {
    const hn::CappedTag<float, kLaneBlock> d;
    convert_f16(a, [&](std::size_t j, auto v) HWY_ATTR { hn::StoreU(hn::PromoteTo(d, v), d, out + j); });
  }
};
#else
struct NarrowF16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return narrow_f16(a); }
};
struct FitF16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return widen_f16(narrow_f16(a)); }
};
#endif
struct WidenBf16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return widen_bf16(a); }
};
struct NarrowBf16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return narrow_bf16(a); }
};
struct FitBf16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return widen_bf16(narrow_bf16(a)); }
};
struct Truth {
  template <class O, class T> static HWY_INLINE O apply(T a) { return static_cast<O>(a != 0); }
};
struct TruthHalf {  // of two zeros
  template <class O, class T> static HWY_INLINE O apply(T a) { return static_cast<O>((a & 0x7FFF) != 0); }
};
struct RoundF16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return round_f16(exact_or_odd(a)); }
};
struct RoundBf16 {
  template <class O, class T> static HWY_INLINE O apply(T a) { return round_bf16(exact_or_odd(a)); }
};
// One step of the 16-bit representation.
template <bool kBrain> struct NextafterHalf {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) {
    const std::uint32_t bits = kBrain ? narrow_bf16(a) : narrow_f16(a);
    const std::uint32_t sign = (kBrain ? narrow_bf16(b) : narrow_f16(b)) & 0x8000u;
    const std::uint32_t step = (a < b) == (a > 0) ? bits + 1 : bits - 1;
    const auto to = static_cast<std::uint16_t>(a == 0 ? (sign | 1u) : step);
    const float moved = kBrain ? widen_bf16(to) : widen_f16(to);
    const float number = a == b ? b : moved;
    return (a != a) | (b != b) ? a + b : number;
  }
};

LaneFn widen_lane(DType from) {
  switch (from) {
    case DType::kInt8: return unary_lane<Convert, std::int32_t, std::int8_t>;
    case DType::kInt16: return unary_lane<Convert, std::int32_t, std::int16_t>;
    case DType::kUInt8: return unary_lane<Convert, std::int32_t, std::uint8_t>;
    case DType::kUInt16: return unary_lane<Convert, std::int32_t, std::uint16_t>;
    case DType::kUInt32: return unary_lane<Convert, std::int64_t, std::uint32_t>;
    case DType::kFloat16: return unary_lane<WidenF16, float, std::uint16_t>;
    case DType::kBFloat16: return unary_lane<WidenBf16, float, std::uint16_t>;
    default: return nullptr;
  }
}
LaneFn narrow_lane(DType to) {  // integers: the low bits, whatever the sign
  switch (to) {
    case DType::kInt8:
    case DType::kUInt8: return unary_lane<Convert, std::uint8_t, std::int32_t>;
    case DType::kInt16:
    case DType::kUInt16: return unary_lane<Convert, std::uint16_t, std::int32_t>;
    case DType::kUInt32: return unary_lane<Convert, std::uint32_t, std::int64_t>;
    case DType::kFloat16: return unary_lane<NarrowF16, std::uint16_t, float>;
    case DType::kBFloat16: return unary_lane<NarrowBf16, std::uint16_t, float>;
    default: return nullptr;
  }
}
LaneFn fit_lane(DType to) {
  switch (to) {
    case DType::kInt8: return unary_lane<Wrap<std::int8_t>, std::int32_t, std::int32_t>;
    case DType::kInt16: return unary_lane<Wrap<std::int16_t>, std::int32_t, std::int32_t>;
    case DType::kUInt8: return unary_lane<Wrap<std::uint8_t>, std::int32_t, std::int32_t>;
    case DType::kUInt16: return unary_lane<Wrap<std::uint16_t>, std::int32_t, std::int32_t>;
    case DType::kUInt32: return unary_lane<Wrap<std::uint32_t>, std::int64_t, std::int64_t>;
    case DType::kFloat16: return unary_lane<FitF16, float, float>;
    case DType::kBFloat16: return unary_lane<FitBf16, float, float>;
    default: return nullptr;
  }
}
LaneFn truth_lane(DType from) {
  switch (from) {
    case DType::kInt8:
    case DType::kUInt8: return unary_lane<Truth, std::uint8_t, std::uint8_t>;
    case DType::kInt16:
    case DType::kUInt16: return unary_lane<Truth, std::uint8_t, std::uint16_t>;
    case DType::kUInt32: return unary_lane<Truth, std::uint8_t, std::uint32_t>;
    case DType::kFloat16:
    case DType::kBFloat16: return unary_lane<TruthHalf, std::uint8_t, std::uint16_t>;
    default: return nullptr;
  }
}
template <class Round> LaneFn round_from(DType from) {
  switch (from) {
    case DType::kInt32: return unary_lane<Round, float, std::int32_t>;
    case DType::kInt64: return unary_lane<Round, float, std::int64_t>;
    case DType::kUInt64: return unary_lane<Round, float, std::uint64_t>;
    case DType::kFloat64: return unary_lane<Round, float, double>;
    default: return nullptr;
  }
}
LaneFn round_lane(DType to, DType from) {
  if (to == DType::kFloat16) return round_from<RoundF16>(from);
  return to == DType::kBFloat16 ? round_from<RoundBf16>(from) : nullptr;
}
LaneFn nextafter_lane(DType t) {
  if (t == DType::kFloat16) return binary_lane<NextafterHalf<false>, float, float>;
  return t == DType::kBFloat16 ? binary_lane<NextafterHalf<true>, float, float> : nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(widen_lane);
HWY_EXPORT(narrow_lane);
HWY_EXPORT(fit_lane);
HWY_EXPORT(truth_lane);
HWY_EXPORT(round_lane);
HWY_EXPORT(nextafter_lane);
LaneFn find_widen(ir::DType from) { return HWY_DYNAMIC_DISPATCH(widen_lane)(from); }
LaneFn find_narrow(ir::DType to) { return HWY_DYNAMIC_DISPATCH(narrow_lane)(to); }
LaneFn find_fit(ir::DType to) { return HWY_DYNAMIC_DISPATCH(fit_lane)(to); }
LaneFn find_truth(ir::DType from) { return HWY_DYNAMIC_DISPATCH(truth_lane)(from); }
LaneFn find_round(ir::DType to, ir::DType from) { return HWY_DYNAMIC_DISPATCH(round_lane)(to, from); }
LaneFn find_nextafter(ir::DType t) { return HWY_DYNAMIC_DISPATCH(nextafter_lane)(t); }
}  // namespace tilewise::kernels::map
#endif
