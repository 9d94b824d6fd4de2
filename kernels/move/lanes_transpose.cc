// Transposed copies, once per Highway target: compilers make shuffles of the loops over one line.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "move/lanes_transpose.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "common/strided.h"
#include "move/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::move {
namespace HWY_NAMESPACE {

// As many lines of cache as elements lie in one, read and written as wholes: lines that are powers of two apart would push each
// other out of the first-level cache before they are used up.
template <class T>
HWY_INLINE void lines(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  alignas(64) T square[kLine][kLine];
  for (std::int64_t i = 0; i < kLine; ++i) {
    T line[kLine];
    std::memcpy(line, from + i * from_stride, sizeof(line));
    for (std::int64_t j = 0; j < kLine; ++j) square[j][i] = line[j];
  }
  for (std::int64_t j = 0; j < kLine; ++j) std::memcpy(to + j * to_stride, square[j], sizeof(square[j]));
}

// In squares of 64 elements, so that few pages are at work at a time.
template <class T>
void all(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t rows,
         std::int64_t cols) {
  constexpr std::int64_t kSquare = 64, kLine = 64 / sizeof(T);
  const auto one_by_one = [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
    for (std::int64_t r = r0; r < r1; ++r)
      for (std::int64_t c = c0; c < c1; ++c) to[r * to_stride + c] = from[c * from_stride + r];
  };
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    for (std::int64_t c0 = 0; c0 < cols; c0 += kSquare) {
      const std::int64_t r1 = std::min(rows, r0 + kSquare), c1 = std::min(cols, c0 + kSquare);
      const std::int64_t r_lines = r1 - (r1 - r0) % kLine, c_lines = c1 - (c1 - c0) % kLine;
      for (std::int64_t c = c0; c < c_lines; c += kLine)
        for (std::int64_t r = r0; r < r_lines; r += kLine)
          lines(to + r * to_stride + c, to_stride, from + c * from_stride + r, from_stride);
      one_by_one(r0, r_lines, c_lines, c1);
      one_by_one(r_lines, r1, c0, c1);
    }
  }
}

template <class T>
void as(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride, std::int64_t rows,
        std::int64_t cols) {
  all(static_cast<T*>(to), to_stride, static_cast<const T*>(from), from_stride, rows, cols);
}
TransposeFn transpose_of(std::size_t element_bytes) {
  switch (element_bytes) {
    case 1: return as<std::uint8_t>;
    case 2: return as<std::uint16_t>;
    case 4: return as<std::uint32_t>;
    case 8: return as<std::uint64_t>;
    default: return as<Element16>;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::move
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::move {
HWY_EXPORT(transpose_of);
TransposeFn find_transpose(std::size_t element_bytes) {
  return HWY_DYNAMIC_DISPATCH(transpose_of)(element_bytes);
}
}  // namespace tilewise::kernels::move
#endif
