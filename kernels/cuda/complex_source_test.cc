// The functions of complex numbers that GPUs compute, compiled as C++ for the host: formulas, branch cuts and edges against the
// C library's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>

namespace tilewise::cuda {
namespace {

#define TW_DEVICE inline
#define TW_FUNCTION inline
template <class T> struct Cx {
  T re, im;
  Cx() = default;
  Cx(T r, T i) : re(r), im(i) {}
};
using c64 = Cx<float>;
using c128 = Cx<double>;
using std::asinh, std::atan2, std::copysign, std::cos, std::cosh, std::exp, std::expm1, std::fabs, std::hypot,
    std::log, std::log1p, std::rint, std::sin, std::sinh, std::sqrt, std::tan, std::tanh;
#include "device/complex.cuh"

using Z = std::complex<double>;

// The larger part's last places between them.
double distance(c128 got, Z want) {
  const double size = std::max(std::fabs(want.real()), std::fabs(want.imag()));
  const double off = std::max(std::fabs(got.re - want.real()), std::fabs(got.im - want.imag()));
  return off == 0 ? 0 : off / std::ldexp(1.0, std::max(std::ilogb(size), -1022) - 52);
}

// Infinities, NaN, zeros, and where what is computed on the way would overflow or vanish.
void check_specials(const std::string& name, c128 (*function)(c128), Z (*known)(Z), double limit) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double parts[] = {0.0,   -0.0,  1,    -1,    0.5,     -2,       infinity, -infinity, NAN,    -709.9,
                          710.9, 745.5, 1e10, 1e155, 1.7e308, -1.7e308, -3.3e38,  1e-160,    1e-310, 5e-324};
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (const double x : parts)
    for (const double y : parts) {
      const c128 got = function({x, y});
      const Z want = known({x, y});
      INFO(name, " of ", x, " ", y, ": ", got.re, " ", got.im, ", not ", want.real(), " ", want.imag());
      if (std::isnan(want.real()) || std::isnan(want.imag())) {  // most signs beside NaN are left open
        CHECK(same(std::fabs(got.re), std::fabs(want.real())));
        CHECK(same(std::fabs(got.im), std::fabs(want.imag())));
      } else if (std::isfinite(want.real()) && std::isfinite(want.imag())) {
        CHECK(distance(got, want) <= limit);
        if (want.real() == 0) CHECK(std::signbit(got.re) == std::signbit(want.real()));
        if (want.imag() == 0) CHECK(std::signbit(got.im) == std::signbit(want.imag()));
      } else {
        CHECK((same(got.re, want.real()) || std::fabs(got.re / want.real() - 1) < 1e-14));
        CHECK((same(got.im, want.imag()) || std::fabs(got.im / want.imag() - 1) < 1e-14));
      }
    }
}

void check(const std::string& name, c128 (*function)(c128), Z (*known)(Z), double limit) {
  std::uint64_t state = 12345;
  const auto draw = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
  };
  double most = 0;
  for (int i = 0; i < 20000; ++i) {
    const double scale = std::pow(10.0, i % 5 - 3);
    const Z z(draw() * scale, draw() * scale);
    most = std::max(most, distance(function({z.real(), z.imag()}), known(z)));
  }
  check_specials(name, function, known, limit);
  MESSAGE(name << ": " << most << " ulp");
  CHECK_MESSAGE(most <= limit, name);
  // Both sides of every cut, and the numbers on which they begin.
  for (const double x : {-2.0, -1.0, -0.5, 0.5, 1.0, 2.0})
    for (const double y : {0.0, -0.0, 1e-9, -1e-9}) {
      const Z want = known({x, y});
      if (!std::isfinite(want.real()) || !std::isfinite(want.imag())) continue;
      const c128 got = function({x, y});
      INFO(name, " of ", x, " ", y, ": ", got.re, " ", got.im, ", not ", want.real(), " ", want.imag());
      CHECK(std::fabs(got.re - want.real()) + std::fabs(got.im - want.imag()) < 1e-7);
    }
}

#define TW_CHECK_FUNCTION(name, limit) \
  check( \
      #name, tw_##name##_z, [](Z z) { return std::name(z); }, limit)

TEST_CASE("functions of complex numbers on a GPU, compiled for the host") {
  TW_CHECK_FUNCTION(exp, 4);
  TW_CHECK_FUNCTION(log, 4);
  TW_CHECK_FUNCTION(log10, 6);
  TW_CHECK_FUNCTION(sqrt, 4);
  TW_CHECK_FUNCTION(sin, 4);
  TW_CHECK_FUNCTION(cos, 4);
  TW_CHECK_FUNCTION(tan, 16);
  TW_CHECK_FUNCTION(sinh, 4);
  TW_CHECK_FUNCTION(cosh, 4);
  TW_CHECK_FUNCTION(tanh, 16);
  TW_CHECK_FUNCTION(asin, 16);
  TW_CHECK_FUNCTION(acos, 16);
  TW_CHECK_FUNCTION(atan, 16);
  TW_CHECK_FUNCTION(asinh, 16);
  TW_CHECK_FUNCTION(acosh, 16);
  TW_CHECK_FUNCTION(atanh, 16);
}

TEST_CASE("quotients and powers of complex numbers") {
  const auto same = [](c128 a, Z b) { return distance(a, b) < 8; };
  CHECK(same(tw_div(c128(1, 2), c128(3, -4)), Z(1, 2) / Z(3, -4)));
  CHECK(same(tw_div(c128(1, 2), c128(1e-3, 4)), Z(1, 2) / Z(1e-3, 4)));
  CHECK(std::isinf(tw_div(c128(1, -2), c128(0, 0)).re));
  CHECK(same(tw_pow_z(c128(1, 2), c128(3, -0.5)), std::pow(Z(1, 2), Z(3, -0.5))));
  CHECK(same(tw_pow_z(c128(0, 0), c128(0, 0)), Z(1, 0)));
  CHECK(tw_pow_z(c128(0, 0), c128(2.5, 0)).re == 0);
}

}  // namespace
}  // namespace tilewise::cuda
