// Reductions over random shapes and axes, on both sides of every size where the method changes; partials combined.
#include <cmath>
#include <limits>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::TapeOp;

bool is_arg(ReduceKind k) { return k == ReduceKind::kArgMin || k == ReduceKind::kArgMax; }
bool rounds(ReduceKind k, DType t) {
  return (ir::is_floating(t) || ir::is_complex(t)) && (k == ReduceKind::kSum || k == ReduceKind::kProd);
}

Step reduce_step(ReduceKind kind, DType dtype, Array input, const ir::Box& box, const ir::Shape& space,
                 std::uint32_t axes, bool fused) {
  Step step;
  step.op.kind = ir::OpKind::kReduceBlocks;
  ir::Tape tape{{instr(TapeOp::kLoad, dtype)}};
  if (fused && dtype != DType::kBool) {  // two: a tape of one instruction has other tiles
    tape.code.push_back(instr(TapeOp::kAbs, dtype, 0));
    tape.code.push_back(instr(TapeOp::kAbs, dtype, 1));
  }
  step.op.attrs = ir::ReduceAttrs{tape, kind, axes};
  ir::Shape kept = box.shape();
  for (std::size_t d = 0; d < kept.size(); ++d)
    if (axes >> d & 1) kept[d] = 1;
  step.outputs.push_back(Array::contiguous(dtype, kept));
  if (is_arg(kind)) step.outputs.push_back(Array::contiguous(DType::kInt64, kept));
  for (const Array& a : step.outputs) {
    step.op.outputs.push_back({});
    step.op.outputs.back().dtype = a.dtype;
  }
  step.box = box;
  step.space = space;
  step.inputs.push_back(std::move(input));
  return step;
}

// |error| <= roundings * eps * sum |x|, for any order that adds at most 128 numbers left to right before it branches.
void check_sum(const Step& got, const Step& want, const Step& magnitudes, const std::string& what) {
  const Array& w = want.outputs[0];
  const double eps = w.dtype == DType::kFloat32 ? 0x1p-24 : 0x1p-53;
  const auto per = static_cast<double>(
      std::max<std::int64_t>(1, want.inputs[0].volume() / std::max<std::int64_t>(1, w.volume())));
  for (std::int64_t e = 0; e < w.volume(); ++e) {
    const double g = got.outputs[0].as_double(e), x = w.as_double(e);
    if (!std::isfinite(x)) {
      const bool both = (std::isnan(g) && std::isnan(x)) || g == x;
      CHECK_MESSAGE(both, what);
      continue;
    }
    // A product's roundings add up whatever the order.
    const bool product = want.op.get<ir::ReduceAttrs>().kind == ReduceKind::kProd;
    const double roundings = product ? 2 * per : std::min(per, 128 + std::log2(per + 1));
    const double bound = (roundings * magnitudes.outputs[0].as_double(e) + std::fabs(x)) * eps;
    if (!(std::fabs(g - x) <= bound))
      FAIL("" << what << ": output " << e << " is " << g << ", not " << x << " +- " << bound);
  }
}

void one(const Subject& subject, Prng& prng, ReduceKind kind, DType dtype, const ir::Shape& shape,
         std::uint32_t axes, bool plain, bool edges) {
  ir::Box box;
  ir::Shape space = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    box.lo.push_back(prng.between(0, 4));
    box.hi.push_back(box.lo[d] + shape[d]);
    space[d] = box.hi[d] + prng.between(0, 4);
  }
  Array input = random_layout(prng, dtype, shape, plain);
  fill_random(prng, input, edges);
  if (kind == ReduceKind::kProd && ir::is_floating(dtype)) {
    for (std::int64_t e = 0; e < input.volume(); ++e) input.set(e, 1 + (prng.uniform() - 0.5) * 1e-3, 0);
  }
  if (is_arg(kind) && !edges && prng.chance(0.5)) {  // ties
    for (std::int64_t e = 0; e < input.volume(); ++e)
      input.set(e, static_cast<double>(prng.between(0, 2)), prng.between(0, 2));
  }
  Step step = reduce_step(kind, dtype, input, box, space, axes, prng.chance(0.3));
  Step want = step;
  run(subject, step);
  run_reference(want);
  const std::string what = std::string(ir::name_of(kind)) + " " + std::string(ir::name_of(dtype)) +
                           ir::to_string(shape) + " axes " + std::to_string(axes);
  if (rounds(kind, dtype)) {
    Step magnitudes = reduce_step(kind, dtype, input, box, space, axes, true);
    run_reference(magnitudes);
    check_sum(step, want, magnitudes, what);
    Array flat = Array::contiguous(dtype, shape);  // the order follows from the shape, not from the layout
    for (std::int64_t e = 0; e < flat.volume(); ++e) flat.set(e, input.as_double(e), 0);
    Step again = step;
    again.inputs[0] = flat;
    run(subject, again);
    check_same(again.outputs[0], step.outputs[0], "another layout: " + what);
  } else {
    for (std::size_t o = 0; o < want.outputs.size(); ++o)
      check_equal(step.outputs[o], want.outputs[o], what + " output " + std::to_string(o));
  }
}

