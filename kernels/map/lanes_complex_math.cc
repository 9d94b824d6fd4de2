// Functions of complex numbers, by the C library: complex64 in complex128, rounded once. One loop for each function and
// precision; nothing here depends on the instruction set.
#include <cmath>
#include <complex>
#include <limits>

#include "map/lanes_targets.h"

namespace tilewise::kernels::map {
namespace {

using ir::DType;
using ir::TapeOp;
using Z = std::complex<double>;
using L = std::complex<long double>;

Z expm1(Z z) {  // without the cancellation of exp(z) - 1
  if (z.imag() == 0) return {std::expm1(z.real()), z.imag()};
  if (!std::isfinite(z.imag()) ||
      std::fabs(z.real()) > 40) {  // infinities; no cancellation, and no early overflow
    const Z e = std::exp(z);
    return {e.real() - 1, e.imag()};
  }
  const double half = std::sin(z.imag() / 2);
  // Turned round so that what underflows is a negative zero.
  const double re = -(2 * half * half - std::expm1(z.real()) * std::cos(z.imag()));
  return {re, std::exp(z.real()) * std::sin(z.imag())};
}
Z log1p(Z z) {  // |1 + z|^2 - 1 = x (2 + x) + y^2
  const long double x = z.real(), y = z.imag();
  if (y == 0 && x > -1) return {std::log1p(z.real()), z.imag()};
  if (!(std::fabs(x) < 0.5L) || !(std::fabs(y) < 0.5L)) return Z(std::log(L(1 + x, y)));
  return {static_cast<double>(std::log1p(x * (2 + x) + y * y) / 2),
          static_cast<double>(std::atan2(y, 1 + x))};
}
Z scaled_log(Z z, long double factor) {
  const L l = std::log(L(z.real(), z.imag()));
  return {static_cast<double>(l.real() * factor), static_cast<double>(l.imag() * factor)};
}
Z log2(Z z) { return scaled_log(z, 1.442695040888963407359924681001892137L); }
Z log10(Z z) { return scaled_log(z, 0.434294481903251827651128918916605082L); }
Z sign(Z z) {  // z / |z|
  if (z.real() == 0 && z.imag() == 0) return {0, 0};
  const long double size = std::hypot(static_cast<long double>(z.real()), static_cast<long double>(z.imag()));
  return {static_cast<double>(z.real() / size), static_cast<double>(z.imag() / size)};
}
Z power(Z a, Z b) {
  if (b.imag() == 0 && b.real() == 0) return {1, 0};
  if (b.imag() == 0 && b.real() == 1) return a;
  if (b.imag() == 0 && b.real() == 2)
    return {a.real() * a.real() - a.imag() * a.imag(), a.real() * a.imag() + a.imag() * a.real()};
  if (a.real() == 0 && a.imag() == 0) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return b.real() > 0 ? Z(0, 0) : Z(nan, nan);
  }
  return Z(std::pow(L(a.real(), a.imag()), L(b.real(), b.imag())));
}

Z do_exp(Z z) { return std::exp(z); }
Z do_log(Z z) { return std::log(z); }
Z do_sqrt(Z z) { return std::sqrt(z); }
Z do_sin(Z z) { return std::sin(z); }
Z do_cos(Z z) { return std::cos(z); }
Z do_tan(Z z) { return std::tan(z); }
Z do_sinh(Z z) { return std::sinh(z); }
Z do_cosh(Z z) { return std::cosh(z); }
Z do_tanh(Z z) { return std::tanh(z); }
Z do_asin(Z z) { return std::asin(z); }
Z do_acos(Z z) { return std::acos(z); }
Z do_atan(Z z) { return std::atan(z); }
Z do_asinh(Z z) { return std::asinh(z); }
Z do_acosh(Z z) { return std::acosh(z); }
Z do_atanh(Z z) { return std::atanh(z); }

template <Z (*function)(Z), class T> void unary(const LaneArgs& args) {
  auto* out = static_cast<std::complex<T>*>(args.out);
  const auto* a = static_cast<const std::complex<T>*>(args.in[0]);
  for (std::int64_t i = 0; i < args.n; ++i) out[i] = std::complex<T>(function(Z(a[i])));
}
template <class T> void powers(const LaneArgs& args) {
  auto* out = static_cast<std::complex<T>*>(args.out);
  const auto* a = static_cast<const std::complex<T>*>(args.in[0]);
  const auto* b = static_cast<const std::complex<T>*>(args.in[1]);
  for (std::int64_t i = 0; i < args.n; ++i) {
    const Z x(a[args.splat[0] ? 0 : i]), y(b[args.splat[1] ? 0 : i]);
    out[i] = std::complex<T>(power(x, y));
  }
}
template <Z (*function)(Z)> LaneFn unary_of(DType t) {
  return t == DType::kComplex64 ? unary<function, float> : unary<function, double>;
}

}  // namespace

LaneFn find_complex_math(TapeOp op, DType t) {
  switch (op) {
    case TapeOp::kExp: return unary_of<do_exp>(t);
    case TapeOp::kExpm1: return unary_of<expm1>(t);
    case TapeOp::kLog: return unary_of<do_log>(t);
    case TapeOp::kLog1p: return unary_of<log1p>(t);
    case TapeOp::kLog2: return unary_of<log2>(t);
    case TapeOp::kLog10: return unary_of<log10>(t);
    case TapeOp::kSqrt: return unary_of<do_sqrt>(t);
    case TapeOp::kSign: return unary_of<sign>(t);
    case TapeOp::kSin: return unary_of<do_sin>(t);
    case TapeOp::kCos: return unary_of<do_cos>(t);
    case TapeOp::kTan: return unary_of<do_tan>(t);
    case TapeOp::kSinh: return unary_of<do_sinh>(t);
    case TapeOp::kCosh: return unary_of<do_cosh>(t);
    case TapeOp::kTanh: return unary_of<do_tanh>(t);
    case TapeOp::kAsin: return unary_of<do_asin>(t);
    case TapeOp::kAcos: return unary_of<do_acos>(t);
    case TapeOp::kAtan: return unary_of<do_atan>(t);
    case TapeOp::kAsinh: return unary_of<do_asinh>(t);
    case TapeOp::kAcosh: return unary_of<do_acosh>(t);
    case TapeOp::kAtanh: return unary_of<do_atanh>(t);
    case TapeOp::kPow: return t == DType::kComplex64 ? powers<float> : powers<double>;
    default: return nullptr;
  }
}

}  // namespace tilewise::kernels::map
