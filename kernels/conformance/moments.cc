// Moments against two passes in long double, near and far from zero, on both sides of every size where the method changes;
// their sum against the sum's; partials joined.
#include <cmath>
#include <limits>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::TapeOp;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64};

Step moment_step(DType t, Array input, std::uint32_t axes, bool fused) {
  Step step;
  step.op.kind = ir::OpKind::kReduceBlocks;
  ir::Tape tape{{instr(TapeOp::kLoad, t)}};
  if (fused) {
    tape.code.push_back(instr(TapeOp::kNeg, t, 0));
    tape.code.push_back(instr(TapeOp::kNeg, t, 1));
  }
  step.op.attrs = ir::ReduceAttrs{tape, ReduceKind::kMoments, axes};
  ir::Shape kept = input.shape;
  for (std::size_t d = 0; d < kept.size(); ++d)
    if (axes >> d & 1) kept[d] = 1;
  for (const DType part : {DType::kFloat64, t, DType::kFloat64, DType::kFloat64}) {
    step.outputs.push_back(Array::contiguous(part, kept));
    step.op.outputs.push_back({});
    step.op.outputs.back().dtype = part;
  }
  step.box = ir::box_of(input.shape);
  step.space = input.shape;
  step.inputs.push_back(std::move(input));
  return step;
}

long double mean_of(const Step& s, std::int64_t e) {
  const double n = s.outputs[ir::kMomentCount].as_double(e);
  // As readers of partials take it: the quotient in double.
  return static_cast<long double>(s.outputs[ir::kMomentSum].as_double(e) / n) +
         s.outputs[ir::kMomentShift].as_double(e);
}

// Means and squares as kernels/README.md promises; `got` may round in float where the elements are.
void check_moments(const Step& got, const Step& want, DType t, const std::string& what) {
  const double u = t == DType::kFloat32 ? 0x1p-24 : 0x1p-53;
  for (std::int64_t e = 0; e < want.outputs[0].volume(); ++e) {
    const std::string at = what + ": output " + std::to_string(e);
    const double n = want.outputs[ir::kMomentCount].as_double(e);
    REQUIRE_MESSAGE(got.outputs[ir::kMomentCount].as_double(e) == n, at);
    const double g = got.outputs[ir::kMomentSquares].as_double(e),
                 w = want.outputs[ir::kMomentSquares].as_double(e);
    if (n == 0) {
      CHECK_MESSAGE(g == 0, at);
      continue;
    }
    if (!std::isfinite(w) || !std::isfinite(want.outputs[ir::kMomentSum].as_double(e))) {
      CHECK_MESSAGE(!std::isfinite(g), at);
      continue;
    }
    const double k = w == 0 ? 0 : static_cast<double>(std::fabs(mean_of(want, e))) / std::sqrt(w / n);
    const double roundings = (150 + 12 * std::log2(n / 64 + 1)) * (1 + std::pow(70 * u * k, 2));
    if (!(std::fabs(g - w) <= roundings * u * w)) FAIL("" << at << ": squares are " << g << ", not " << w);
    const double off = static_cast<double>(std::fabs(mean_of(got, e) - mean_of(want, e)));
    const double bound =
        roundings * u * std::sqrt(w / n) + 2 * 0x1p-53 * std::fabs(static_cast<double>(mean_of(want, e)));
    if (!(off <= bound)) FAIL("" << at << ": the mean is off by " << off << ", not " << bound);
  }
}

void one(const Subject& subject, DType t, const Array& input, std::uint32_t axes, bool fused) {
  Step step = moment_step(t, input, axes, fused), want = step;
  run(subject, step);
  run_reference(want);
  const std::string what = "moments of " + std::string(ir::name_of(t)) + ir::to_string(input.shape) +
                           " axes " + std::to_string(axes) + (fused ? ", fused" : "");
  check_moments(step, want, t, what);
  // The sum is the sum, whatever is carried beside it.
  Step sum = step;
  sum.op.attrs = ir::ReduceAttrs{step.op.get<ir::ReduceAttrs>().tape, ReduceKind::kSum, axes};
  sum.outputs = {Array::contiguous(t, step.outputs[0].shape)};
  sum.op.outputs.resize(1);
  sum.op.outputs[0].dtype = t;
  run(subject, sum);
  check_same(step.outputs[ir::kMomentSum], sum.outputs[0], "sum beside " + what);
  // Neither the layout nor what is fused has a say.
  Array flat = Array::contiguous(t, input.shape);
  for (std::int64_t e = 0; e < flat.volume(); ++e) flat.set(e, input.as_double(e), 0);
  Step again = moment_step(t, flat, axes, !fused);
  run(subject, again);
  for (std::size_t o = 0; o < step.outputs.size(); ++o)
    check_same(again.outputs[o], step.outputs[o], "another layout: " + what);
}

// mean + noise, noise of magnitude 1.
void fill_far(Prng& prng, Array& array, double mean) {
  for (std::int64_t e = 0; e < array.volume(); ++e) array.set(e, mean + 2 * prng.uniform() - 1, 0);
}

