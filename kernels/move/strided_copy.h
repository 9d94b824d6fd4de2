// N-dimensional copies between strided memories.
#pragma once
#include <tilewise/ir/shape.h>

#include <cstddef>

namespace tilewise::kernels::move {

// to[i] = from[i] for every index of `shape`. Strides in elements, signed; those of `from` may be 0, those of `to`
// must not overlap. The memories are disjoint.
void strided_copy(std::byte* to, const ir::Strides& to_strides, const std::byte* from,
                  const ir::Strides& from_strides, const ir::Shape& shape, std::size_t element_bytes);

}  // namespace tilewise::kernels::move
