// Each instruction alone, on every dtype it accepts, over a grid of awkward values.
#include <cmath>
#include <complex>
#include <limits>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::TapeOp;

bool transcendental(TapeOp op) {
  switch (op) {
    case TapeOp::kExp:
    case TapeOp::kExpm1:
    case TapeOp::kLog:
    case TapeOp::kLog1p:
    case TapeOp::kSin:
    case TapeOp::kCos:
    case TapeOp::kTan:
    case TapeOp::kTanh:
    case TapeOp::kPow:
    case TapeOp::kAtan2:
    case TapeOp::kAcos:
    case TapeOp::kAcosh:
    case TapeOp::kAsin:
    case TapeOp::kAsinh:
    case TapeOp::kAtan:
    case TapeOp::kAtanh:
    case TapeOp::kCosh:
    case TapeOp::kSinh:
    case TapeOp::kLog2:
    case TapeOp::kLog10:
    case TapeOp::kHypot:
    case TapeOp::kLogaddexp: return true;
    default: return false;
  }
}

std::vector<double> floats(const Subject& subject, DType t, TapeOp op, Prng& prng) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool single = ir::compute_dtype(ir::real_dtype(t)) == DType::kFloat32;
  const bool half = ir::is_half(t);
  std::vector<double> v = {0.0,
                           -0.0,
                           1,
                           -1,
                           2,
                           -2,
                           0.5,
                           -0.5,
                           1.5,
                           -1.5,
                           2.5,
                           -2.5,
                           3,
                           -3,
                           7,
                           10,
                           infinity,
                           -infinity,
                           std::nan(""),
                           1e-5,
                           -1e-5,
                           1e10,
                           -1e10,
                           2147483647.0,
                           -2147483648.0,
                           4294967296.0,
                           9.2e18,
                           -9.3e18,
                           0x1p63,
                           -0x1p63,
                           0x1p31,
                           -0x1p31,
                           -2147483648.5,
                           2147483647.5,
                           0.1,
                           3.14159265358979,
                           1.5707963267948966,
                           6.283185307179586,
                           710.0,
                           -746.0,
                           88.8,
                           -104.0,
                           20.0,
                           -20.0,
                           1e-300,
                           0.99999,
                           half     ? 1e-6
                           : single ? 1e-42
                                    : 1e-310,
                           single ? 3.4e38 : 1.7e308,
                           single ? -3.4e38 : -1.7e308};
  const int extra = ir::arity_of(op) != 1 ? 60 : subject.share_of(half ? 3000 : 20000);
  for (int i = 0; i < extra; ++i) {
    v.push_back((prng.uniform() - 0.5) * std::pow(10.0, static_cast<double>(prng.between(-8, 4))));
    if (ir::arity_of(op) == 1)
      v.push_back(std::ldexp(prng.uniform() - 0.5,
                             static_cast<int>(prng.between(single ? -140 : -1040, single ? 120 : 1000))));
  }
  return v;
}

std::vector<std::int64_t> ints(DType t) {
  std::vector<std::int64_t> v = {0,
                                 1,
                                 -1,
                                 2,
                                 -2,
                                 3,
                                 -3,
                                 7,
                                 -7,
                                 10,
                                 31,
                                 32,
                                 33,
                                 63,
                                 64,
                                 65,
                                 100,
                                 -100,
                                 12345,
                                 -98765,
                                 std::numeric_limits<std::int32_t>::max(),
                                 std::numeric_limits<std::int32_t>::min(),
                                 std::numeric_limits<std::int32_t>::min() + 1};
  if (ir::size_of(t) == 8) {
    for (const std::int64_t x :
         {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(),
          std::numeric_limits<std::int64_t>::min() + 1, std::int64_t{1} << 40, -(std::int64_t{1} << 53) - 1,
          (std::int64_t{1} << 53) + 1, (std::int64_t{1} << 62) + 12345}) {
      v.push_back(x);
    }
  }
  return v;
}