DType dtype_for(Prng& prng, ReduceKind kind) {
  constexpr DType kSums[] = {DType::kInt64, DType::kUInt64, DType::kFloat32, DType::kFloat64};
  constexpr DType kOrdered[] = {DType::kInt32, DType::kInt64, DType::kUInt64, DType::kFloat32,
                                DType::kFloat64};
  if (kind == ReduceKind::kAny || kind == ReduceKind::kAll) return DType::kBool;
  if (kind == ReduceKind::kSum || kind == ReduceKind::kProd) return kSums[prng.below(4)];
  return kOrdered[prng.below(std::size(kOrdered))];
}

void random_reductions(const Subject& subject) {
  Prng prng(subject.seed + 10);
  for (int round = 0; round < subject.share_of(400); ++round) {
    const auto kind = static_cast<ReduceKind>(prng.below(8));
    const ir::Shape shape = random_shape(prng, 4, round % 8 == 0 ? 40000 : 3000);
    if (is_arg(kind) && ir::volume(shape) == 0) continue;
    const auto axes = static_cast<std::uint32_t>(prng.below(std::uint64_t{1} << shape.size()));
    one(subject, prng, kind, dtype_for(prng, kind), shape, axes, prng.chance(0.4), prng.chance(0.4));
  }
}

// Sums and products of complex numbers: both parts within the roundings of their order, whatever the layout.
void complex_reductions(const Subject& subject) {
  Prng prng(subject.seed + 13);
  for (int round = 0; round < subject.share_of(120); ++round) {
    const DType t = prng.chance(0.5) ? DType::kComplex64 : DType::kComplex128;
    const auto kind = prng.chance(0.6) ? ReduceKind::kSum : ReduceKind::kProd;
    const ir::Shape shape = random_shape(prng, 4, round % 8 == 0 ? 40000 : 3000);
    const auto axes = static_cast<std::uint32_t>(prng.below(std::uint64_t{1} << shape.size()));
    Array input = random_layout(prng, t, shape, prng.chance(0.4));
    fill_random(prng, input, false);
    if (kind == ReduceKind::kProd)
      for (std::int64_t e = 0; e < input.volume(); ++e)
        input.set(e, 1 + (prng.uniform() - 0.5) * 1e-3, 0, prng.uniform() - 0.5);
    Step step = reduce_step(kind, t, input, ir::box_of(shape), shape, axes, false);
    Step want = step;
    run(subject, step);
    run_reference(want);
    const std::string what = std::string(ir::name_of(kind)) + " " + std::string(ir::name_of(t)) +
                             ir::to_string(shape) + " axes " + std::to_string(axes);
    double largest = 0;
    for (std::int64_t e = 0; e < input.volume(); ++e)
      largest = std::max(largest, std::fabs(input.as_double(e)) + std::fabs(input.imaginary(e)));
    const Array &got = step.outputs[0], &w = want.outputs[0];
    const double eps = t == DType::kComplex64 ? 0x1p-24 : 0x1p-53;
    const auto per = static_cast<double>(
        std::max<std::int64_t>(1, input.volume() / std::max<std::int64_t>(1, w.volume())));
    for (std::int64_t e = 0; e < w.volume(); ++e) {
      const double size = std::fabs(w.as_double(e)) + std::fabs(w.imaginary(e));
      if (!std::isfinite(size)) continue;
      const double bound = kind == ReduceKind::kProd
                               ? 8 * per * eps * size
                               : (std::min(per, 128 + std::log2(per + 1)) + 2) * eps * per * largest;
      const double off = std::max(std::fabs(got.as_double(e) - w.as_double(e)),
                                  std::fabs(got.imaginary(e) - w.imaginary(e)));
      if (!(off <= bound)) FAIL("" << what << ": output " << e << " is off by " << off << ", not " << bound);
    }
    Array flat = Array::contiguous(t, shape);
    for (std::int64_t e = 0; e < flat.volume(); ++e) flat.set(e, input.as_double(e), 0, input.imaginary(e));
    Step again = step;
    again.inputs[0] = flat;
    run(subject, again);
    check_same(again.outputs[0], step.outputs[0], "another layout: " + what);
  }
}

