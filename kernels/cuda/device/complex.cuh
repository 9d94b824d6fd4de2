// Complex arithmetic and functions. Arithmetic is the textbook's, each operation rounded by itself; division is Smith's
// (Algorithm 116, Communications of the ACM 5, 1962); the functions are computed in float64, inverse ones by W. Kahan,
// "Branch cuts for complex elementary functions" (1987). Plain C++ but for TW_DEVICE and TW_FUNCTION (not inlined:
// they are long), so that a test can run it on the host.

template <class T> TW_DEVICE Cx<T> tw_add(Cx<T> a, Cx<T> b) { return Cx<T>(a.re + b.re, a.im + b.im); }
template <class T> TW_DEVICE Cx<T> tw_sub(Cx<T> a, Cx<T> b) { return Cx<T>(a.re - b.re, a.im - b.im); }
template <class T> TW_DEVICE Cx<T> tw_mul(Cx<T> a, Cx<T> b) {
  return Cx<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
template <class T> TW_DEVICE Cx<T> tw_div(Cx<T> a, Cx<T> b) {
  if (b.re == 0 && b.im == 0) return Cx<T>(a.re / (T)fabs(b.re), a.im / (T)fabs(b.re));
  if (fabs(b.re) >= fabs(b.im)) {
    const T ratio = b.im / b.re, scale = b.re + b.im * ratio;
    return Cx<T>((a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale);
  }
  const T ratio = b.re / b.im, scale = b.im + b.re * ratio;
  return Cx<T>((a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale);
}
template <class T> TW_DEVICE Cx<T> tw_neg(Cx<T> a) { return Cx<T>(-a.re, -a.im); }
template <class T> TW_DEVICE Cx<T> tw_conj(Cx<T> a) { return Cx<T>(a.re, -a.im); }
template <class T> TW_DEVICE Cx<T> tw_round(Cx<T> a) { return Cx<T>((T)rint(a.re), (T)rint(a.im)); }
template <class T> TW_DEVICE T tw_magnitude(Cx<T> a) { return (T)hypot((double)a.re, (double)a.im); }
template <class T> TW_DEVICE bool tw_equal(Cx<T> a, Cx<T> b) { return a.re == b.re && a.im == b.im; }

TW_FUNCTION c128 tw_exp_z(c128 z) {
  if (z.im == 0) return c128(exp(z.re), z.im);
  if (z.re < -800 && !(fabs(z.im) < 1e308)) return c128(0, 0);
  const double size = exp(z.re);
  return c128(size * cos(z.im), size * sin(z.im));
}
TW_FUNCTION c128 tw_expm1_z(c128 z) {
  if (z.im == 0) return c128(expm1(z.re), z.im);
  const double half = sin(z.im / 2);
  return c128(expm1(z.re) * cos(z.im) - 2 * half * half, exp(z.re) * sin(z.im));
}
TW_FUNCTION c128 tw_log_z(c128 z) {
  const double x = fabs(z.re), y = fabs(z.im), size = hypot(x, y);
  const double big = x > y ? x : y, small = x > y ? y : x;
  const double re = size > 0.7 && size < 1.4 ? log1p((big - 1) * (big + 1) + small * small) / 2 : log(size);
  return c128(re, atan2(z.im, z.re));
}
TW_FUNCTION c128 tw_log1p_z(c128 z) {
  if (!(fabs(z.re) < 0.5 && fabs(z.im) < 0.5)) return tw_log_z(c128(1 + z.re, z.im));
  return c128(log1p(z.re * (2 + z.re) + z.im * z.im) / 2, atan2(z.im, 1 + z.re));
}
TW_FUNCTION c128 tw_log2_z(c128 z) {
  const c128 l = tw_log_z(z);
  return c128(l.re * 1.4426950408889634, l.im * 1.4426950408889634);
}
TW_FUNCTION c128 tw_log10_z(c128 z) {
  const c128 l = tw_log_z(z);
  return c128(l.re * 0.43429448190325183, l.im * 0.43429448190325183);
}
TW_FUNCTION c128 tw_sqrt_z(c128 z) {
  if (z.re == 0 && z.im == 0) return c128(0, z.im);
  const double infinity = -log(0.0);
  if (fabs(z.im) == infinity) return c128(infinity, z.im);
  if (fabs(z.re) == infinity)
    return z.re > 0 ? c128(infinity, z.im == z.im ? copysign(0.0, z.im) : z.im)
                    : c128(z.im == z.im ? 0.0 : z.im, copysign(infinity, z.im));
  // Kept clear of overflow and of subnormal numbers.
  const double top = fabs(z.re) > fabs(z.im) ? fabs(z.re) : fabs(z.im);
  const double scale = top > 1e300 ? 0.25 : (top < 1e-290 ? 0x1p120 : 1);
  const double back = top > 1e300 ? 2 : (top < 1e-290 ? 0x1p-60 : 1);
  const double x = z.re * scale, y = z.im * scale;
  const double t = sqrt((fabs(x) + hypot(x, y)) / 2);
  return x >= 0 ? c128(t * back, y / (2 * t) * back) : c128(fabs(y) / (2 * t) * back, copysign(t, y) * back);
}
TW_FUNCTION c128 tw_sign_z(c128 z) {
  if (z.re == 0 && z.im == 0) return c128(0, 0);
  const double size = hypot(z.re, z.im);
  return c128(z.re / size, z.im / size);
}
TW_FUNCTION c128 tw_sinh_z(c128 z) {
  if (z.im == 0) return c128(sinh(z.re), z.im);
  return c128(sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im));
}
TW_FUNCTION c128 tw_cosh_z(c128 z) {
  if (z.im == 0) return c128(cosh(z.re), z.re * z.im);
  return c128(cosh(z.re) * cos(z.im), sinh(z.re) * sin(z.im));
}
TW_FUNCTION c128 tw_tanh_z(c128 z) {
  if (fabs(z.re) > 22) {
    const double tail = 4 * exp(-2 * fabs(z.re)) * sin(z.im) * cos(z.im);
    return c128(copysign(1.0, z.re), z.im - z.im == 0 ? tail : copysign(0.0, z.im));
  }
  const double t = tan(z.im), beta = 1 + t * t, s = sinh(z.re), rho = sqrt(1 + s * s), d = 1 + beta * s * s;
  return c128(beta * rho * s / d, t / d);
}
// f(x + iy) by way of the hyperbolic function: tan z = -i tanh iz, and so on.
TW_DEVICE c128 tw_times_i(c128 z) { return c128(-z.im, z.re); }
TW_DEVICE c128 tw_over_i(c128 z) { return c128(z.im, -z.re); }
TW_FUNCTION c128 tw_sin_z(c128 z) { return tw_over_i(tw_sinh_z(tw_times_i(z))); }
TW_FUNCTION c128 tw_cos_z(c128 z) { return tw_cosh_z(tw_times_i(z)); }
TW_FUNCTION c128 tw_tan_z(c128 z) { return tw_over_i(tw_tanh_z(tw_times_i(z))); }
TW_FUNCTION c128 tw_asin_z(c128 z) {
  const c128 below = tw_sqrt_z(c128(1 - z.re, -z.im)), above = tw_sqrt_z(c128(1 + z.re, z.im));
  return c128(atan2(z.re, tw_mul(below, above).re), asinh(tw_mul(tw_conj(below), above).im));
}
TW_FUNCTION c128 tw_acos_z(c128 z) {
  const c128 below = tw_sqrt_z(c128(1 - z.re, -z.im)), above = tw_sqrt_z(c128(1 + z.re, z.im));
  return c128(2 * atan2(below.re, above.re), asinh(tw_mul(tw_conj(above), below).im));
}
TW_FUNCTION c128 tw_acosh_z(c128 z) {
  const c128 below = tw_sqrt_z(c128(z.re - 1, z.im)), above = tw_sqrt_z(c128(z.re + 1, z.im));
  return c128(asinh(tw_mul(tw_conj(below), above).re), 2 * atan2(below.im, above.re));
}
TW_FUNCTION c128 tw_atanh_z(c128 z) {
  if (fabs(z.re) > 1e150 || fabs(z.im) > 1e150)
    return c128(copysign(0.0, z.re), copysign(1.5707963267948966, z.im));
  const double x = fabs(z.re), away = 1 - x, square = z.im * z.im;
  const double re = log1p(4 * x / (away * away + square)) / 4;
  return c128(copysign(re, z.re), atan2(2 * z.im, away * (1 + x) - square) / 2);
}
TW_FUNCTION c128 tw_asinh_z(c128 z) { return tw_over_i(tw_asin_z(tw_times_i(z))); }
TW_FUNCTION c128 tw_atan_z(c128 z) { return tw_over_i(tw_atanh_z(tw_times_i(z))); }
// A product as C has it (C11, annex G.5.1): infinite where a factor is, whatever is undefined beside it.
TW_DEVICE double tw_boxed(double x, bool infinite) { return copysign(infinite ? 1.0 : 0.0, x); }
TW_FUNCTION c128 tw_mul_infinite(c128 a, c128 b) {
  const c128 plain = tw_mul(a, b);
  if (plain.re == plain.re || plain.im == plain.im) return plain;
  const double infinity = -log(0.0);
  const bool a_infinite = fabs(a.re) == infinity || fabs(a.im) == infinity;
  const bool b_infinite = fabs(b.re) == infinity || fabs(b.im) == infinity;
  if (!a_infinite && !b_infinite) return plain;
  if (a_infinite) a = c128(tw_boxed(a.re, fabs(a.re) == infinity), tw_boxed(a.im, fabs(a.im) == infinity));
  if (b_infinite) b = c128(tw_boxed(b.re, fabs(b.re) == infinity), tw_boxed(b.im, fabs(b.im) == infinity));
  if (a.re != a.re) a.re = copysign(0.0, a.re);
  if (a.im != a.im) a.im = copysign(0.0, a.im);
  if (b.re != b.re) b.re = copysign(0.0, b.re);
  if (b.im != b.im) b.im = copysign(0.0, b.im);
  return c128(infinity * (a.re * b.re - a.im * b.im), infinity * (a.re * b.im + a.im * b.re));
}
TW_FUNCTION c128 tw_pow_z(c128 a, c128 b) {
  if (b.im == 0) {
    if (b.re == 0) return c128(1, 0);
    if (b.re == 1) return a;
    if (b.re == 2) return tw_mul(a, a);
  }
  if (a.re == 0 && a.im == 0) {
    const double nan = a.re / a.re;
    return b.re > 0 ? c128(0, 0) : c128(nan, nan);
  }
  return tw_exp_z(tw_mul_infinite(b, tw_log_z(a)));
}
