// Copies of matrices whose rows become columns.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tilewise::kernels::move {

// to[r * to_stride + c] = from[c * from_stride + r] for all r < rows, c < cols; strides in elements, memories apart. Not
// thread-bound; no state.
using TransposeFn = void (*)(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
                             std::int64_t rows, std::int64_t cols);
TransposeFn find_transpose(std::size_t element_bytes);  // 1, 2, 4, 8 or 16

}  // namespace tilewise::kernels::move
