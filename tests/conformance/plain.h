// What several of these tests compare with, or ask of what they compare.
#pragma once
#include <doctest/doctest.h>
#include <tilewise/error.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tilewise {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// n small whole numbers, different for each seed.
inline std::vector<double> numbers(std::int64_t n, int seed) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>((i * 37 + seed) % 23) - 11);
  return out;
}

// Each within `tolerance` of what is wanted, in proportion to that where it is above 1. NaN and infinities are themselves.
inline void check_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    if (std::isnan(want[i]))
      CHECK(std::isnan(got[i]));
    else if (std::isinf(want[i]))
      CHECK(got[i] == want[i]);
    else
      CHECK(std::abs(got[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i])));
  }
}

// The error that an expression ends with once it is computed, and its text.
inline Errc code_of(const std::function<void()>& fn, std::string* what = nullptr) {
  try {
    fn();
  } catch (const ArrayError& e) {
    if (what != nullptr) *what = e.what();
    return e.code();
  }
  return Errc::kOk;
}

}  // namespace tilewise