// A vector of all values of a dtype, as f and i.
struct Values {
  std::vector<double> f, g;
  std::vector<std::int64_t> i;
  std::size_t size() const { return f.size(); }
};
Values values_of(const Subject& subject, DType t, TapeOp op, Prng& prng) {
  Values v;
  if (ir::is_complex(t)) {
    const bool one = ir::arity_of(op) == 1;
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> parts = {0.0,   -0.0,  1,        -1,        0.5,          -2,   3.25,
                                       1e-3,  -20,   infinity, -infinity, std::nan(""), 88.9, -709.9,
                                       710.9, 745.5, 1.7e308,  3.3e38,    1e-310,       1e-42};
    for (const double x : parts)
      for (const double y : parts) v.f.push_back(x), v.g.push_back(y);
    for (int k = one ? subject.share_of(4000) : 150; k > 0; --k) {
      const auto part = [&] {
        return (prng.uniform() - 0.5) * std::pow(10.0, static_cast<double>(prng.between(-4, 2)));
      };
      v.f.push_back(part()), v.g.push_back(part());
    }
    v.i.resize(v.f.size());
    return v;
  }
  if (ir::is_floating(t)) {
    v.f = floats(subject, t, op, prng);
    v.i.resize(v.f.size());
  } else {
    v.i = t == DType::kBool ? std::vector<std::int64_t>{0, 1} : ints(t);
    v.f.resize(v.i.size());
  }
  v.g.resize(v.f.size());
  return v;
}

// Argument k of all combinations of values.
std::vector<Array> combinations(const Subject& subject, const std::vector<DType>& types, TapeOp op,
                                Prng& prng) {
  std::vector<Values> values;
  std::int64_t total = 1;
  for (std::size_t k = 0; k < types.size(); ++k) {
    values.push_back(values_of(subject, types[k], op, prng));
    if (k == 2 && values[k].size() > 8) {  // kWhere: enough is enough
      values[k].f.resize(8);
      values[k].i.resize(8);
      values[k].g.resize(8);
    }
    total *= static_cast<std::int64_t>(values[k].size());
  }
  std::vector<Array> arrays;
  std::int64_t repeat = 1;
  for (std::size_t k = 0; k < types.size(); ++k) {
    Array a = Array::contiguous(types[k], {total});
    const auto n = static_cast<std::int64_t>(values[k].size());
    for (std::int64_t e = 0; e < total; ++e) {
      const auto at = static_cast<std::size_t>(e / repeat % n);
      a.set(e, values[k].f[at], values[k].i[at], values[k].g[at]);
    }
    repeat *= n;
    arrays.push_back(std::move(a));
  }
  return arrays;
}

void check_logaddexp(const Step& got, const Step& want, double limit) {
  for (std::int64_t e = 0; e < want.outputs[0].volume(); ++e) {
    const double g = got.outputs[0].as_double(e), w = want.outputs[0].as_double(e);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    double most = std::fabs(w);
    for (const Array& in : want.inputs)
      if (std::isfinite(in.as_double(e))) most = std::max(most, std::fabs(in.as_double(e)));
    if (!(std::fabs(g - w) <= limit * 0x1p-53 * most))
      FAIL("logaddexp of " << want.inputs[0].as_double(e) << " and " << want.inputs[1].as_double(e) << " is "
                           << g << ", not " << w);
  }
}

// Of exp(b log a) in float64: where |b log a| is large, magnitude or angle have no digits left, and of what vanishes the sign
// is chance. Neither is compared.
void forget_chance_of_powers(Step& got, Step& want) {
  using Wide = std::complex<long double>;
  const Array &a = want.inputs[0], &b = want.inputs[1];
  Array &is = got.outputs[0], &should = want.outputs[0];
  for (std::int64_t e = 0; e < should.volume(); ++e) {
    const Wide exponent =
        Wide(b.as_double(e), b.imaginary(e)) * std::log(Wide(a.as_double(e), a.imaginary(e)));
    if (std::abs(exponent) > (should.dtype == DType::kComplex64 ? 80 : 700)) {  // or infinite
      is.set(e, 0, 0);
      should.set(e, 0, 0);
    }
    for (Array* z : {&is, &should}) {
      const double re = z->as_double(e), im = z->imaginary(e);
      z->set(e, re == 0 ? 0 : re, 0, im == 0 ? 0 : im);
    }
  }
}

