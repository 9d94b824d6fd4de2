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
#include <type_traits>

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

// The nearest number of kDigits digits, ties to even; below 2^kLowest the nearest multiple of the smallest such number;
// infinity from the first power of two that the format has not.
template <int kDigits, int kLowest> HWY_INLINE double round_digits(double value) {
  constexpr int kDropped = 53 - kDigits;
  constexpr auto bits_of_power = [](int exponent) {
    return static_cast<std::int64_t>(exponent + 1023) << 52;
  };
  constexpr std::int64_t kDroppedBits = (std::int64_t{1} << kDropped) - 1, kInfinity = bits_of_power(1024),
                         kOver = bits_of_power(2 - kLowest);
  // Adding it leaves of a smaller number the digits that a subnormal one keeps, rounded.
  constexpr double kAlign = std::bit_cast<double>(bits_of_power(52 + kLowest - (kDigits - 1)));
  const std::uint64_t x = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = x & 0x8000000000000000u, magnitude = x & 0x7FFFFFFFFFFFFFFFu;
  const std::uint64_t up =
      magnitude + static_cast<std::uint64_t>(kDroppedBits >> 1) + (magnitude >> kDropped & 1u);
  const auto normal = static_cast<std::int64_t>(up & ~static_cast<std::uint64_t>(kDroppedBits));
  const auto subnormal = std::bit_cast<std::int64_t>((std::bit_cast<double>(magnitude) + kAlign) - kAlign);
  const auto from = static_cast<std::int64_t>(magnitude);  // signed: of these processors have comparisons
  const std::int64_t number = from < bits_of_power(kLowest) ? subnormal : normal;
  const std::int64_t finite = number >= kOver ? kInfinity : number;
  const std::int64_t nan = (from & ~kDroppedBits) | std::int64_t{1} << 51;
  return std::bit_cast<double>(static_cast<std::uint64_t>(from > kInfinity ? nan : finite) | sign);
}
HWY_INLINE float round_f16(double value) { return static_cast<float>(round_digits<11, -14>(value)); }
HWY_INLINE float round_bf16(double value) { return static_cast<float>(round_digits<8, -126>(value)); }

// As a double from which rounding to 16 bits gives what rounding the number itself would: the number, or rounded to odd where
// doubles have not all digits (rounded_to_odd in element_types.h).
template <class T> HWY_INLINE double exact_or_odd(T a) {
  if constexpr (sizeof(T) == 8 && !std::is_floating_point_v<T>) {
    constexpr T kExact = T{1} << 53, kLost = (T{1} << 11) - 1;
    const T odd = static_cast<T>((a & ~kLost) | static_cast<T>((a & kLost) != 0) << 11);
    const bool fits = (a <= kExact) & (std::is_unsigned_v<T> || a >= T{0} - kExact);
    return static_cast<double>(fits ? a : odd);
  } else {
    return static_cast<double>(a);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();
#endif
