// Scans: every dtype, layout, axis and mode, with carries, bit for bit in the order that scan.h states.
#include <cmath>
#include <limits>
#include <span>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScanMode;

bool inexact(DType t) { return ir::is_floating(t) || ir::is_complex(t); }

Step scan_step(const ir::Shape& shape, std::size_t axis, ReduceKind kind, DType t, ScanMode mode) {
  Step step;
  step.op.kind = ir::OpKind::kScan;
  step.op.attrs = ir::ScanAttrs{kind, static_cast<std::int8_t>(axis), mode};
  step.op.outputs.resize(1);
  step.op.outputs[0].dtype = t;
  step.box = ir::box_of(shape);
  step.space = shape;
  ir::Shape line = shape;
  line[axis] = 1;
  step.outputs.push_back(Array::contiguous(t, mode == ScanMode::kTotal ? line : shape));
  for (std::byte& b : step.outputs[0].bytes) b = std::byte{0xFF};
  return step;
}

std::string name_of(const Step& step) {
  const auto& attrs = step.op.get<ir::ScanAttrs>();
  return std::string(ir::name_of(attrs.kind)) + " scan of " +
         std::string(ir::name_of(step.outputs[0].dtype)) + ir::to_string(step.space) + " axis " +
         std::to_string(attrs.axis) + " mode " + std::to_string(static_cast<int>(attrs.mode)) +
         (step.inputs.size() > 1 ? " after a carry" : "");
}

void one(const Subject& subject, Prng& prng, const ir::Shape& shape, std::size_t axis, ReduceKind kind,
         DType t, ScanMode mode, bool plain) {
  if (mode == ScanMode::kTotal && shape[axis] == 0) return;  // no block is without elements
  Step got = scan_step(shape, axis, kind, t, mode);
  ir::Shape line = shape;
  line[axis] = 1;
  got.inputs.push_back(random_layout(prng, t, shape, plain));
  // In another order what overflows on the way may differ: then all values are ordinary, and compared.
  const bool same_order = subject.scan_order_is_reference || !inexact(t);
  fill_random(prng, got.inputs[0], prng.chance(0.3) && same_order);
  if (mode != ScanMode::kTotal && prng.chance(0.5)) {
    got.inputs.push_back(random_layout(prng, t, line, plain));
    fill_random(prng, got.inputs[1], false);
  }
  got.op.operands.resize(got.inputs.size());
  Step want = got;
  run(subject, got);
  run_reference(want);
  const std::string what = name_of(got);
  if (same_order) return check_same(got.outputs[0], want.outputs[0], what);
  if (kind == ReduceKind::kProd) return;  // overflow and underflow depend on the order
  // Each result is off by a rounding of every partial sum that it is made of, on both sides.
  const double eps = t == DType::kFloat32 || t == DType::kComplex64 ? 0x1p-24 : 0x1p-53;
  double size = 0;
  for (const Array& a : got.inputs)
    for (std::int64_t e = 0; e < a.volume(); ++e)
      size += std::fabs(a.as_double(e)) + (ir::is_complex(t) ? std::fabs(a.imaginary(e)) : 0);
  const double bound = 2 * (static_cast<double>(shape[axis]) + 2) * eps * size;
  const Array &is = got.outputs[0], &should = want.outputs[0];
  for (std::int64_t e = 0; e < should.volume(); ++e) {
    if (!(std::fabs(is.as_double(e) - should.as_double(e)) <= bound)) FAIL(what);
    if (ir::is_complex(t) && !(std::fabs(is.imaginary(e) - should.imaginary(e)) <= bound)) FAIL(what);
  }
}

