// Folds of complex numbers. A sum is that of twice as many real numbers; a product is written out.
#include "reduce/fold.h"

#include <complex>

namespace tilewise::kernels::reduce {
namespace {

using ir::DType;
using ir::ReduceKind;

template <class T> FoldFns parts() { return find_folds(ReduceKind::kSum, ir::dtype_of_v<T>); }

template <class T> void sum_clear(void* acc, std::int64_t width) { parts<T>().clear(acc, 2 * width); }
template <class T>
void sum_rows(void* acc, const void* x, std::int64_t width, std::int64_t rows, std::int64_t pitch) {
  parts<T>().rows(acc, x, 2 * width, rows, 2 * pitch);
}
template <class T> void sum_lanes(void* acc, std::int64_t n) { parts<T>().lanes(acc, 2 * n); }
template <class T>
void sum_units(void* out, const void* x, std::int64_t units, std::int64_t length, std::int64_t n) {
  parts<T>().units(out, x, units, length, 2 * n);
}

template <class T> struct Complex {
  T re, im;
  Complex operator*(Complex b) const { return {re * b.re - im * b.im, re * b.im + im * b.re}; }
};

template <class T> void prod_clear(void* acc, std::int64_t width) {
  auto* a = static_cast<Complex<T>*>(acc);
  for (std::int64_t j = 0; j < width; ++j) a[j] = {T(1), T(0)};
}
template <class T>
void prod_rows(void* acc, const void* from, std::int64_t width, std::int64_t rows, std::int64_t pitch) {
  auto* a = static_cast<Complex<T>*>(acc);
  const auto* x = static_cast<const Complex<T>*>(from);
  for (std::int64_t r = 0; r < rows; ++r, x += pitch) {
    for (std::int64_t j = 0; j < width; ++j) a[j] = a[j] * x[j];
  }
}
template <class T> void prod_lanes(void* acc, std::int64_t n) {
  auto* a = static_cast<Complex<T>*>(acc);
  for (std::int64_t half = kFold / 2 * n; half >= n; half /= 2) {
    for (std::int64_t j = 0; j < half; ++j) a[j] = a[j] * a[j + half];
  }
}
template <class T>
void prod_units(void* to, const void* from, std::int64_t units, std::int64_t length, std::int64_t n) {
  auto* out = static_cast<Complex<T>*>(to);
  const auto* x = static_cast<const Complex<T>*>(from);
  for (std::int64_t u = 0; u < units; ++u, out += n, x += length * n) {
    for (std::int64_t j = 0; j < n; ++j) {
      Complex<T> s = x[j];
      for (std::int64_t r = 1; r < length; ++r) s = s * x[r * n + j];
      out[j] = s;
    }
  }
}

template <class T> FoldFns folds(ReduceKind kind) {
  if (kind == ReduceKind::kSum) return {sum_clear<T>, sum_rows<T>, sum_lanes<T>, sum_units<T>};
  if (kind == ReduceKind::kProd) return {prod_clear<T>, prod_rows<T>, prod_lanes<T>, prod_units<T>};
  return {};
}

}  // namespace

FoldFns complex_folds(ReduceKind kind, DType t) {
  return t == DType::kComplex64 ? folds<float>(kind) : folds<double>(kind);
}

}  // namespace tilewise::kernels::reduce
