// Blocks to and from whole arrays, in host memory. Both sides are in C order; a block is packed.
#pragma once
#include <tilewise/ir/grid.h>

#include <cstddef>

namespace tilewise::client {

// The block's elements are one run of the whole array, so that it can be read and written in place.
bool contiguous(const ir::Shape& shape, const ir::Box& box);
// Elements before the block's first one.
std::int64_t first_element(const ir::Shape& shape, const ir::Box& box);

void scatter(std::byte* whole, const ir::Shape& shape, const ir::Box& box, const std::byte* packed,
             std::size_t element_bytes);
void gather(const std::byte* whole, const ir::Shape& shape, const ir::Box& box, std::byte* packed,
            std::size_t element_bytes);

}  // namespace tilewise::client