// Of numbers whose sums and products are exact in every order, so that every element can be compared: whole ones, and units.
// Sometimes an infinity, behind which all sums are infinite.
void exact(const Subject& subject, Prng& prng, const ir::Shape& shape, std::size_t axis, ReduceKind kind,
           DType t, ScanMode mode) {
  Step got = scan_step(shape, axis, kind, t, mode);
  ir::Shape line = shape;
  line[axis] = 1;
  const auto fill = [&](const ir::Shape& extents) {
    Array a = Array::contiguous(t, extents);
    for (std::int64_t e = 0; e < a.volume(); ++e) {
      const std::int64_t v = kind == ReduceKind::kSum ? prng.between(-3, 3) : 1 - 2 * prng.between(0, 1);
      const bool imaginary = ir::is_complex(t) && prng.chance(0.5);
      const auto f = static_cast<double>(v),
                 g = kind == ReduceKind::kSum ? static_cast<double>(prng.between(-3, 3)) : 0;
      a.set(e, imaginary ? g : f, v, imaginary ? f : g);
    }
    return a;
  };
  got.inputs.push_back(fill(shape));
  if (mode != ScanMode::kTotal && prng.chance(0.5)) got.inputs.push_back(fill(line));
  if (kind == ReduceKind::kSum && inexact(t) && prng.chance(0.3)) {
    const std::int64_t n = got.inputs[0].volume();
    got.inputs[0].set(prng.between(n / 2, n - 1), std::numeric_limits<double>::infinity(), 0);
  }
  got.op.operands.resize(got.inputs.size());
  Step want = got;
  run(subject, got);
  run_reference(want);
  check_equal(got.outputs[0], want.outputs[0], "exact " + name_of(got));
}

// Both sides of where a GPU changes its way: short lines, lines side by side, a chunk, several, more than 256 of them.
void chunks(const Subject& subject, Prng& prng) {
  constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32, DType::kInt64, DType::kComplex64,
                              DType::kComplex128};
  const bool host = subject.scan_order_is_reference;  // has one way for all of them: a part is enough
  for (const DType t : std::span(kTypes, host ? 1 : std::size(kTypes)))
    for (const ScanMode mode : {ScanMode::kInclusive, ScanMode::kExclusive, ScanMode::kTotal})
      for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kProd}) {
        for (const std::int64_t n : {63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 8192, 8193})
          exact(subject, prng, {3, n}, 1, kind, t, mode);
        for (const std::int64_t side : {31, 32, 33}) exact(subject, prng, {4097, side}, 0, kind, t, mode);
        exact(subject, prng, {2, 8193, 3}, 1, kind, t, mode);
      }
  if (host) return;
  for (const std::int64_t n : {256 * 4096 - 1, 256 * 4096, 256 * 4096 + 1})
    for (const ScanMode mode : {ScanMode::kInclusive, ScanMode::kTotal}) {
      exact(subject, prng, {n}, 0, ReduceKind::kSum, DType::kFloat32, mode);
      exact(subject, prng, {n}, 0, ReduceKind::kProd, DType::kComplex64, mode);
    }
}

}  // namespace

void conform_scans(const Subject& subject) {
  Prng prng(subject.seed + 40);
  constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32,   DType::kInt32,     DType::kInt64,
                              DType::kUInt64,  DType::kComplex64, DType::kComplex128};
  for (int round = 0; round < subject.share_of(300); ++round) {
    ir::Shape shape = random_shape(prng, 4, 3000);
    if (shape.empty()) shape.push_back(prng.between(1, 50));
    one(subject, prng, shape, prng.below(shape.size()),
        prng.chance(0.6) ? ReduceKind::kSum : ReduceKind::kProd, kTypes[prng.below(7)],
        static_cast<ScanMode>(prng.below(3)), prng.chance(0.4));
  }
  // Both sides of what runs side by side, and of a group of four.
  for (const std::int64_t columns : {1, 2, 511, 512, 513, 1100})
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9})
      for (const std::size_t axis : {0u, 1u})
        one(subject, prng, {rows, columns}, axis, ReduceKind::kSum, DType::kFloat64,
            static_cast<ScanMode>(prng.below(3)), true);
  chunks(subject, prng);
}

}  // namespace tilewise::kernels::conformance
