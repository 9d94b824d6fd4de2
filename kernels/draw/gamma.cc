// Gamma numbers by rejection (Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000). Each
// attempt has counters of its own, made of the element's position in the whole array and the attempt's number: so a number
// depends on key and position alone, whatever blocks, threads and other elements do.
#include "draw/draw.h"

#include <tilewise/kernels/random_spec.h>

#include <bit>
#include <cmath>

#include "call/builtin.h"

namespace tilewise::kernels::draw {
namespace {

using namespace builtin;
using random_spec::u32;
using random_spec::u64;

// Words of one attempt: `purpose` keeps the draws of an element apart, and from those of arrays made of tapes (0).
random_spec::Words draw(u64 key, u64 element, u32 attempt, u32 purpose) {
  return random_spec::philox(
      random_spec::Words{{static_cast<u32>(element), static_cast<u32>(element >> 32), attempt, purpose}},
      static_cast<u32>(key), static_cast<u32>(key >> 32));
}
// In (0, 1], so that it has a logarithm.
double unit(const random_spec::Words& x, int at) {
  const u64 bits = (x.w[at] | (u64{x.w[at + 1]} << 32)) >> 11;
  return static_cast<double>((u64{1} << 53) - bits) * 0x1.0p-53;
}

constexpr u32 kNormal = 1, kAccept = 2;
constexpr u32 kAttempts = 1'000;  // each is refused with a chance below 0.05

// alpha > 0; scale 1.
double gamma_number(u64 key, u64 element, double alpha) {
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  double result = d;
  for (u32 attempt = 0; attempt < kAttempts; ++attempt) {
    const random_spec::Words x = draw(key, element, attempt, kNormal),
                             y = draw(key, element, attempt, kAccept);
    const double normal = std::sqrt(-2 * std::log(unit(x, 0))) * std::cos(random_spec::kTwoPi * unit(x, 2));
    const double t = 1 + c * normal, v = t * t * t;
    if (v <= 0) continue;
    if (std::log(unit(y, 0)) >= 0.5 * normal * normal + d - d * v + d * std::log(v)) continue;
    result = d * v;
    // Below one: a number of alpha + 1 times a power of a uniform one.
    if (alpha < 1) result *= std::pow(unit(y, 2), 1 / alpha);
    break;
  }
  return result;
}

}  // namespace

int gamma(const tilewise_call_v1* call) {
  ir::builtin::Gamma p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1& out = call->outputs[0];
  const bool narrow = out.dtype == TILEWISE_FLOAT32;
  if (!narrow && out.dtype != TILEWISE_FLOAT64)
    return refuse(call, kFailed, "draws float32 and float64 only");
  const double alpha = std::bit_cast<double>(p.alpha_bits), scale = std::bit_cast<double>(p.scale_bits);
  const ir::Shape shape = shape_of(out), space(call->space, call->space + call->rank);
  const std::int64_t n = volume(out);
  for (std::int64_t i = 0; i < n; ++i) {
    ir::Index at = ir::unravel(i, shape);
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += call->box_lo[d];
    const double x =
        scale * gamma_number(static_cast<u64>(p.key), static_cast<u64>(ir::ravel(at, space)), alpha);
    if (narrow)
      static_cast<float*>(out.data)[i] = static_cast<float>(x);
    else
      static_cast<double*>(out.data)[i] = x;
  }
  return 0;
}

}  // namespace tilewise::kernels::draw
