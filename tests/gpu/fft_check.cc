// Fourier transforms on CUDA, compared with the sum that defines them and, through the whole engine, with each other.
#include <doctest/doctest.h>
#include <tilewise/embedded/cluster.h>
#include <tilewise/tilewise.h>

#include <bit>
#include <cmath>
#include <complex>
#include <numbers>

#include "pair.h"

namespace tilewise::gpu {
namespace {

using ir::DType;
using ir::builtin::Fft;
using Number = std::complex<double>;

struct Case {
  Fft::Kind kind;
  bool narrow;
  DType real() const { return narrow ? DType::kFloat32 : DType::kFloat64; }
  DType complex() const { return narrow ? DType::kComplex64 : DType::kComplex128; }
  DType in() const { return kind == Fft::kRealForward ? real() : complex(); }
  DType out() const { return kind == Fft::kRealInverse ? real() : complex(); }
};

// The sum that defines it, of one line.
std::vector<Number> plain(const std::vector<Number>& x, Fft::Kind kind, std::int64_t n, double scale) {
  std::vector<Number> all = x;
  if (kind ==
      Fft::
          kRealInverse) {  // the other half follows; where a number is its own mate, its imaginary part is not read
    all[0] = all[0].real();
    if (n % 2 == 0) all[static_cast<std::size_t>(n / 2)] = all[static_cast<std::size_t>(n / 2)].real();
    for (auto i = static_cast<std::int64_t>(all.size()); i < n; ++i)
      all.push_back(std::conj(x[static_cast<std::size_t>(n - i)]));
  }
  const bool back = kind == Fft::kInverse || kind == Fft::kRealInverse;
  const std::int64_t wanted = kind == Fft::kRealForward ? n / 2 + 1 : n;
  std::vector<Number> out;
  for (std::int64_t k = 0; k < wanted; ++k) {
    Number sum = 0;
    for (std::int64_t j = 0; j < n; ++j)
      sum += all[static_cast<std::size_t>(j)] *
             std::polar(1.0, (back ? 2 : -2) * std::numbers::pi * static_cast<double>(j * k % n) /
                                 static_cast<double>(n));
    out.push_back(sum * scale);
  }
  return out;
}

Array values(Prng& prng, DType t, const ir::Shape& shape, bool contiguous) {
  Array a = contiguous ? Array::contiguous(t, shape)
                       : kernels::conformance::random_layout(prng, t, shape, prng.chance(0.3));
  for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, prng.uniform() * 2 - 1, 0, prng.uniform() * 2 - 1);
  return a;
}

Step fft_step(Array x, const Case& c, const ir::Shape& out, std::size_t axis, std::int64_t n, double scale) {
  Array y = Array::contiguous(c.out(), out);
  for (std::byte& b : y.bytes) b = std::byte{0x5A};
  const Fft params{static_cast<std::int64_t>(axis), c.kind, n, std::bit_cast<std::int64_t>(scale)};
  return call_step(params, out, {std::move(x)}, {std::move(y)});
}

void check(Pair& pair, Prng& prng, const Case& c, ir::Shape shape, std::size_t axis, bool contiguous) {
  const std::int64_t n = shape[axis];
  const double scale = prng.chance(0.5) ? 1 : 1 / static_cast<double>(n);
  ir::Shape in = shape, out = shape;
  if (c.kind == Fft::kRealInverse) in[axis] = n / 2 + 1;
  if (c.kind == Fft::kRealForward) out[axis] = n / 2 + 1;
  const Array x = values(prng, c.in(), in, contiguous);
  Step step = fft_step(x, c, out, axis, n, scale);
  run(pair.gpu, step);
  const Array& y = step.outputs[0];
  std::int64_t inner = 1;
  for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  const double limit = 20 * std::sqrt(static_cast<double>(n)) * (c.narrow ? 0x1p-23 : 0x1p-52) *
                       std::max(1.0, scale * static_cast<double>(n));
  double worst = 0;
  for (std::int64_t line = 0; line < x.volume() / in[axis]; ++line) {
    const std::int64_t outer = line / inner, at = line % inner;
    std::vector<Number> numbers;
    for (std::int64_t i = 0; i < in[axis]; ++i) {
      const std::int64_t e = (outer * in[axis] + i) * inner + at;
      numbers.emplace_back(x.as_double(e), ir::is_complex(x.dtype) ? x.imaginary(e) : 0);
    }
    const std::vector<Number> want = plain(numbers, c.kind, n, scale);
    for (std::int64_t i = 0; i < out[axis]; ++i) {
      const std::int64_t e = (outer * out[axis] + i) * inner + at;
      const Number got{y.as_double(e), ir::is_complex(y.dtype) ? y.imaginary(e) : 0};
      const double off = std::abs(got - want[static_cast<std::size_t>(i)]);
      worst = std::isfinite(off) ? std::max(worst, off) : HUGE_VAL;
    }
  }
  CHECK_MESSAGE(worst <= limit, "kind " << static_cast<int>(c.kind) << " of " << ir::to_string(shape)
                                        << " along " << axis << ": " << worst << " and not " << limit);
}

constexpr Fft::Kind kKinds[] = {Fft::kForward, Fft::kInverse, Fft::kRealForward, Fft::kRealInverse};

bool there(Pair& pair) {
  const Case c{Fft::kForward, false};
  const Status status = pair.cuda->supports(fft_step(Array::contiguous(c.in(), {1}), c, {1}, 0, 1, 1).op);
  if (status) return true;
  CHECK(status.error().code == Errc::kUnsupported);
  MESSAGE("skipped: " << status.error().message);
  return false;
}

TEST_CASE("Fourier transforms on CUDA") {
  Pair pair;
  if (!there(pair)) return;
  Prng prng(91);
  for (const bool narrow : {true, false})
    for (const Fft::Kind kind : kKinds)
      for (const double scale : {1.0, 0.5}) {
        const Case c{kind, narrow};
        must(pair.cuda->prepare(fft_step(Array::contiguous(c.in(), {1}), c, {1}, 0, 1, scale).op), "fft");
      }
  for (const bool narrow : {true, false})
    for (const Fft::Kind kind : kKinds)
      for (const bool contiguous : {true, false}) {
        const Case c{kind, narrow};
        for (const std::int64_t n : {1, 2, 3, 8, 31, 60, 64, 97}) check(pair, prng, c, {n}, 0, contiguous);
        check(pair, prng, c, {3, 5, 7}, 0, contiguous);
        check(pair, prng, c, {3, 5, 7}, 1, contiguous);
        check(pair, prng, c, {3, 5, 7}, 2, contiguous);
        check(pair, prng, c, {2, 1, 4, 9}, 1, contiguous);
      }
}

// More lines than scratch has room for, and more shapes than plans are kept: a transform there and back again.
TEST_CASE("Fourier transforms on CUDA, a part of the lines at a time") {
  Pair pair;
  if (!there(pair)) return;
  const std::int64_t n = 1 << 19;
  const ir::Shape shape{n, 9};
  Array x = Array::contiguous(DType::kComplex64, shape);
  auto* const in = reinterpret_cast<float*>(x.bytes.data());
  for (std::int64_t i = 0; i < 2 * x.volume(); ++i) in[i] = static_cast<float>(i * 7919 % 1009) / 1009;
  Step ahead = fft_step(x, {Fft::kForward, true}, shape, 0, n, 1);
  run(pair.gpu, ahead);
  Step back = fft_step(ahead.outputs[0], {Fft::kInverse, true}, shape, 0, n, 1 / static_cast<double>(n));
  run(pair.gpu, back);
  const auto* const out = reinterpret_cast<const float*>(back.outputs[0].bytes.data());
  double worst = 0;
  for (std::int64_t i = 0; i < 2 * x.volume(); ++i)
    worst = std::max(worst, static_cast<double>(std::abs(in[i] - out[i])));
  CHECK(worst < 1e-5);
  Prng prng(92);
  for (std::int64_t length = 2; length < 90; ++length)
    check(pair, prng, {Fft::kForward, false}, {length}, 0, true);
  check(pair, prng, {Fft::kForward, false}, {2}, 0, true);
}

TEST_CASE("cluster: Fourier transforms of cut arrays on a GPU") {
  auto started = embedded::Cluster::start({.workers = 1, .memory_bytes = std::int64_t{1} << 28});
  REQUIRE(started.has_value());
  Session s =
      make_session((*started)->connect("gpu_check"), {.seed = 1, .timeout = std::chrono::seconds(120)});
  const tilewise::Array a = s.random.uniform({60, 48}, {.block = {16, 20}});
  try {
    fft::fft(a).persist().wait();
  } catch (const ArrayError& e) {
    if (e.code() != Errc::kNotFound) throw;
    MESSAGE("skipped: neither cuFFT nor FFTW is there");
    return;
  }
  const tilewise::Array back = fft::irfft(fft::rfft(a, {}, 0), 60, 0);
  CHECK(max(abs(back - a)).item<double>() < 1e-13);
  CHECK(max(abs(fft::ifftn(fft::fftn(a.astype(DType::kComplex128))) - a)).item<double>() < 1e-13);
}

}  // namespace
}  // namespace tilewise::gpu
