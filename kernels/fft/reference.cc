// The sum that defines a transform, term by term in long double.
#include <bit>
#include <cinttypes>
#include <complex>
#include <numbers>
#include <vector>

#include "call/builtin.h"
#include "call/plain.h"
#include "fft/fft.h"

namespace tilewise::kernels::fft::reference {
namespace {

using builtin::kFailed;
using builtin::read_params;
using builtin::refuse;
using namespace plain;
using ir::builtin::Fft;
using Wide = std::complex<long double>;

Wide load(const tilewise_view_v1& view, const ir::Index& at) {
  switch (view.dtype) {
    case TILEWISE_FLOAT32: return element<float>(view, at);
    case TILEWISE_FLOAT64: return element<double>(view, at);
    case TILEWISE_COMPLEX64: return Wide(element<std::complex<float>>(view, at));
    default: return Wide(element<std::complex<double>>(view, at));
  }
}
void store(const tilewise_view_v1& view, const ir::Index& at, Wide x) {
  switch (view.dtype) {
    case TILEWISE_FLOAT32: element<float>(view, at) = static_cast<float>(x.real()); return;
    case TILEWISE_FLOAT64: element<double>(view, at) = static_cast<double>(x.real()); return;
    case TILEWISE_COMPLEX64: element<std::complex<float>>(view, at) = std::complex<float>(x); return;
    default: element<std::complex<double>>(view, at) = std::complex<double>(x); return;
  }
}

// All n numbers of a line of which those from n / 2 + 1 on are conjugates. Where a number is its own mate it is real,
// whatever its imaginary part says.
void complete(std::vector<Wide>& line, std::size_t n) {
  line[0] = line[0].real();
  if (n % 2 == 0) line[n / 2] = line[n / 2].real();
  for (std::size_t i = line.size(); i < n; ++i) line.push_back(std::conj(line[n - i]));
}

}  // namespace

int transform(const tilewise_call_v1* call) {
  Fft p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (p.axis < 0 || p.axis >= x.rank || p.n < 1 || p.n > INT32_MAX || x.rank != out.rank ||
      replaced(extents(x), axis, 0) != replaced(extents(out), axis, 0))
    return refuse(call, kFailed, "wants lines of 1 to 2^31 - 1 elements along axis %" PRId64, p.axis);
  const bool narrow = out.dtype == TILEWISE_FLOAT32 || out.dtype == TILEWISE_COMPLEX64;
  const std::int32_t real = narrow ? TILEWISE_FLOAT32 : TILEWISE_FLOAT64;
  const std::int32_t complex = narrow ? TILEWISE_COMPLEX64 : TILEWISE_COMPLEX128;
  std::int32_t from = complex, to = complex;
  std::int64_t read = p.n, written = p.n;
  bool fits = true;
  switch (p.kind) {
    case Fft::kForward:
    case Fft::kInverse: break;
    case Fft::kRealForward: from = real, written = p.n / 2 + 1; break;
    case Fft::kRealInverse: to = real, read = p.n / 2 + 1; break;
    default: fits = false;
  }
  if (!fits || x.dtype != from || out.dtype != to || x.shape[axis] != read || out.shape[axis] != written)
    return refuse(call, kFailed, "the array and the result do not fit a transform of length %" PRId64, p.n);
  const auto n = static_cast<std::size_t>(p.n);
  const long double sign = p.kind == Fft::kForward || p.kind == Fft::kRealForward ? -1 : 1;
  std::vector<Wide> roots;  // exp(+-2 pi i k / n)
  for (std::size_t k = 0; k < n; ++k)
    roots.push_back(std::polar(1.0L, sign * 2 * std::numbers::pi_v<long double> *
                                         static_cast<long double>(k) / static_cast<long double>(n)));
  for_each(replaced(extents(x), axis, 1), [&](const ir::Index& start) {
    std::vector<Wide> line;
    for (std::int64_t j = 0; j < read; ++j) line.push_back(load(x, replaced(start, axis, j)));
    if (p.kind == Fft::kRealInverse) complete(line, n);
    for (std::int64_t k = 0; k < written; ++k) {
      Wide sum = 0;
      for (std::size_t j = 0; j < n; ++j) sum += line[j] * roots[j * static_cast<std::size_t>(k) % n];
      store(out, replaced(start, axis, k),
            sum * static_cast<long double>(std::bit_cast<double>(p.scale_bits)));
    }
  });
  return 0;
}

}  // namespace tilewise::kernels::fft::reference
