// Where the elements of a Zarr array's chunks are: keys of files, and copies between chunks and blocks.
#pragma once
#include <tilewise/io/zarr.h>

#include <string>

namespace tilewise::io {

// "c/0/1" or "0.1": the file of the chunk (or shard) at this place of the grid.
std::string chunk_key(const ZarrInfo& info, const ir::Index& at);
// Elements of the chunk at this place of a grid of `extents`, not clipped at the array's end.
ir::Box chunk_box(const ir::Shape& extents, const ir::Index& at);
// Places of the grid of `extents` that `box` touches.
ir::Box chunks_of(const ir::Shape& extents, const ir::Box& box);
// Strides, in elements, of a chunk of these extents as it is stored.
ir::Strides stored_strides(const ZarrInfo& info, const ir::Shape& extents);

// Copies `shape` elements of `item` bytes between two places with strides in elements.
void copy_strided(const ir::Shape& shape, std::size_t item, const std::byte* from,
                  const ir::Strides& from_strides, std::byte* to, const ir::Strides& to_strides);
// Turns the bytes of each number round (complex: of each part).
void swap_bytes(ir::DType dtype, std::byte* data, std::size_t bytes);

}  // namespace tilewise::io
