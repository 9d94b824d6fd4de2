#include "loop.h"

#include <cmath>

namespace tilewise::bench {

void fused_store(const double* __restrict a, const double* __restrict b, const double* __restrict c,
                 const double* __restrict d, double* __restrict out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) out[i] = (a[i] * b[i] + c[i]) * d[i] - std::sqrt(std::abs(a[i]));
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
