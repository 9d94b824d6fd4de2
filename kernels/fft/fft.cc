// Lines are copied into buffers of one layout, transformed, and scaled on their way out: so bits do not depend on strides or
// alignment, and a plan for one length serves all lines. Plans are estimated, never measured: measuring picks algorithms by
// time, and with them bits.
#include "fft/fft.h"

#include <fftw3.h>

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
  static void execute(Plan p) { fftw_execute(p); }
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
  static void execute(Plan p) { fftwf_execute(p); }
  static Plan plan(std::int64_t kind, int n, Complex* a, Complex* b) {
    switch (kind) {
      case Fft::kForward: return fftwf_plan_dft_1d(n, a, b, FFTW_FORWARD, FFTW_ESTIMATE);
      case Fft::kInverse: return fftwf_plan_dft_1d(n, a, b, FFTW_BACKWARD, FFTW_ESTIMATE);
      case Fft::kRealForward: return fftwf_plan_dft_r2c_1d(n, reinterpret_cast<float*>(a), b, FFTW_ESTIMATE);
      default: return fftwf_plan_dft_c2r_1d(n, a, reinterpret_cast<float*>(b), FFTW_ESTIMATE);
    }
  }
};

// A plan with its two buffers, of n complex numbers each.
template <class T> class Transform {
 public:
  using L = Library<T>;
  Transform(std::int64_t kind, std::int64_t n)
      : in_(L::allocate(static_cast<std::size_t>(n))), out_(L::allocate(static_cast<std::size_t>(n))) {
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
  void run() const { L::execute(plan_); }
  template <class E> E* in() const { return reinterpret_cast<E*>(in_); }
  template <class E> E* out() const { return reinterpret_cast<E*>(out_); }

 private:
  typename L::Complex *in_, *out_;
  typename L::Plan plan_ = nullptr;
};

template <class T, class From, class To> int lines(const tilewise_call_v1* call, const Fft& p) {
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  const Transform<T> transform(p.kind, p.n);
  if (!transform.good()) return refuse(call, kFailed, "no plan for a transform of length %" PRId64, p.n);
  const T scale = static_cast<T>(std::bit_cast<double>(p.scale_bits));
  From* from = transform.template in<From>();
  const To* to = transform.template out<To>();
  for_lines<2>({&x, &out}, axis, [&](const auto& at) {
    const From* line = static_cast<const From*>(x.data) + at[0];
    for (std::int64_t i = 0; i < x.shape[axis]; ++i) from[i] = line[i * x.strides[axis]];
    transform.run();
    To* result = static_cast<To*>(out.data) + at[1];
    for (std::int64_t i = 0; i < out.shape[axis]; ++i) result[i * out.strides[axis]] = to[i] * scale;
  });
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