void sizes(const Subject& subject) {
  Prng prng(subject.seed + 11);
  constexpr std::int64_t kLengths[] = {1,   2,   15,  16,  17,   31,   32,   63,   64,   65,   255,  256,
                                       257, 511, 512, 513, 1023, 1024, 1025, 2047, 2049, 4097, 70001};
  for (const std::int64_t n : kLengths) {
    for (const DType t : {DType::kFloat64, DType::kFloat32, DType::kInt64}) {
      one(subject, prng, ReduceKind::kSum, t, {n}, 1, true, false);
      one(subject, prng, ReduceKind::kSum, t, {3, n}, 2, true, false);
      one(subject, prng, ReduceKind::kSum, t, {5, n}, 1, true, false);
      one(subject, prng, ReduceKind::kArgMax, t, {5, n}, 1, true, true);
      one(subject, prng, ReduceKind::kArgMin, t, {n, 2}, 1, true, true);
      one(subject, prng, ReduceKind::kMax, t, {n}, 1, true, true);
      if (n > 5000) continue;
      for (const std::int64_t narrow : {2, 3, 31, 32, 33, 511, 512, 513, 600, 1100})
        if (n * narrow < 80000) one(subject, prng, ReduceKind::kSum, t, {n, narrow}, 1, true, false);
    }
  }
}

Array copy_of(const Array& a, DType t, const ir::Shape& shape) {
  Array out = Array::contiguous(t, shape);
  out.bytes = a.bytes;
  return out;
}

void combines(const Subject& subject) {
  Prng prng(subject.seed + 12);
  for (int round = 0; round < subject.share_of(80); ++round) {
    const auto kind = static_cast<ReduceKind>(prng.below(8));
    DType t = dtype_for(prng, kind);
    if (rounds(kind, t) && prng.chance(0.4))
      t = t == DType::kFloat32 ? DType::kComplex64 : DType::kComplex128;
    ir::Shape shape = random_shape(prng, 3, 3000);
    shape.push_back(prng.between(1, 4));
    const auto axis = static_cast<std::int8_t>(prng.below(shape.size()));
    shape[static_cast<std::size_t>(axis)] = 1;
    Step got;
    got.op.kind = ir::OpKind::kCombine;
    got.op.attrs = ir::CombineAttrs{kind, axis, 16};
    got.op.outputs.resize(is_arg(kind) ? 2 : 1);
    got.op.outputs[0].dtype = t;
    got.box = ir::box_of(shape);
    got.space = shape;
    got.outputs.push_back(Array::contiguous(t, shape));
    if (is_arg(kind)) got.outputs.push_back(Array::contiguous(DType::kInt64, shape));
    for (std::byte& b : got.outputs[0].bytes) b = std::byte{0xFF};  // NaN: must not be read
    Step want = got;
    got.steps = prng.between(1, 6);
    for (got.step = 0; got.step < got.steps; ++got.step) {
      got.inputs.clear();
      got.inputs.push_back(random_layout(prng, t, shape, prng.chance(0.5)));
      fill_random(prng, got.inputs[0], prng.chance(0.3) && kind != ReduceKind::kProd);
      if (is_arg(kind)) {
        got.inputs.push_back(copy_of(Array::contiguous(DType::kInt64, shape), DType::kInt64, shape));
        for (std::int64_t e = 0; e < got.inputs[1].volume(); ++e)
          got.inputs[1].set(e, 0, prng.between(0, 1000) * 8 + got.step);
      }
      // One rounding a step, the reference's too: both follow the order of the steps exactly.
      want.inputs = got.inputs;
      want.step = got.step;
      want.steps = got.steps;
      run(subject, got);
      run_reference(want);
      const std::string what = "combine " + std::string(ir::name_of(kind)) + " " +
                               std::string(ir::name_of(t)) + ir::to_string(shape) + " step " +
                               std::to_string(got.step);
      for (std::size_t o = 0; o < want.outputs.size(); ++o)
        check_equal(got.outputs[o], want.outputs[o], what);
    }
  }
}

}  // namespace

void conform_reductions(const Subject& subject) {
  random_reductions(subject);
  complex_reductions(subject);
  sizes(subject);
  combines(subject);
}

}  // namespace tilewise::kernels::conformance
