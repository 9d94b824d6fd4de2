// Marsaglia and Tsang's method as the paper has it, in long double: a normal and a uniform number an attempt, until one is
// accepted. Only the words come from the same generator (random_spec.h), for they are what a gamma number is a function of.
#include <tilewise/kernels/random_spec.h>

#include <bit>
#include <cmath>

#include "call/builtin.h"
#include "call/plain.h"
#include "draw/draw.h"

namespace tilewise::kernels::draw::reference {
namespace {

using builtin::kFailed;
using builtin::read_params;
using builtin::refuse;
using namespace plain;
using Wide = long double;

// Two numbers in (0, 1] of 53 bits each.
struct Uniforms {
  Wide first, second;
};
Uniforms uniforms(std::uint64_t key, std::uint64_t element, unsigned attempt, unsigned purpose) {
  const random_spec::Words counter{
      {static_cast<unsigned>(element), static_cast<unsigned>(element >> 32), attempt, purpose}};
  const random_spec::Words x =
      random_spec::philox(counter, static_cast<unsigned>(key), static_cast<unsigned>(key >> 32));
  const auto one = [&](int at) {
    const std::uint64_t bits = (std::uint64_t{x.w[at + 1]} << 32 | x.w[at]) / 2048;
    return 1 - static_cast<Wide>(bits) / static_cast<Wide>(std::uint64_t{1} << 53);
  };
  return {one(0), one(2)};
}

// For alpha >= 1; `boost`: the other uniform number of the attempt that was accepted.
Wide gamma_from_one(std::uint64_t key, std::uint64_t element, Wide alpha, Wide& boost) {
  const Wide d = alpha - Wide(1) / 3, c = 1 / std::sqrt(9 * d), two_pi = 2 * std::acos(Wide(-1));
  for (unsigned attempt = 0; attempt < 1'000; ++attempt) {
    const Uniforms n = uniforms(key, element, attempt, 1), u = uniforms(key, element, attempt, 2);
    const Wide x = std::sqrt(-2 * std::log(n.first)) * std::cos(two_pi * n.second);
    const Wide v = (1 + c * x) * (1 + c * x) * (1 + c * x);
    boost = u.second;
    if (v > 0 && std::log(u.first) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
  boost = 1;
  return d;
}

// G(alpha) = G(alpha + 1) U^(1 / alpha).
Wide gamma_number(std::uint64_t key, std::uint64_t element, Wide alpha) {
  Wide u = 1;
  if (alpha >= 1) return gamma_from_one(key, element, alpha, u);
  const Wide more = gamma_from_one(key, element, alpha + 1, u);
  return more * std::pow(u, 1 / alpha);
}

}  // namespace

int gamma(const tilewise_call_v1* call) {
  ir::builtin::Gamma p;
  if (!read_params(call, p)) return kFailed;
  const tilewise_view_v1& out = call->outputs[0];
  if (out.dtype != TILEWISE_FLOAT32 && out.dtype != TILEWISE_FLOAT64)
    return refuse(call, kFailed, "draws float32 and float64 only");
  for_each(extents(out), [&](const ir::Index& at) {
    std::uint64_t position = 0;  // C order, in the whole array
    for (int d = 0; d < out.rank; ++d)
      position = position * static_cast<std::uint64_t>(call->space[d]) +
                 static_cast<std::uint64_t>(call->box_lo[d] + at[static_cast<std::size_t>(d)]);
    const Wide x =
        std::bit_cast<double>(p.scale_bits) *
        gamma_number(static_cast<std::uint64_t>(p.key), position, std::bit_cast<double>(p.alpha_bits));
    if (out.dtype == TILEWISE_FLOAT32)
      element<float>(out, at) = static_cast<float>(x);
    else
      element<double>(out, at) = static_cast<double>(x);
  });
  return 0;
}

}  // namespace tilewise::kernels::draw::reference
