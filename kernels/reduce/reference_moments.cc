// Moments in long double and two passes; partials joined by the textbook's formula, each operation rounded as the contract says.
#include "reduce/reference_moments.h"

#include <cmath>

#include "map/reference.h"

namespace tilewise::kernels::reduce {
namespace {

using map::RefValue;

void store(const TensorView& out, std::int64_t at, double value) {
  RefValue v;
  v.f = value;
  map::ref_store(out, at, v);
}

double rounded(ir::DType dtype, long double value) {
  return dtype == ir::DType::kFloat32 ? static_cast<double>(static_cast<float>(value))
                                      : static_cast<double>(value);
}

struct Part {
  double count = 0, sum = 0, shift = 0, squares = 0;
};

Part joined(const Part& a, const Part& b, ir::DType dtype) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  Part c;
  c.count = a.count + b.count;
  c.sum = rounded(dtype, static_cast<long double>(a.sum + b.sum));  // of two floats exact in double
  const double mean_a = a.sum / a.count, mean_b = b.sum / b.count, mean_c = c.sum / c.count;
  const double between = mean_b - mean_a, shifts = b.shift - a.shift, off = between + shifts;
  const double part = b.count / c.count;
  const double moved = off * part, left = mean_a - mean_c, shift = a.shift + moved;
  c.shift = left + shift;
  const double inside = a.squares + b.squares, square = off * off, weight = a.count * part;
  const double across = square * weight;
  c.squares = inside + across;
  return c;
}

}  // namespace

Status reference_moments(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::ReduceAttrs>();
  const ir::DType dtype = call.outputs[ir::kMomentSum].dtype;
  const ir::Shape shape = call.box.shape();
  ir::Shape kept = shape;
  for (std::size_t d = 0; d < kept.size(); ++d)
    if (attrs.axes >> d & 1) kept[d] = 1;
  struct Sums {
    double count = 0;
    long double sum = 0, lost = 0, squares = 0;  // lost: by rounding the sum (A. Neumaier, 1974)
  };
  std::vector<Sums> all(static_cast<std::size_t>(ir::volume(kept)));
  const auto each = [&](const auto& visit) {
    for (std::int64_t i = 0; i < ir::volume(shape); ++i) {
      const map::RefSite at = map::ref_site(call, shape, i);
      ir::Index to = at.local;
      for (std::size_t d = 0; d < to.size(); ++d)
        if (attrs.axes >> d & 1) to[d] = 0;
      visit(all[static_cast<std::size_t>(ir::ravel(to, kept))],
            map::ref_cast(map::ref_tape(attrs.tape, at), attrs.tape.result(), dtype).f);
    }
  };
  each([](Sums& s, double x) {
    s.count += 1;
    const long double sum = s.sum + x;
    s.lost += std::fabs(s.sum) < std::fabs(x) ? x - sum + s.sum : s.sum - sum + x;
    s.sum = sum;
  });
  for (Sums& s : all)
    if (std::isfinite(s.sum)) s.sum += s.lost;
  each([](Sums& s, double x) {
    const long double off = x - s.sum / s.count;
    s.squares += off * off;
  });
  for (std::size_t o = 0; o < all.size(); ++o) {
    const Sums& s = all[o];
    const auto at = static_cast<std::int64_t>(o);
    const double sum = rounded(dtype, s.sum);
    store(call.outputs[ir::kMomentCount], at, s.count);
    store(call.outputs[ir::kMomentSum], at, sum);
    store(call.outputs[ir::kMomentShift], at,
          s.count == 0 ? 0 : static_cast<double>(s.sum / s.count - static_cast<long double>(sum / s.count)));
    store(call.outputs[ir::kMomentSquares], at, static_cast<double>(s.squares));
  }
  return {};
}

Status reference_join(const KernelCall& call) {
  const auto axis = static_cast<std::size_t>(call.op->get<ir::CombineAttrs>().axis);
  const ir::DType dtype = call.outputs[ir::kMomentSum].dtype;
  const bool reads = !call.inputs.empty() && call.inputs[0].data != nullptr;
  ir::Shape rest;
  if (reads) rest = call.inputs[0].shape;
  const std::int64_t parts = reads ? rest[axis] : 0;
  if (reads) rest[axis] = 1;
  const std::int64_t total = ir::volume(call.outputs[0].shape);
  const auto load = [](const auto& views, const ir::Index& at, bool flat, std::int64_t volume) {
    const auto number = [&](ir::MomentPart p) {
      TensorView view = views[p];
      if (flat) view.shape = {volume}, view.strides = {1};
      return map::ref_load(view, at).f;
    };
    return Part{number(ir::kMomentCount), number(ir::kMomentSum), number(ir::kMomentShift),
                number(ir::kMomentSquares)};
  };
  for (std::int64_t o = 0; o < total; ++o) {
    Part sum = call.step > 0 ? load(call.outputs, {o}, true, total) : Part{};
    for (std::int64_t part = 0; part < parts; ++part) {
      ir::Index at = ir::unravel(o, rest);
      at[axis] = part;
      sum = joined(sum, load(call.inputs, at, false, total), dtype);
    }
    store(call.outputs[ir::kMomentCount], o, sum.count);
    store(call.outputs[ir::kMomentSum], o, sum.sum);
    store(call.outputs[ir::kMomentShift], o, sum.shift);
    store(call.outputs[ir::kMomentSquares], o, sum.squares);
  }
  return {};
}

}  // namespace tilewise::kernels::reduce