void one_op(const Subject& subject, TapeOp op, DType out, const std::vector<DType>& args, Prng& prng) {
  ir::Tape tape;
  for (std::size_t k = 0; k < args.size(); ++k) {
    tape.code.push_back(instr(TapeOp::kLoad, args[k], 0, 0, 0, static_cast<std::int64_t>(k)));
  }
  tape.code.push_back(instr(op, out, 0, args.size() > 1 ? 1 : 0, args.size() > 2 ? 2 : 0, 5));
  if (!tape.verify(static_cast<int>(args.size()), args, 1)) return;
  std::vector<Array> inputs = combinations(subject, args, op, prng);
  const ir::Shape shape = inputs[0].shape;
  Step step = map_step(tape, std::move(inputs), ir::box_of(shape), shape);
  Step want = step;
  run(subject, step);
  run_reference(want);
  const std::string what = std::string(ir::name_of(op)) + "." + std::string(ir::name_of(out)) + " of " +
                           std::string(ir::name_of(args[0]));
  // Complex functions and magnitudes are the C library's, or formulas of their own on a GPU.
  const bool is_complex = ir::is_complex(args[0]);
  const bool function =
      transcendental(op) || op == TapeOp::kSqrt || op == TapeOp::kSign || op == TapeOp::kAbs;
  if ((transcendental(op) && ir::is_floating(out)) || (is_complex && function)) {
    if (op == TapeOp::kPow && is_complex && subject.complex_pow_by_exp) forget_chance_of_powers(step, want);
    MESSAGE("" << what << ": " << max_ulps(step.outputs[0], want.outputs[0]) << " ulp");
    if (op == TapeOp::kLogaddexp && out == DType::kFloat64 && subject.logaddexp_cancels)
      return check_logaddexp(step, want, subject.ulps64);
    const bool hard = op == TapeOp::kPow || op == TapeOp::kAtan2 || op == TapeOp::kTan;
    check_ulps(step.outputs[0], want.outputs[0],
               is_complex && op == TapeOp::kPow            ? subject.complex_pow_ulps
               : is_complex                                ? subject.complex_ulps
               : hard                                      ? subject.pow_ulps
               : ir::compute_dtype(out) == DType::kFloat32 ? subject.ulps32
                                                           : subject.ulps64,
               what);
  } else {
    check_same(step.outputs[0], want.outputs[0], what);
  }
}

// Floor division and remainder where the quotient is whole but for some units in the last place, of every size.
void nearly_whole_quotients(const Subject& subject, Prng& prng) {
  for (const DType t : {DType::kFloat64, DType::kFloat32}) {
    const bool single = t == DType::kFloat32;
    const std::int64_t n = 20'000;
    Array a = Array::contiguous(t, {n}), b = a;
    for (std::int64_t e = 0; e < n; ++e) {
      const int scale = static_cast<int>(
          prng.chance(0.1) ? prng.between(single ? -149 : -1074, single ? 100 : 960) : prng.between(-20, 20));
      const double whole =
          std::floor(std::ldexp(1 + prng.uniform(), static_cast<int>(prng.between(0, single ? 26 : 56))));
      double y = std::ldexp(prng.uniform() - 0.5, scale), x;
      if (single) {
        y = static_cast<float>(y);
        auto near = static_cast<float>(y * whole);
        for (auto steps = prng.between(0, 2); steps > 0; --steps)
          near = std::nextafter(near, prng.chance(0.5) ? 3e38f : -3e38f);
        x = near;
      } else {
        x = y * whole;
        for (auto steps = prng.between(0, 2); steps > 0; --steps)
          x = std::nextafter(x, prng.chance(0.5) ? 1e308 : -1e308);
      }
      a.set(e, prng.chance(0.5) ? -x : x, 0);
      b.set(e, y, 0);
    }
    for (const TapeOp op : {TapeOp::kFloorDiv, TapeOp::kRem}) {
      const ir::Tape tape{
          {instr(TapeOp::kLoad, t, 0, 0, 0, 0), instr(TapeOp::kLoad, t, 0, 0, 0, 1), instr(op, t, 0, 1)}};
      Step step = map_step(tape, {a, b}, ir::box_of({n}), {n});
      Step want = step;
      run(subject, step);
      run_reference(want);
      check_same(step.outputs[0], want.outputs[0],
                 std::string(ir::name_of(op)) + " of nearly whole quotients");
    }
  }
}

}  // namespace

void conform_elementwise(const Subject& subject) {
  Prng prng(subject.seed);
  nearly_whole_quotients(subject, prng);
  for (int i = 0; i < static_cast<int>(TapeOp::kCount); ++i) {
    const auto op = static_cast<TapeOp>(i);
    const int arity = ir::arity_of(op);
    if (arity == 0) continue;
    for (int o = 0; o < ir::kDTypeCount; ++o) {
      for (int a = 0; a < ir::kDTypeCount; ++a) {
        const auto out = static_cast<DType>(o), arg = static_cast<DType>(a);
        if (op == TapeOp::kWhere) {
          if (arg == out) one_op(subject, op, out, {DType::kBool, arg, arg}, prng);
        } else {
          one_op(subject, op, out, std::vector<DType>(static_cast<std::size_t>(arity), arg), prng);
        }
      }
    }
  }
}

}  // namespace tilewise::kernels::conformance
