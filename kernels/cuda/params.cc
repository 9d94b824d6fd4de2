#include "params.h"

#include <bit>

namespace tilewise::cuda {
namespace {

// n / d for n < 2^31 and d >= 2 is (n * multiplier) >> (32 + shift): Granlund and Montgomery, "Division by invariant
// integers using multiplication", PLDI 1994.
void set_divisor(Walk& walk, int d) {
  const auto divisor = static_cast<std::uint64_t>(walk.extent[d]);
  if (divisor < 2 || walk.wide) return;
  const int log2 = 64 - std::countl_zero(divisor - 1);
  walk.multiplier[d] =
      static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + log2)) + divisor - 1) / divisor);
  walk.shift[d] = static_cast<std::uint32_t>(log2 - 1);
}

}  // namespace

void set_divisors(Walk& walk) {
  std::int64_t count = 1;
  for (int d = 0; d < walk.rank; ++d) count *= walk.extent[d];
  walk.wide = count >= (std::int64_t{1} << 31);
  for (int d = 0; d < walk.rank; ++d) set_divisor(walk, d);
}

Walk merge(const ir::Shape& shape, std::span<const Strided> strided, std::span<Place> places) {
  Walk walk;
  walk.count = 1;
  for (std::size_t s = 0; s < strided.size(); ++s) places[s] = Place{.base = strided[s].base};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    walk.count *= shape[d];
    if (shape[d] == 1) continue;
    const int last = walk.rank - 1;
    bool merges = last >= 0;
    for (std::size_t s = 0; merges && s < strided.size(); ++s)
      merges = places[s].stride[last] == strided[s].strides[d] * shape[d];
    const int at = merges ? last : walk.rank++;
    walk.extent[at] = merges ? walk.extent[at] * shape[d] : shape[d];
    for (std::size_t s = 0; s < strided.size(); ++s) places[s].stride[at] = strided[s].strides[d];
  }
  if (walk.rank == 0) {
    walk.rank = 1;
    walk.extent[0] = 1;
  }
  set_divisors(walk);
  return walk;
}

Strided contiguous(const void* data, const ir::Shape& shape) {
  Strided strided{address(data), {}};
  strided.strides.resize(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strided.strides[d] = step;
    step *= shape[d];
  }
  return strided;
}

}  // namespace tilewise::cuda
