// Scans: every dtype, layout, axis and mode, with carries, bit for bit in the order that scan.h states.
#include <cmath>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScanMode;

void one(const Subject& subject, Prng& prng, const ir::Shape& shape, std::size_t axis, ReduceKind kind,
         DType t, ScanMode mode, bool plain) {
  if (mode == ScanMode::kTotal && shape[axis] == 0) return;  // no block is without elements
  Step got;
  got.op.kind = ir::OpKind::kScan;
  got.op.attrs = ir::ScanAttrs{kind, static_cast<std::int8_t>(axis), mode};
  got.op.outputs.resize(1);
  got.op.outputs[0].dtype = t;
  got.box = ir::box_of(shape);
  got.space = shape;
  ir::Shape line = shape;
  line[axis] = 1;
  got.inputs.push_back(random_layout(prng, t, shape, plain));
  fill_random(prng, got.inputs[0], prng.chance(0.3));
  const bool carried = mode != ScanMode::kTotal && prng.chance(0.5);
  if (carried) {
    got.inputs.push_back(random_layout(prng, t, line, plain));
    fill_random(prng, got.inputs[1], false);
  }
  got.op.operands.resize(got.inputs.size());
  got.outputs.push_back(Array::contiguous(t, mode == ScanMode::kTotal ? line : shape));
  for (std::byte& b : got.outputs[0].bytes) b = std::byte{0xFF};
  Step want = got;
  run(subject, got);
  run_reference(want);
  const std::string what = std::string(ir::name_of(kind)) + " scan of " + std::string(ir::name_of(t)) +
                           ir::to_string(shape) + " axis " + std::to_string(axis) + " mode " +
                           std::to_string(static_cast<int>(mode)) + (carried ? " after a carry" : "");
  const bool rounds = ir::is_floating(t) || ir::is_complex(t);
  if (subject.scan_order_is_reference || !rounds) return check_same(got.outputs[0], want.outputs[0], what);
  if (kind == ReduceKind::kProd) return;  // overflow and underflow depend on the order
  // Another order: each result is off by a rounding of every partial sum that it is made of.
  const double eps = t == DType::kFloat32 || t == DType::kComplex64 ? 0x1p-24 : 0x1p-53;
  double largest = 0;
  for (const Array& a : got.inputs)
    for (std::int64_t e = 0; e < a.volume(); ++e)
      largest =
          std::max(largest, std::fabs(a.as_double(e)) + (ir::is_complex(t) ? std::fabs(a.imaginary(e)) : 0));
  const double n = static_cast<double>(shape[axis]) + 1, bound = 4 * n * n * eps * largest;
  for (std::int64_t e = 0; e < want.outputs[0].volume(); ++e)
    if (std::fabs(got.outputs[0].as_double(e) - want.outputs[0].as_double(e)) > bound) FAIL(what);
}

}  // namespace

void conform_scans(const Subject& subject) {
  Prng prng(subject.seed + 40);
  constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32,   DType::kInt32,     DType::kInt64,
                              DType::kUInt64,  DType::kComplex64, DType::kComplex128};
  for (int round = 0; round < 300; ++round) {
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
}

}  // namespace tilewise::kernels::conformance
