// Absolute values of complex numbers over the whole range of exponents, with each instruction set, beside long double.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <random>

#include "conformance/targets.h"
#include "map/lanes.h"

using namespace tilewise;

namespace {

template <class T> std::vector<T> magnitudes(const std::vector<std::complex<T>>& z) {
  const ir::DType real = sizeof(T) == 4 ? ir::DType::kFloat32 : ir::DType::kFloat64;
  const ir::DType complex = sizeof(T) == 4 ? ir::DType::kComplex64 : ir::DType::kComplex128;
  kernels::map::LaneArgs args;
  std::vector<T> out(z.size());
  args.out = out.data();
  args.in[0] = z.data();
  args.n = static_cast<std::int64_t>(z.size());
  kernels::map::find_lane(ir::TapeOp::kAbs, real, complex)(args);
  return out;
}

// In units of the result's last place.
template <class T> long double furthest(const std::vector<std::complex<T>>& z, const std::vector<T>& got) {
  long double most = 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const long double want =
        std::hypot(static_cast<long double>(z[i].real()), static_cast<long double>(z[i].imag()));
    if (want > std::numeric_limits<T>::max()) {
      CHECK((std::isinf(got[i]) || got[i] == std::numeric_limits<T>::max()));
      continue;
    }
    const int exponent = std::max(want == 0 ? 0 : std::ilogb(want), std::numeric_limits<T>::min_exponent - 1);
    most = std::max(
        most, std::fabs(got[i] - want) / std::scalbn(1.0L, exponent - (std::numeric_limits<T>::digits - 1)));
  }
  return most;
}

template <class T> void check_range(long double bound) {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> part(1, 2);
  std::vector<std::complex<T>> z, rare;
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent; ++e)
    for (const int apart : {0, 0, 1, 2, 3, 10, 24, 26, 27, 28, 30, 53, 60, 500})
      for (int k = 0; k < 4; ++k) {
        const T a = std::scalbn(static_cast<T>(part(random)), e),
                b = std::scalbn(static_cast<T>(part(random)), e - apart);
        const std::complex<T> one = k % 2 == 0 ? std::complex<T>(a, -b) : std::complex<T>(-b, a);
        (std::hypot(a, b) < Limits::min() ? rare : z).push_back(one);
      }
  const long double normal = furthest(z, magnitudes(z)), subnormal = furthest(rare, magnitudes(rare));
  MESSAGE("" << static_cast<double>(normal) << " ulp, subnormal ones " << static_cast<double>(subnormal));
  CHECK(normal <= bound);
  CHECK(subnormal <= 1);
}

template <class T> void check_specials() {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> got =
      magnitudes<T>({{inf, nan}, {nan, -inf}, {-inf, 1}, {nan, 0}, {1, nan}, {-0.0, -0.0}, {3, -4}, {0, -5}});
  for (int i = 0; i < 3; ++i) CHECK(got[static_cast<std::size_t>(i)] == inf);
  CHECK((std::isnan(got[3]) && std::isnan(got[4])));
  CHECK((got[5] == 0 && !std::signbit(got[5])));
  CHECK((got[6] == 5 && got[7] == 5));
}

}  // namespace

TEST_CASE("absolute values of complex numbers are as exact as is stated") {
  for (const std::int64_t target : kernels::conformance::targets()) {
    const kernels::conformance::WithTarget chosen(target);
    INFO(hwy::TargetName(target));
    check_range<double>(0.501L);
    check_range<float>(0.501L);
    check_specials<double>();
    check_specials<float>();
  }
}
