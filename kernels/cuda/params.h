// Kernel parameters as device/*.cuh declares them, and how regions become them. One layout on both sides.
#pragma once
#include <tilewise/ir/shape.h>

#include <cstdint>
#include <span>

namespace tilewise::cuda {

constexpr int kThreads = 256;  // per block, of every generated kernel
constexpr int kConstantWords =
    32;  // of a tape's constants, passed with each launch; further ones are in the source

struct Constants {
  std::int64_t word[kConstantWords] = {};
};

struct Place {
  std::int64_t base = 0, inner = 0;
  std::int64_t stride[limits::kMaxRank] = {};
};

struct Walk {
  std::int64_t count = 0, first = 0;
  std::int32_t rank = 0, wide = 0;
  std::int64_t extent[limits::kMaxRank] = {};
  std::uint32_t multiplier[limits::kMaxRank] = {}, shift[limits::kMaxRank] = {};
};
static_assert(sizeof(Place) == 80 && sizeof(Walk) == 152, "as on the device");

// A source or target of a kernel before dimensions are merged.
struct Strided {
  std::int64_t base = 0;  // address of the first element, or the first number
  ir::Strides strides;    // one per dimension of the shape
};

// Drops dimensions of extent one and merges neighbours where every place allows it: fewer divisions, and contiguous
// regions become one dimension. Keeps C order. Rank 1 at least. `places[i]` receives strided[i].
Walk merge(const ir::Shape& shape, std::span<const Strided> strided, std::span<Place> places);

// Call again after an extent or `count` has changed.
void set_divisors(Walk& walk);

// Strides of a C-order block.
Strided contiguous(const void* data, const ir::Shape& shape);
inline std::int64_t address(const void* data) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(data));
}

}  // namespace tilewise::cuda
