// Line by line, element by element, in the order that scan.h states.
#include <vector>

#include "map/reference.h"
#include "scan/scan.h"

namespace tilewise::kernels::scan {
namespace {

using map::RefValue;

// One addition or product of real numbers, as the op's dtype has it.
struct Arithmetic {
  bool single;
  double add(double a, double b) const {
    return single ? static_cast<float>(a) + static_cast<float>(b) : a + b;
  }
  double mul(double a, double b) const {
    return single ? static_cast<float>(a) * static_cast<float>(b) : a * b;
  }
};

struct Joiner {
  ir::ReduceKind kind;
  ir::DType dtype;

  RefValue operator()(const RefValue& a, const RefValue& b) const {
    const Arithmetic math{dtype == ir::DType::kFloat32 || dtype == ir::DType::kComplex64};
    RefValue v;
    const auto x = static_cast<std::uint64_t>(a.i), y = static_cast<std::uint64_t>(b.i);
    if (kind == ir::ReduceKind::kSum) {
      v.f = math.add(a.f, b.f);
      v.g = math.add(a.g, b.g);
      v.i = static_cast<std::int64_t>(x + y);
    } else if (ir::is_complex(dtype)) {
      if (a.f == 1 && a.g == 0) return b;  // neutral, beside infinities too
      if (b.f == 1 && b.g == 0) return a;
      v.f = math.add(math.mul(a.f, b.f), -math.mul(a.g, b.g));
      v.g = math.add(math.mul(a.f, b.g), math.mul(a.g, b.f));
    } else {
      v.f = math.mul(a.f, b.f);
      v.i = static_cast<std::int64_t>(x * y);
    }
    if (dtype == ir::DType::kInt32) v.i = static_cast<std::int32_t>(static_cast<std::uint32_t>(v.i));
    return v;
  }
};

// The inclusive scan of one line, without its carry.
std::vector<RefValue> running(const std::vector<RefValue>& x, const Joiner& join) {
  std::vector<RefValue> out;
  for (std::size_t g = 0; g < x.size(); g += 4) {
    std::vector<RefValue> local{x[g]};
    if (g + 1 < x.size()) local.push_back(join(x[g], x[g + 1]));
    if (g + 2 < x.size()) local.push_back(join(local[1], x[g + 2]));
    if (g + 3 < x.size()) local.push_back(join(local[1], join(x[g + 2], x[g + 3])));
    const std::size_t before = out.size();
    for (const RefValue& v : local) out.push_back(before == 0 ? v : join(out[before - 1], v));
  }
  return out;
}

}  // namespace

Status reference(const KernelCall& call, const PluginTable*) {
  const auto& attrs = call.op->get<ir::ScanAttrs>();
  const auto axis = static_cast<std::size_t>(attrs.axis);
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  const Joiner join{attrs.kind, out.dtype};
  const bool product = attrs.kind == ir::ReduceKind::kProd;
  const RefValue neutral{product ? 1.0 : -0.0, product || !ir::is_complex(out.dtype) ? 0.0 : -0.0, product};
  ir::Shape lines = in.shape;
  lines[axis] = 1;
  for (std::int64_t l = 0; l < ir::volume(lines); ++l) {
    ir::Index at = ir::unravel(l, lines);
    std::vector<RefValue> x;
    for (at[axis] = 0; at[axis] < in.shape[axis]; ++at[axis]) x.push_back(map::ref_load(in, at));
    at[axis] = 0;
    const TensorView* const carried = carry_of(call);
    const RefValue carry = carried != nullptr ? map::ref_load(*carried, at) : neutral;
    const auto put = [&](std::int64_t i, const RefValue& v) {
      at[axis] = i;
      map::ref_store(out, ir::ravel(at, out.shape), v);
    };
    if (attrs.mode == ir::ScanMode::kExclusive) {
      RefValue now = carry;
      for (std::size_t i = 0; i < x.size(); ++i) {
        put(static_cast<std::int64_t>(i), now);
        now = join(now, x[i]);
      }
      continue;
    }
    const std::vector<RefValue> sums = running(x, join);
    if (attrs.mode == ir::ScanMode::kTotal) {
      put(0, sums.empty() ? neutral : sums.back());
      continue;
    }
    for (std::size_t i = 0; i < sums.size(); ++i)
      put(static_cast<std::int64_t>(i), carried != nullptr ? join(carry, sums[i]) : sums[i]);
  }
  return {};
}

}  // namespace tilewise::kernels::scan