void random_moments(const Subject& subject) {
  Prng prng(subject.seed + 14);
  for (int round = 0; round < subject.share_of(200); ++round) {
    const ir::Shape shape = random_shape(prng, 4, round % 8 == 0 ? 40000 : 3000);
    const auto axes = static_cast<std::uint32_t>(prng.below(std::uint64_t{1} << shape.size()));
    const DType t = kTypes[prng.below(2)];
    Array input = random_layout(prng, t, shape, prng.chance(0.4));
    // A far mean: float32 has 24 bits for it and the noise.
    const double far = t == DType::kFloat32 ? 1e4 : 1e9;
    fill_far(prng, input, prng.chance(0.5) ? 0 : prng.chance(0.5) ? far : -far);
    if (prng.chance(0.2) && input.volume() > 0) {
      const double odd[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(), far * far};
      input.set(static_cast<std::int64_t>(prng.below(static_cast<std::uint64_t>(input.volume()))),
                odd[prng.below(4)], 0);
    }
    one(subject, t, input, axes, prng.chance(0.5));
  }
}

void sizes(const Subject& subject) {
  Prng prng(subject.seed + 15);
  constexpr std::int64_t kLengths[] = {0,  1,   2,   15,   16,   17,   31,   32,   63,   64,
                                       65, 255, 512, 1023, 1024, 1025, 2047, 2049, 4097, 70001};
  for (const std::int64_t n : kLengths) {
    for (const DType t : kTypes) {
      const auto check = [&](const ir::Shape& shape, std::uint32_t axes) {
        Array input = Array::contiguous(t, shape);
        fill_far(prng, input, 100);
        one(subject, t, input, axes, false);
      };
      check({n}, 1);
      check({5, n}, 1);
      check({5, n}, 2);
      if (n > 5000) continue;
      for (const std::int64_t narrow : {2, 31, 32, 33, 127, 128, 129, 300})
        if (n * narrow < 80000) check({n, narrow}, 1);
      if (n < 300) check({2, n, 3, 7}, 1u | 4u);
    }
  }
}

// Elements that are all alike have no variance, however they round; one more that is not has it exactly.
void degenerate(const Subject& subject) {
  for (const DType t : kTypes)
    for (const std::int64_t n : {1, 7, 64, 1000, 5000}) {
      Array same = Array::contiguous(t, {n});
      for (std::int64_t e = 0; e < n; ++e) same.set(e, 0.1, 0);
      Step step = moment_step(t, same, 1, false);
      run(subject, step);
      const double scale = same.as_double(0) * same.as_double(0) * static_cast<double>(n);
      const double u = t == DType::kFloat32 ? 0x1p-24 : 0x1p-53;
      CHECK(step.outputs[ir::kMomentSquares].as_double(0) <= scale * std::pow(150 * u, 2));
      CHECK(std::fabs(static_cast<double>(mean_of(step, 0)) - same.as_double(0)) <=
            std::pow(150 * u, 2) + 0x1p-53);
    }
}

void joins(const Subject& subject) {
  Prng prng(subject.seed + 16);
  for (int round = 0; round < subject.share_of(60); ++round) {
    const DType t = kTypes[prng.below(2)];
    ir::Shape shape = random_shape(prng, 3, 3000);
    shape.push_back(prng.between(1, 4));
    const auto axis = static_cast<std::int8_t>(prng.below(shape.size()));
    shape[static_cast<std::size_t>(axis)] = 1;
    const DType dtypes[] = {DType::kFloat64, t, DType::kFloat64, DType::kFloat64};
    Step got;
    got.op.kind = ir::OpKind::kCombine;
    got.op.attrs = ir::CombineAttrs{ReduceKind::kMoments, axis, 16};
    got.box = ir::box_of(shape);
    got.space = shape;
    for (const DType part : dtypes) {
      got.outputs.push_back(Array::contiguous(part, shape));
      for (std::byte& b : got.outputs.back().bytes) b = std::byte{0xFF};  // NaN: must not be read
      got.op.outputs.push_back({});
      got.op.outputs.back().dtype = part;
    }
    Step want = got;
    got.steps = prng.between(1, 6);
    for (got.step = 0; got.step < got.steps; ++got.step) {
      got.inputs.clear();
      for (const DType part : dtypes)
        got.inputs.push_back(random_layout(prng, part, shape, prng.chance(0.5)));
      const bool empty = prng.chance(0.2);  // a block of no elements
      for (std::int64_t e = 0; e < got.inputs[0].volume(); ++e) {
        got.inputs[ir::kMomentCount].set(e, empty ? 0 : static_cast<double>(prng.between(1, 9)), 0);
        got.inputs[ir::kMomentSum].set(e, empty ? 0 : prng.uniform() * 1e6, 0);
        got.inputs[ir::kMomentShift].set(e, empty ? 0 : prng.uniform() * 1e-6, 0);
        got.inputs[ir::kMomentSquares].set(e, empty ? 0 : prng.uniform(), 0);
      }
      want.inputs = got.inputs;
      want.step = got.step;
      want.steps = got.steps;
      run(subject, got);
      run_reference(want);
      for (std::size_t o = 0; o < want.outputs.size(); ++o)
        check_equal(got.outputs[o], want.outputs[o],
                    "moments joined, step " + std::to_string(got.step) + " part " + std::to_string(o));
    }
  }
}

}  // namespace

void conform_moments(const Subject& subject) {
  random_moments(subject);
  sizes(subject);
  degenerate(subject);
  joins(subject);
}

}  // namespace tilewise::kernels::conformance
