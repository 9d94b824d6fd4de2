// A box of an array that is stored in C or Fortran order, as strides in the file and in a C-order block.
#pragma once
#include <tilewise/io/npy.h>

namespace tilewise::io {

// Dimensions from the slowest to the fastest in the file. Those of extent one are left out; neighbours that are
// contiguous on both sides are merged. So a box of whole rows of a C-order file is one dimension.
struct FileBox {
  struct Dim {
    std::int64_t extent = 1;        // elements
    std::int64_t file_stride = 0;   // bytes
    std::int64_t block_stride = 0;  // bytes
  };
  ir::PerDim<Dim> dims;    // at least one, unless the box is empty
  std::int64_t first = 0;  // byte of the box's first element in the file
  std::int64_t item = 1;   // bytes of an element
  bool empty = false;

  std::size_t rank() const { return dims.size(); }
  // Bytes in the file from the first to past the last element of the dimensions d, d+1, ...
  std::int64_t span(std::size_t d) const {
    std::int64_t bytes = item;
    for (; d < dims.size(); ++d) bytes += (dims[d].extent - 1) * dims[d].file_stride;
    return bytes;
  }
  // Bytes that lie between two neighbours of dimension d and are not part of the box.
  std::int64_t gap(std::size_t d) const { return dims[d].file_stride - span(d + 1); }
  // The fastest dimension is contiguous in file and block: its bytes; else 0.
  std::int64_t run_bytes() const {
    const Dim& last = dims.back();
    return last.file_stride == item && last.block_stride == item ? last.extent * item : 0;
  }
};

// kOutOfRange if the box does not lie in the array, kInvalidArgument if `info` contradicts itself (it may have come
// from another process).
Result<FileBox> file_box(const std::string& path, const NpyInfo& info, const ir::Box& box);

// Size of an array's data, or kOutOfRange when it cannot be a file's. `file` names it in errors.
Result<std::int64_t> npy_data_bytes(ir::DType dtype, const ir::Shape& shape, std::string_view file);

// Moves the elements of dimensions `from_dim`... from a piece of the file in memory to the block.
// `count` limits the extent of dimension `from_dim`.
void scatter(const FileBox& box, std::size_t from_dim, std::int64_t count, const std::byte* file_bytes,
             std::byte* block);

}  // namespace tilewise::io
