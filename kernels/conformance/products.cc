// Products: dtypes, strides, thin and empty extents, panels accumulated into memory that held NaN.
#include <tilewise/ir/verify.h>

#include <cmath>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;

Array matrices(Prng& prng, DType t, const ir::Shape& stack, std::int64_t rows, std::int64_t cols,
               bool plain) {
  ir::Shape shape = stack;
  shape.push_back(rows);
  shape.push_back(cols);
  Array a = random_layout(prng, t, shape, plain);
  if (prng.chance(0.3))  // one matrix for all of them
    for (std::size_t d = 0; d < stack.size(); ++d) a.strides[d] = 0;
  fill_random(prng, a, false);
  if (!ir::is_floating(t) && !ir::is_complex(t))
    for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, 0, static_cast<std::int64_t>(prng.next()));
  return a;
}

void check_product(const Step& got, const Step& want, std::int64_t depth, double magnitude,
                   bool rounds_factors, const std::string& what) {
  const Array &g = got.outputs[0], &w = want.outputs[0];
  const bool complex = ir::is_complex(w.dtype);
  if (!ir::is_floating(w.dtype) && !complex) return check_same(g, w, what);
  const double eps = rounds_factors                                               ? 0x1p-10
                     : w.dtype == DType::kFloat32 || w.dtype == DType::kComplex64 ? 0x1p-24
                                                                                  : 0x1p-53;
  const double bound = static_cast<double>((complex ? 2 : 1) * depth + 2) * eps * magnitude;
  for (std::int64_t e = 0; e < w.volume(); ++e) {
    if (complex && !(std::fabs(g.imaginary(e) - w.imaginary(e)) <= bound)) {
      FAIL("" << what << ": the imaginary part of element " << e << " is " << g.imaginary(e) << ", not "
              << w.imaginary(e) << " +- " << bound);
    }
    if (!(std::fabs(g.as_double(e) - w.as_double(e)) <= bound)) {
      FAIL("" << what << ": element " << e << " is " << g.as_double(e) << ", not " << w.as_double(e) << " +- "
              << bound);
    }
  }
}

double largest(const Array& a) {
  double most = 0;
  for (std::int64_t e = 0; e < a.volume(); ++e)
    most =
        std::max(most, std::fabs(a.as_double(e)) + (ir::is_complex(a.dtype) ? std::fabs(a.imaginary(e)) : 0));
  return most;
}

void one(const Subject& subject, Prng& prng, DType t, std::int64_t m, std::int64_t n, std::int64_t k,
         int panels, bool plain, bool panel_op, const ir::Shape& stack = {}) {
  const DType product = ir::product_dtype(t);
  Step got;
  got.op.kind = panel_op ? ir::OpKind::kMatmulPanels : ir::OpKind::kMatmul;
  const bool tf32 = t == DType::kFloat32 && prng.chance(0.4);
  got.op.attrs = ir::MatmulAttrs{0, tf32};
  got.op.outputs.resize(1);
  got.op.outputs[0].dtype = product;
  ir::Shape shape = panel_op ? ir::Shape{1} : stack;
  shape.push_back(m);
  shape.push_back(n);
  got.box = ir::box_of(shape);
  got.space = shape;
  ir::Shape block = shape;
  for (std::int64_t& extent : block) extent = std::max<std::int64_t>(1, extent);
  got.op.space = *ir::Grid::uniform(shape, block);  // scratch memory is by it
  got.outputs.push_back(Array::contiguous(product, shape));
  for (std::byte& b : got.outputs[0].bytes) b = std::byte{0xFF};
  Step want = got;
  got.steps = panels;
  double magnitude = 0;
  for (got.step = 0; got.step < got.steps; ++got.step) {
    got.inputs = {matrices(prng, t, stack, m, k, plain), matrices(prng, t, stack, k, n, plain)};
    if (k == 0 && prng.chance(0.5)) got.inputs[0].absent = got.inputs[1].absent = true;
    magnitude +=
        largest(got.inputs[0]) * largest(got.inputs[1]) * static_cast<double>(std::max<std::int64_t>(1, k));
    want.inputs = got.inputs;
    want.step = got.step;
    want.steps = got.steps;
    run(subject, got);
    run_reference(want);
    check_product(got, want, k * (got.step + 1), magnitude,
                  tf32 && subject.device.info().kind == device::Kind::kCuda,  // hosts multiply as ever
                  std::string(ir::name_of(t)) + " " + std::to_string(m) + " x " + std::to_string(k) + " x " +
                      std::to_string(n) + " step " + std::to_string(got.step));
  }
}

}  // namespace

void conform_products(const Subject& subject) {
  Prng prng(subject.seed + 20);
  for (int round = 0; round < subject.share_of(120); ++round) {
    constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32,  DType::kComplex64, DType::kComplex128,
                                DType::kFloat16, DType::kBFloat16, DType::kInt32,     DType::kInt64};
    const DType t = kTypes[prng.below(subject.integer_matmul ? 8 : 6)];
    const auto extent = [&] { return prng.chance(0.2) ? prng.between(0, 2) : prng.between(1, 70); };
    const bool panel_op = prng.chance(0.2);
    one(subject, prng, t, extent(), extent(), extent(), static_cast<int>(prng.between(1, 3)),
        prng.chance(0.4), panel_op);
    const auto few = [&] { return prng.between(1, 9); };
    const ir::Shape stack =
        prng.chance(0.5) ? ir::Shape{prng.between(0, 5)} : ir::Shape{prng.between(1, 3), 4};
    one(subject, prng, t, few(), few(), few(), static_cast<int>(prng.between(1, 2)), prng.chance(0.4), false,
        stack);
  }
  for (const std::int64_t k : {63, 64, 65, 129, 513}) {
    one(subject, prng, DType::kFloat64, 33, 17, k, 2, true, false);
    one(subject, prng, DType::kFloat64, 1, 40, k, 1, true, false);
    for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
      one(subject, prng, half, 33, 17, k, 2, true, false);
      one(subject, prng, half, 257, 3, k, 2, false, false);
      one(subject, prng, half, 3, 2049, k, 1, k < 513, false);
    }
    one(subject, prng, DType::kFloat64, 40, 1, k, 1, true, false);
    if (subject.integer_matmul) one(subject, prng, DType::kInt64, 9, 600, k, 1, true, false);
  }
}

}  // namespace tilewise::kernels::conformance
