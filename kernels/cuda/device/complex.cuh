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

// Special values are the Array API standard's, which are those of C (C17, annex G.6).
TW_DEVICE double tw_infinity() { return -log(0.0); }
TW_DEVICE bool tw_finite(double x) { return x - x == 0; }
TW_DEVICE bool tw_infinite(double x) { return fabs(x) == tw_infinity(); }
TW_DEVICE double tw_larger(c128 z) { return fabs(z.re) > fabs(z.im) ? fabs(z.re) : fabs(z.im); }

// factor * e^x (cos y + i sin y) for finite y, in steps where e^x alone would overflow.
TW_FUNCTION c128 tw_exp_parts(double x, double y, double factor) {
  double re = cos(y), im = sin(y);
  for (int i = 0; i < 2 && x > 709; ++i) {
    const double step = exp(709.0);
    re *= step;
    im *= step;
    x -= 709;
  }
  const double size = exp(x) * factor;
  return c128(size * re, size * im);
}
TW_FUNCTION c128 tw_exp_z(c128 z) {
  if (z.im == 0) return c128(exp(z.re), z.im);
  if (tw_finite(z.im)) return tw_exp_parts(z.re, z.im, 1);
  const double nan = z.im - z.im;
  if (tw_infinite(z.re)) return z.re > 0 ? c128(z.re, nan) : c128(0, copysign(0.0, z.im));
  return c128(nan, nan);
}
TW_FUNCTION c128 tw_expm1_z(c128 z) {
  if (z.im == 0) return c128(expm1(z.re), z.im);
  if (!tw_finite(z.im) || fabs(z.re) > 40) {
    const c128 e = tw_exp_z(z);
    return c128(e.re - 1, e.im);
  }
  const double half = sin(z.im / 2);
  return c128(-(2 * half * half - expm1(z.re) * cos(z.im)), exp(z.re) * sin(z.im));
}
TW_FUNCTION c128 tw_log_z(c128 z) {
  const double x = fabs(z.re), y = fabs(z.im), angle = atan2(z.im, z.re);
  const double big = x > y ? x : y, small = x > y ? y : x;
  // Where the square root of the squares would overflow, or be a subnormal number, of a multiple.
  if (big > 1e300 && tw_finite(big)) return c128(log(hypot(x * 0.25, y * 0.25)) + 1.3862943611198906, angle);
  if (big < 1e-290 && big > 0) return c128(log(hypot(x * 0x1p200, y * 0x1p200)) - 138.62943611198907, angle);
  const double size = hypot(x, y);
  const double re = size > 0.7 && size < 1.4 ? log1p((big - 1) * (big + 1) + small * small) / 2 : log(size);
  return c128(re, angle);
}
TW_FUNCTION c128 tw_log1p_z(c128 z) {
  if (z.im == 0 && z.re > -1) return c128(log1p(z.re), z.im);
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
  if (tw_infinite(z.im)) return c128(tw_infinity(), z.im);
  if (tw_infinite(z.re))
    return z.re > 0 ? c128(z.re, z.im == z.im ? copysign(0.0, z.im) : z.im)
                    : c128(z.im == z.im ? 0.0 : z.im, copysign(z.re, z.im));
  // Kept clear of overflow and of subnormal numbers.
  const double top = tw_larger(z);
  const double scale = top > 1e300 ? 0.25 : (top < 1e-290 ? 0x1p120 : 1);
  const double back = top > 1e300 ? 2 : (top < 1e-290 ? 0x1p-60 : 1);
  const double x = z.re * scale, y = z.im * scale;
  const double t = sqrt((fabs(x) + hypot(x, y)) / 2);
  return x >= 0 ? c128(t * back, y / (2 * t) * back) : c128(fabs(y) / (2 * t) * back, copysign(t, y) * back);
}
TW_FUNCTION c128 tw_sign_z(c128 z) {
  if (z.re == 0 && z.im == 0) return c128(0, 0);
  const double top = tw_larger(z);
  const double scale = top > 1e300 ? 0.25 : (top < 1e-290 ? 0x1p120 : 1), x = z.re * scale, y = z.im * scale;
  const double size = hypot(x, y);
  return c128(x / size, y / size);
}
TW_FUNCTION c128 tw_sinh_z(c128 z) {
  if (z.im == 0) return c128(sinh(z.re), z.im);
  if (!tw_finite(z.im)) {
    const double nan = z.im - z.im;
    return c128(z.re == 0 || tw_infinite(z.re) ? z.re : nan, nan);
  }
  if (fabs(z.re) > 22) {
    const c128 e = tw_exp_parts(fabs(z.re), z.im, 0.5);
    return c128(copysign(1.0, z.re) * e.re, e.im);
  }
  return c128(sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im));
}
TW_FUNCTION c128 tw_cosh_z(c128 z) {
  if (z.im == 0) return c128(cosh(z.re), copysign(1.0, z.re) * z.im);
  if (!tw_finite(z.im)) {
    const double nan = z.im - z.im;
    return c128(tw_infinite(z.re) ? tw_infinity() : nan, z.re == 0 ? 0 : nan);
  }
  if (fabs(z.re) > 22) {
    const c128 e = tw_exp_parts(fabs(z.re), z.im, 0.5);
    return c128(e.re, copysign(1.0, z.re) * e.im);
  }
  return c128(cosh(z.re) * cos(z.im), sinh(z.re) * sin(z.im));
}
TW_FUNCTION c128 tw_tanh_z(c128 z) {
  if (z.im == 0) return c128(tanh(z.re), z.im);
  if (tw_infinite(z.re)) {
    const double sign = tw_finite(z.im) ? sin(z.im) * cos(z.im) : z.im;
    return c128(copysign(1.0, z.re), copysign(0.0, sign));
  }
  if (!tw_finite(z.im)) return c128(z.re == 0 ? z.re : z.im - z.im, z.im - z.im);
  if (fabs(z.re) > 22) return c128(copysign(1.0, z.re), 4 * exp(-2 * fabs(z.re)) * sin(z.im) * cos(z.im));
  const double t = tan(z.im), beta = 1 + t * t, s = sinh(z.re), rho = sqrt(1 + s * s), d = 1 + beta * s * s;
  return c128(beta * rho * s / d, t / d);
}
// f(x + iy) by way of the hyperbolic function: tan z = -i tanh iz, and so on.
TW_DEVICE c128 tw_times_i(c128 z) { return c128(-z.im, z.re); }
TW_DEVICE c128 tw_over_i(c128 z) { return c128(z.im, -z.re); }
TW_FUNCTION c128 tw_sin_z(c128 z) { return tw_over_i(tw_sinh_z(tw_times_i(z))); }
TW_FUNCTION c128 tw_cos_z(c128 z) { return tw_cosh_z(tw_times_i(z)); }
TW_FUNCTION c128 tw_tan_z(c128 z) { return tw_over_i(tw_tanh_z(tw_times_i(z))); }
// Where 1 + z is z: log(2 z) but for signs; Kahan's products would overflow. Beside NaN only infinity is.
TW_DEVICE bool tw_huge(c128 z) {
  if (z.re != z.re || z.im != z.im) return tw_infinite(z.re) || tw_infinite(z.im);
  return fabs(z.re) > 1e150 || fabs(z.im) > 1e150;
}
TW_DEVICE double tw_log_twice(c128 z) { return tw_log_z(z).re + 0.6931471805599453; }
TW_FUNCTION c128 tw_asin_z(c128 z) {
  if (z.re == 0 && z.im != z.im) return z;
  if (tw_huge(z)) return c128(copysign(atan2(fabs(z.re), fabs(z.im)), z.re), copysign(tw_log_twice(z), z.im));
  const c128 below = tw_sqrt_z(c128(1 - z.re, -z.im)), above = tw_sqrt_z(c128(1 + z.re, z.im));
  return c128(atan2(z.re, tw_mul(below, above).re), asinh(tw_mul(tw_conj(below), above).im));
}
TW_FUNCTION c128 tw_acos_z(c128 z) {
  if (z.re == 0 && z.im != z.im) return c128(1.5707963267948966, z.im);
  if (tw_huge(z)) return c128(fabs(atan2(z.im, z.re)), -copysign(tw_log_twice(z), z.im));
  const c128 below = tw_sqrt_z(c128(1 - z.re, -z.im)), above = tw_sqrt_z(c128(1 + z.re, z.im));
  return c128(2 * atan2(below.re, above.re), asinh(tw_mul(tw_conj(above), below).im));
}
TW_FUNCTION c128 tw_acosh_z(c128 z) {
  if (z.re == 0 && z.im != z.im) return c128(z.im, 1.5707963267948966);
  if (tw_huge(z)) return c128(tw_log_twice(z), atan2(z.im, z.re));
  const c128 below = tw_sqrt_z(c128(z.re - 1, z.im)), above = tw_sqrt_z(c128(z.re + 1, z.im));
  return c128(asinh(tw_mul(tw_conj(below), above).re), 2 * atan2(below.im, above.re));
}
TW_FUNCTION c128 tw_atanh_z(c128 z) {
  if (z.re == 0 && z.im != z.im) return z;
  if (tw_huge(z)) return c128(copysign(0.0, z.re), z.im == z.im ? copysign(1.5707963267948966, z.im) : z.im);
  const double x = fabs(z.re), away = 1 - x, square = z.im * z.im;
  // At 1 the square may be no number any more.
  const bool pole = away == 0 && z.im != 0 && fabs(z.im) < 1e-8;
  const double re =
      pole ? (0.6931471805599453 - log(fabs(z.im))) / 2 : log1p(4 * x / (away * away + square)) / 4;
  return c128(copysign(re, z.re), atan2(2 * z.im, away * (1 + x) - square) / 2);
}
TW_FUNCTION c128 tw_asinh_z(c128 z) { return tw_over_i(tw_asin_z(tw_times_i(z))); }
TW_FUNCTION c128 tw_atan_z(c128 z) { return tw_over_i(tw_atanh_z(tw_times_i(z))); }
// A product as C has it (C11, annex G.5.1): infinite where a factor is, whatever is undefined beside it.
TW_DEVICE double tw_boxed(double x, bool infinite) { return copysign(infinite ? 1.0 : 0.0, x); }
TW_FUNCTION c128 tw_mul_infinite(c128 a, c128 b) {
  const c128 plain = tw_mul(a, b);
  if (plain.re == plain.re || plain.im == plain.im) return plain;
  const double infinity = tw_infinity();
  const bool a_infinite = tw_infinite(a.re) || tw_infinite(a.im);
  const bool b_infinite = tw_infinite(b.re) || tw_infinite(b.im);
  if (!a_infinite && !b_infinite) return plain;
  if (a_infinite) a = c128(tw_boxed(a.re, tw_infinite(a.re)), tw_boxed(a.im, tw_infinite(a.im)));
  if (b_infinite) b = c128(tw_boxed(b.re, tw_infinite(b.re)), tw_boxed(b.im, tw_infinite(b.im)));
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
