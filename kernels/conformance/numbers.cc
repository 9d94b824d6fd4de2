// Built-in kernels that compute numbers: gamma numbers, Fourier transforms.
#include <bit>
#include <cmath>

#include "conformance/calls.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::builtin::Fft;

// The reference's within a few last places; another answer of log or cos may change what is accepted, of one number in many.
void gammas(const Subject& subject) {
  for (const DType t : {DType::kFloat32, DType::kFloat64}) {
    for (const double alpha : {0.3, 1.0, 2.5, 40.0}) {
      const ir::Shape space = {70, 90};
      ir::builtin::Gamma p{.key = 99,
                           .alpha_bits = std::bit_cast<std::int64_t>(alpha),
                           .scale_bits = std::bit_cast<std::int64_t>(1.5)};
      Step step = call_step(p, {30, 41}, {}, {result(t, {30, 41})});
      step.box = {{7, 9}, {37, 50}};
      step.space = space;
      Step want = step;
      run(subject, step);
      run_reference(want);
      const double last = t == DType::kFloat32 ? 0x1p-23 : 0x1p-52;
      int other = 0;
      for (std::int64_t e = 0; e < want.outputs[0].volume(); ++e) {
        const double g = step.outputs[0].as_double(e), w = want.outputs[0].as_double(e);
        // Below one a power with exponent 1 / alpha magnifies.
        other += !(std::fabs(g - w) <= 64 * (1 + 1 / alpha) * last * w);
      }
      CHECK_MESSAGE(other <= 2, name_of(t) << " alpha " << alpha << ": " << other << " differ");
    }
  }
}

// Each number within a few roundings a level of the sum of all magnitudes.
void transforms(const Subject& subject) {
  Prng prng(subject.seed + 58);
  const std::int64_t lengths[] = {1,  2,  3,  4,  5,  7,   8,   12,  13,  16,
                                  30, 31, 60, 64, 97, 100, 128, 210, 251, 256};
  for (int round = 0; round < 160; ++round) {
    const std::int64_t kind = round % 4, n = lengths[prng.below(std::size(lengths))];
    const bool narrow = prng.chance(0.5);
    const DType real = narrow ? DType::kFloat32 : DType::kFloat64,
                complex = narrow ? DType::kComplex64 : DType::kComplex128;
    ir::Shape shape = {n};
    while (shape.size() < 4 && ir::volume(shape) < 600 && prng.chance(0.6))
      shape.push_back(prng.between(1, 12));
    const std::size_t axis = prng.below(shape.size());
    std::swap(shape[0], shape[axis]);
    ir::Shape in = shape, out = shape;
    if (kind == Fft::kRealInverse) in[axis] = n / 2 + 1;
    if (kind == Fft::kRealForward) out[axis] = n / 2 + 1;
    Array x = random_layout(prng, kind == Fft::kRealForward ? real : complex, in, prng.chance(0.3));
    for (std::int64_t e = 0; e < x.volume(); ++e) x.set(e, prng.uniform() * 2 - 1, 0, prng.uniform() * 2 - 1);
    const double scale = prng.chance(0.5) ? 1 : 1 / std::sqrt(static_cast<double>(n));
    const Fft params{static_cast<std::int64_t>(axis), kind, n, std::bit_cast<std::int64_t>(scale)};
    Step step =
        call_step(params, out, {std::move(x)}, {result(kind == Fft::kRealInverse ? real : complex, out)});
    if (const Status there = subject.kernels.supports(step.op); !there) {
      MESSAGE("Fourier transforms skipped: " << there.error().message);
      return;
    }
    Step want = step;
    run(subject, step);
    run_reference(want);
    const double last = narrow ? 0x1p-23 : 0x1p-52, levels = std::log2(static_cast<double>(n));
    std::int64_t rest = n;
    for (const std::int64_t factor : {2, 3, 5, 7, 11, 13})
      while (rest % factor == 0) rest /= factor;
    const double transforms = rest > 1 ? 3 : 1;  // large primes take a convolution
    const double limit =
        transforms * (2 + 2 * levels) * last * scale * std::sqrt(2.0 * static_cast<double>(n));
    for (std::int64_t e = 0; e < want.outputs[0].volume(); ++e) {
      const double off = std::hypot(step.outputs[0].as_double(e) - want.outputs[0].as_double(e),
                                    step.outputs[0].imaginary(e) - want.outputs[0].imaginary(e));
      if (off <= limit) continue;
      FAIL(text("transform of kind " + std::to_string(kind), real, shape, axis)
           << ": element " << e << " is off by " << off << ", not " << limit);
    }
  }
}

}  // namespace

void conform_numbers(const Subject& subject) {
  gammas(subject);
  transforms(subject);
}

}  // namespace tilewise::kernels::conformance
