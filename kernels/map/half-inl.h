// 16-bit floats and float32, without branches, so that loops over them become vector code (element_types.h has the same
// functions for single values). Included once per Highway target.
#if defined(TILEWISE_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEWISE_HALF_INL_H_
#undef TILEWISE_HALF_INL_H_
#else
#define TILEWISE_HALF_INL_H_
#endif
#include <hwy/highway.h>

#include <bit>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

// A half's digits read as a float32's are 2^112 too small, subnormal ones included.
HWY_INLINE float widen_f16(std::uint16_t bits) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7FFF) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t number = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const std::uint32_t special = magnitude | 0x7F800000u;
  return std::bit_cast<float>((magnitude >= 0x0F800000u ? special : number) | sign);
}
HWY_INLINE std::uint16_t narrow_f16(float value) {
  const std::uint32_t x = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = x >> 16 & 0x8000u, magnitude = x & 0x7FFFFFFFu;
  const std::uint32_t normal = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  // Adding 0.5 leaves the digits that a subnormal half keeps, rounded.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  const std::uint32_t number = magnitude < 0x38800000u ? subnormal : normal;
  const std::uint32_t finite = magnitude >= 0x477FF000u ? 0x7C00u : number;
  const std::uint32_t nan = 0x7E00u | (magnitude >> 13 & 0x3FFu);
  return static_cast<std::uint16_t>((magnitude > 0x7F800000u ? nan : finite) | sign);
}
HWY_INLINE float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
HWY_INLINE std::uint16_t narrow_bf16(float value) {
  const std::uint32_t x = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nan = x >> 16 | 0x40u, number = (x + 0x7FFFu + (x >> 16 & 1u)) >> 16;
  return static_cast<std::uint16_t>((x & 0x7FFFFFFFu) > 0x7F800000u ? nan : number);
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();
#endif
