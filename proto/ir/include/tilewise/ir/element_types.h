// C++ types of elements that the language lacks: float16 and bfloat16 as 16 bits with conversions (no arithmetic), and the
// complex types' dtypes.
#pragma once
#include <tilewise/ir/dtype.h>

#include <bit>
#include <complex>
#include <concepts>

namespace tilewise::ir {

// To float32 by rounding to odd: cut off, with the last bit set where something was lost. Rounding the result again, to a
// format that has at least two digits fewer and whose smallest number is at least four times as large, gives what rounding the
// value once would (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
// rounding to odd", IEEE Transactions on Computers 57, 2008).
template <std::floating_point T> constexpr float rounded_to_odd(T value) {
  const auto nearest = static_cast<float>(value);
  const T back = nearest;
  const bool outwards = value < 0 ? back < value : back > value;
  const std::uint32_t cut = std::bit_cast<std::uint32_t>(nearest) - static_cast<std::uint32_t>(outwards);
  return std::bit_cast<float>(cut | static_cast<std::uint32_t>(back != value));
}
template <std::integral T> constexpr float rounded_to_odd(T value) {
  if constexpr (sizeof(T) == 8) {  // to odd too, by which 53 bits are left of those that a double has not
    constexpr T kExact = T{1} << 53, kLost = (T{1} << 11) - 1;
    const bool fits = value <= kExact && (std::unsigned_integral<T> || value >= T{0} - kExact);
    if (!fits) value = (value & ~kLost) | static_cast<T>((value & kLost) != 0) << 11;
  }
  return rounded_to_odd(static_cast<double>(value));
}

// IEEE binary16. Rounds to nearest, ties to even; NaN stays NaN (quiet), what is too large becomes infinite.
constexpr std::uint16_t float16_bits(float value) {
  const std::uint32_t x = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = x >> 16 & 0x8000u, magnitude = x & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal; adding 0.5 leaves the digits that fit, rounded
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}
constexpr std::uint16_t float16_bits(double value) { return float16_bits(rounded_to_odd(value)); }
constexpr float float16_value(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float small = std::bit_cast<float>(0x3F000000u + magnitude) - 0.5f;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(small));
}

// The upper half of a float32, rounded to nearest, ties to even.
constexpr std::uint16_t bfloat16_bits(float value) {
  const std::uint32_t x = std::bit_cast<std::uint32_t>(value);
  if ((x & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(x >> 16 | 0x40u);
  return static_cast<std::uint16_t>((x + 0x7FFFu + (x >> 16 & 1u)) >> 16);
}
constexpr std::uint16_t bfloat16_bits(double value) { return bfloat16_bits(rounded_to_odd(value)); }
constexpr float bfloat16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Numbers other than float32, which are rounded once.
template <class T>
concept OtherNumber = std::is_arithmetic_v<T> && !std::same_as<T, float>;

struct Float16 {
  std::uint16_t bits = 0;
  constexpr Float16() = default;
  constexpr explicit Float16(float value) : bits(float16_bits(value)) {}
  template <OtherNumber T> constexpr explicit Float16(T value) : Float16(rounded_to_odd(value)) {}
  constexpr operator float() const { return float16_value(bits); }  // NOLINT: exact
};
struct BFloat16 {
  std::uint16_t bits = 0;
  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(bfloat16_bits(value)) {}
  template <OtherNumber T> constexpr explicit BFloat16(T value) : BFloat16(rounded_to_odd(value)) {}
  constexpr operator float() const { return bfloat16_value(bits); }  // NOLINT: exact
};

template <> struct dtype_of<Float16> { static constexpr DType value = DType::kFloat16; };
template <> struct dtype_of<BFloat16> { static constexpr DType value = DType::kBFloat16; };
template <> struct dtype_of<std::complex<float>> { static constexpr DType value = DType::kComplex64; };
template <> struct dtype_of<std::complex<double>> { static constexpr DType value = DType::kComplex128; };

}  // namespace tilewise::ir
