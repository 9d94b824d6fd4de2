#include "loop.h"

#include <cmath>

namespace tilewise::bench {

void fused_store(const double* __restrict a, const double* __restrict b, const double* __restrict c,
                 const double* __restrict d, double* __restrict out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) out[i] = (a[i] * b[i] + c[i]) * d[i] - std::sqrt(std::abs(a[i]));
}

void chain5(const double* __restrict a, const double* __restrict b, double* __restrict out,
            std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) out[i] = ((a[i] + b[i]) * a[i] - b[i]) * 0.5 + a[i];
}

void chain10(const double* __restrict a, const double* __restrict b, double* __restrict out,
             std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const double x = ((a[i] + b[i]) * a[i] - b[i]) * 0.5 + a[i];
    out[i] = ((x + b[i]) * x - b[i]) * 0.5 + x;
  }
}

void choice(const double* __restrict a, const double* __restrict b, double* __restrict out,
            std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const double yes = a[i] * 2 + 1, no = b[i] * 0.5;
    out[i] = a[i] > b[i] ? yes : no;
  }
}

std::uint64_t read_only(const double* x, std::int64_t begin, std::int64_t end) {
  constexpr int kLanes = 64;
  std::uint64_t lanes[kLanes] = {}, all = 0;
  const auto* words = reinterpret_cast<const std::uint64_t*>(x);
  for (std::int64_t i = begin; i + kLanes <= end; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] ^= words[i + l];
  for (const std::uint64_t lane : lanes) all ^= lane;
  return all;
}

double fused_sum(const double* __restrict a, const double* __restrict b, const double* __restrict c,
                 const double* __restrict d, std::int64_t begin, std::int64_t end) {
  constexpr int kLanes = 32;  // sums side by side, as -O3 alone may not reorder additions
  double lanes[kLanes] = {};
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const std::int64_t k = i + l;
      lanes[l] += (a[k] * b[k] + c[k]) * d[k] - std::sqrt(std::abs(a[k]));
    }
  }
  double total = 0;
  for (; i < end; ++i) total += (a[i] * b[i] + c[i]) * d[i] - std::sqrt(std::abs(a[i]));
  for (double lane : lanes) total += lane;
  return total;
}

}  // namespace tilewise::bench
