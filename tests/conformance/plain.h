// What several of these tests compare with, or ask of what they compare.
#pragma once
#include <tilewise/error.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tilewise {

// n small whole numbers, different for each seed.
inline std::vector<double> numbers(std::int64_t n, int seed) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>((i * 37 + seed) % 23) - 11);
  return out;
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
