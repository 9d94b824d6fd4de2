// The absolute value of complex numbers without branches and without fused multiply-adds, so that loops over it become vector
// code and have the same bits with each instruction set. Included once per Highway target.
#if defined(TILEWISE_MAGNITUDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEWISE_MAGNITUDE_INL_H_
#undef TILEWISE_MAGNITUDE_INL_H_
#else
#define TILEWISE_MAGNITUDE_INL_H_
#endif
#include <hwy/highway.h>

#include <bit>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

// Squares of float32 are exact in float64 and neither overflow nor vanish there.
HWY_INLINE float magnitude(float re, float im) {
  const double x = re, y = im;
  const auto size = static_cast<float>(__builtin_sqrt(x * x + y * y));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool infinite = (__builtin_fabsf(re) == kInfinity) | (__builtin_fabsf(im) == kInfinity);
  return infinite ? kInfinity : size;  // with NaN as the other part too
}

struct Exact {
  double sum, rest;
};  // two doubles that add up to a result
HWY_INLINE Exact
square(double a) {  // T. J. Dekker, "A floating-point technique for extending the available precision", 1971
  const double turned = a * 0x1.0000002p27, high = turned - (turned - a), low = a - high, sum = a * a;
  return {sum, low * low - ((sum - high * high) - 2 * high * low)};
}

// Both parts are scaled so that the larger lies between 1 and 4; the root of the sum of their squares is then corrected by what
// rounding left of squares, sum and root (one step of Newton's): less than 0.501 ulp, but among subnormal numbers 1.
HWY_INLINE double magnitude(double re, double im) {
  const double x = __builtin_fabs(re), y = __builtin_fabs(im);
  const double large = x > y ? x : y, small = x > y ? y : x;
  constexpr std::int64_t kExponent = 0x7FF0000000000000, kOne = std::int64_t{1} << 52;
  const std::int64_t found = std::bit_cast<std::int64_t>(large) & kExponent;
  const std::int64_t above = found < kOne ? kOne : found;  // what has a power of two for an inverse
  const std::int64_t exponent = above > 2045 * kOne ? 2045 * kOne : above;
  const double down = std::bit_cast<double>(2046 * kOne - exponent), up = std::bit_cast<double>(exponent);
  const Exact a = square(large * down), b = square(small * down);
  const double sum = a.sum + b.sum, rest = ((a.sum - sum) + b.sum) + (a.rest + b.rest);
  const double root = __builtin_sqrt(sum);
  const Exact back = square(root);
  const double corrected = root + (((sum - back.sum) - back.rest) + rest) / (2 * root);
  const double size = large == 0 ? small : corrected * up;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return (x == kInfinity) | (y == kInfinity) ? kInfinity : (x != x) | (y != y) ? x + y : size;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();
#endif
