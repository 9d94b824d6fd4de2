// Lines are copied into buffers of one layout, transformed, and scaled on their way out: so bits do not depend on strides or
// alignment, and a plan for one length serves all lines. Where elements of a line lie apart, several lines are copied at once:
// what is fetched with an element of one is an element of the next. Plans are estimated, never measured: measuring picks algorithms by
// time, and with them bits.
#include "fft/fft.h"

#include <fftw3.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <complex>
#include <mutex>

#include "call/builtin.h"

namespace tilewise::kernels::fft {
namespace {

using namespace builtin;
using ir::builtin::Fft;

std::mutex& planner() {  // FFTW's planner has state of its own; executing is safe from any thread
  static std::mutex mutex;
  return mutex;
}

template <class T> struct Library;
template <> struct Library<double> {
  using Plan = fftw_plan;
  using Complex = fftw_complex;
  static Complex* allocate(std::size_t n) { return fftw_alloc_complex(n); }
  static void release(void* p) { fftw_free(p); }
  static void destroy(Plan p) { fftw_destroy_plan(p); }
  static void execute(Plan p, std::int64_t kind, Complex* a, Complex* b) {
    switch (kind) {
      case Fft::kRealForward: return fftw_execute_dft_r2c(p, reinterpret_cast<double*>(a), b);
      case Fft::kRealInverse: return fftw_execute_dft_c2r(p, a, reinterpret_cast<double*>(b));
      default: return fftw_execute_dft(p, a, b);
    }
  }
  static Plan plan(std::int64_t kind, int n, Complex* a, Complex* b) {
    switch (kind) {
      case Fft::kForward: return fftw_plan_dft_1d(n, a, b, FFTW_FORWARD, FFTW_ESTIMATE);
      case Fft::kInverse: return fftw_plan_dft_1d(n, a, b, FFTW_BACKWARD, FFTW_ESTIMATE);
      case Fft::kRealForward: return fftw_plan_dft_r2c_1d(n, reinterpret_cast<double*>(a), b, FFTW_ESTIMATE);
      default: return fftw_plan_dft_c2r_1d(n, a, reinterpret_cast<double*>(b), FFTW_ESTIMATE);
    }
  }
};
template <> struct Library<float> {
  using Plan = fftwf_plan;
  using Complex = fftwf_complex;
  static Complex* allocate(std::size_t n) { return fftwf_alloc_complex(n); }
  static void release(void* p) { fftwf_free(p); }
  static void destroy(Plan p) { fftwf_destroy_plan(p); }
  static void execute(Plan p, std::int64_t kind, Complex* a, Complex* b) {
    switch (kind) {
      case Fft::kRealForward: return fftwf_execute_dft_r2c(p, reinterpret_cast<float*>(a), b);
      case Fft::kRealInverse: return fftwf_execute_dft_c2r(p, a, reinterpret_cast<float*>(b));
      default: return fftwf_execute_dft(p, a, b);
    }
  }
  static Plan plan(std::int64_t kind, int n, Complex* a, Complex* b) {
    switch (kind) {
      case Fft::kForward: return fftwf_plan_dft_1d(n, a, b, FFTW_FORWARD, FFTW_ESTIMATE);
      case Fft::kInverse: return fftwf_plan_dft_1d(n, a, b, FFTW_BACKWARD, FFTW_ESTIMATE);
      case Fft::kRealForward: return fftwf_plan_dft_r2c_1d(n, reinterpret_cast<float*>(a), b, FFTW_ESTIMATE);
      default: return fftwf_plan_dft_c2r_1d(n, a, reinterpret_cast<float*>(b), FFTW_ESTIMATE);
    }
  }
};

constexpr std::int64_t kTogether = 8;  // lines: 64 bytes of complex64
constexpr std::int64_t kPitch =
    16;  // buffers start at multiples of so many numbers: plans are for one alignment
constexpr std::int64_t kRoom = 65'536;  // numbers in a buffer of several lines

// A plan with two buffers for each of several lines, of n complex numbers.
template <class T> class Transform {
 public:
  using L = Library<T>;
  Transform(std::int64_t kind, std::int64_t n)
      : kind_(kind),
        pitch_((n + kPitch - 1) / kPitch * kPitch),
        together_(std::clamp<std::int64_t>(kRoom / pitch_, 1, kTogether)),
        in_(L::allocate(static_cast<std::size_t>(pitch_ * together_))),
        out_(L::allocate(static_cast<std::size_t>(pitch_ * together_))) {
    const std::lock_guard lock(planner());
    if (in_ != nullptr && out_ != nullptr) plan_ = L::plan(kind, static_cast<int>(n), in_, out_);
  }
  ~Transform() {
    if (plan_ != nullptr) {
      const std::lock_guard lock(planner());
      L::destroy(plan_);
    }
    L::release(in_);
    L::release(out_);
  }
  Transform(const Transform&) = delete;
  Transform& operator=(const Transform&) = delete;

  bool good() const { return plan_ != nullptr; }
  std::int64_t together() const { return together_; }
  void run(std::int64_t line) const { L::execute(plan_, kind_, in_ + line * pitch_, out_ + line * pitch_); }
  template <class E> E* in(std::int64_t line) const { return reinterpret_cast<E*>(in_ + line * pitch_); }
  template <class E> const E* out(std::int64_t line) const {
    return reinterpret_cast<const E*>(out_ + line * pitch_);
  }

 private:
  std::int64_t kind_, pitch_, together_;
  typename L::Complex *in_, *out_;
  typename L::Plan plan_ = nullptr;
};

template <class T, class From, class To> int lines(const tilewise_call_v1* call, const Fft& p) {
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  const Transform<T> transform(p.kind, p.n);
  if (!transform.good()) return refuse(call, kFailed, "no plan for a transform of length %" PRId64, p.n);
  const T scale = static_cast<T>(std::bit_cast<double>(p.scale_bits));
  std::array<const From*, kTogether> from;
  std::array<To*, kTogether> to;
  std::int64_t count = 0;
  const auto run = [&] {
    for (std::int64_t i = 0; i < x.shape[axis]; ++i)
      for (std::int64_t line = 0; line < count; ++line)
        transform.template in<From>(line)[i] = from[static_cast<std::size_t>(line)][i * x.strides[axis]];
    for (std::int64_t line = 0; line < count; ++line) transform.run(line);
    for (std::int64_t i = 0; i < out.shape[axis]; ++i)
      for (std::int64_t line = 0; line < count; ++line)
        to[static_cast<std::size_t>(line)][i * out.strides[axis]] =
            transform.template out<To>(line)[i] * scale;
    count = 0;
  };
  // Lines without gaps are best copied by themselves.
  const bool dense = x.strides[axis] == 1 && out.strides[axis] == 1;
  const std::int64_t together = dense ? 1 : transform.together();
  for_lines<2>({&x, &out}, axis, [&](const auto& at) {
    from[static_cast<std::size_t>(count)] = static_cast<const From*>(x.data) + at[0];
    to[static_cast<std::size_t>(count)] = static_cast<To*>(out.data) + at[1];
    if (++count == together) run();
  });
  run();
  return 0;
}

template <class T> int by_kind(const tilewise_call_v1* call, const Fft& p) {
  switch (p.kind) {
    case Fft::kRealForward: return lines<T, T, std::complex<T>>(call, p);
    case Fft::kRealInverse: return lines<T, std::complex<T>, T>(call, p);
    default: return lines<T, std::complex<T>, std::complex<T>>(call, p);
  }
}

}  // namespace

int transform(const tilewise_call_v1* call) {
  Fft p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (p.axis < 0 || p.axis >= x.rank || !same_lines({&x, &out}, axis) || p.n < 1 || p.n > INT32_MAX)
    return refuse(call, kFailed, "wants lines of 1 to 2^31 - 1 elements along axis %" PRId64, p.axis);
  const bool from_real = p.kind == Fft::kRealForward, to_real = p.kind == Fft::kRealInverse;
  const std::int64_t half = p.n / 2 + 1;
  const bool narrow = out.dtype == TILEWISE_FLOAT32 || out.dtype == TILEWISE_COMPLEX64;
  const std::int32_t real = narrow ? TILEWISE_FLOAT32 : TILEWISE_FLOAT64;
  const std::int32_t complex = narrow ? TILEWISE_COMPLEX64 : TILEWISE_COMPLEX128;
  if (p.kind < Fft::kForward || p.kind > Fft::kRealInverse || x.dtype != (from_real ? real : complex) ||
      out.dtype != (to_real ? real : complex) || x.shape[axis] != (to_real ? half : p.n) ||
      out.shape[axis] != (from_real ? half : p.n))
    return refuse(call, kFailed, "the array and the result do not fit a transform of length %" PRId64, p.n);
  return narrow ? by_kind<float>(call, p) : by_kind<double>(call, p);
}

}  // namespace tilewise::kernels::fft
