// What rounding to a 16-bit float must give, by its definition and by nothing that computes it: around each number that lies half
// way between two neighbours, and at each of them.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tilewise::testing {

template <class T> struct HalfCase {
  T value;
  std::uint16_t bits;
};

struct HalfFormat {
  int digits, lowest;  // of the fraction; the exponent of the smallest normal number
  std::uint16_t infinity;

  // A number of the format; in infinity's place the power of two that would come next.
  double value(std::uint16_t bits) const {
    const int exponent = bits >> digits, fraction = bits & ((1 << digits) - 1);
    const int whole = exponent == 0 ? fraction : fraction + (1 << digits);
    return std::ldexp(whole, lowest - digits + (exponent == 0 ? 0 : exponent - 1));
  }
};
constexpr HalfFormat kFloat16Format{10, -14, 0x7C00}, kBFloat16Format{7, -126, 0x7F80};

inline std::vector<HalfCase<double>> half_cases(const HalfFormat& format) {
  std::vector<HalfCase<double>> out;
  const auto add = [&](double value, unsigned bits) {
    out.push_back({value, static_cast<std::uint16_t>(bits)});
    out.push_back({-value, static_cast<std::uint16_t>(bits | 0x8000u)});
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (unsigned bits = 0; bits < format.infinity; ++bits) {
    const double low = format.value(static_cast<std::uint16_t>(bits));
    const double high = format.value(static_cast<std::uint16_t>(bits + 1)), middle = low + (high - low) / 2;
    if (low != 0) add(std::nextafter(low, 0), bits);
    add(low, bits);
    add(std::nextafter(low, kInfinity), bits);
    add(std::nextafter(middle, 0), bits);
    add(middle, bits + (bits & 1u));
    add(std::nextafter(middle, kInfinity), bits + 1);
  }
  for (const double beyond : {0x1p128, 0x1p200, std::numeric_limits<double>::max(), kInfinity})
    add(beyond, format.infinity);
  return out;
}

// Of integers, where a number half way is one.
template <class T> std::vector<HalfCase<T>> half_integer_cases(const HalfFormat& format) {
  std::vector<HalfCase<T>> out;
  const auto add = [&](T value, unsigned bits) {
    out.push_back({value, static_cast<std::uint16_t>(bits)});
    if constexpr (std::numeric_limits<T>::is_signed)
      out.push_back({static_cast<T>(-value), static_cast<std::uint16_t>(bits | 0x8000u)});
  };
  for (unsigned bits = 0; bits < format.infinity; ++bits) {
    const double low = format.value(static_cast<std::uint16_t>(bits));
    const double high = format.value(static_cast<std::uint16_t>(bits + 1)), middle = low + (high - low) / 2;
    if (middle != std::floor(middle) || middle >= std::ldexp(1, std::numeric_limits<T>::digits)) continue;
    const auto whole = static_cast<T>(middle);
    add(static_cast<T>(whole - 1), bits);
    add(whole, bits + (bits & 1u));
    add(static_cast<T>(whole + 1), bits + 1);
  }
  return out;
}

}  // namespace tilewise::testing
