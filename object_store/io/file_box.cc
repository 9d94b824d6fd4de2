#include "file_box.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tilewise::io {

Result<FileBox> file_box(const std::string& path, const NpyInfo& info, const ir::Box& box) {
  const int rank = static_cast<int>(info.shape.size());
  bool inside = box.rank() == rank && box.hi.size() == box.lo.size();
  for (int d = 0; inside && d < rank; ++d) {
    inside = box.lo[d] >= 0 && box.lo[d] <= box.hi[d] && box.hi[d] <= info.shape[d];
  }
  if (!inside) {
    return error(Errc::kOutOfRange, path + ": box " + ir::to_string(box) +
                                        " does not lie in an array of shape " + ir::to_string(info.shape));
  }
  TW_ASSIGN(const std::int64_t bytes, npy_data_bytes(info.dtype, info.shape, path));
  if (bytes != info.data_bytes || info.data_offset < 0 ||
      info.data_offset > std::numeric_limits<std::int64_t>::max() - bytes) {
    return error(Errc::kInvalidArgument, path + ": a header that contradicts itself");
  }
  FileBox out;
  for (int d = 0; d < rank; ++d) out.empty = out.empty || box.extent(d) == 0;
  if (out.empty) return out;
  out.item = static_cast<std::int64_t>(ir::size_of(info.dtype));
  out.first = info.data_offset;
  const ir::Strides block_strides = ir::c_order_strides(box.shape());
  // From the fastest dimension of the file to the slowest; turned round at the end.
  std::int64_t file_stride = out.item;
  for (int i = 0; i < rank; ++i) {
    const int d = info.fortran_order ? i : rank - 1 - i;
    const std::int64_t extent = box.extent(d);
    const std::int64_t block_stride = block_strides[d] * out.item;
    if (extent > 1) {
      FileBox::Dim* inner = out.dims.empty() ? nullptr : &out.dims.back();
      if (inner != nullptr && inner->extent * inner->file_stride == file_stride &&
          inner->extent * inner->block_stride == block_stride) {
        inner->extent *= extent;
      } else {
        out.dims.push_back({extent, file_stride, block_stride});
      }
    }
    out.first += box.lo[d] * file_stride;
    file_stride *= info.shape[d];
  }
  if (out.dims.empty()) out.dims.push_back({1, out.item, out.item});
  std::reverse(out.dims.begin(), out.dims.end());
  return out;
}

namespace {

// A plane of `rows` x `columns` elements, in square tiles so that both sides stay in cache when their orders differ.
template <class T>
void move_plane(const std::byte* from, std::byte* to, const FileBox::Dim& row, std::int64_t rows,
                const FileBox::Dim& column) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < column.extent; c0 += kTile) {
      const std::int64_t r1 = std::min(rows, r0 + kTile), c1 = std::min(column.extent, c0 + kTile);
      for (std::int64_t r = r0; r < r1; ++r) {
        const std::byte* src = from + r * row.file_stride + c0 * column.file_stride;
        std::byte* dst = to + r * row.block_stride + c0 * column.block_stride;
        for (std::int64_t c = c0; c < c1; ++c, src += column.file_stride, dst += column.block_stride) {
          std::memcpy(dst, src, sizeof(T));
        }
      }
    }
  }
}

struct Sixteen {  // bytes: a complex128
  std::uint64_t parts[2];
};

void move_plane_of(std::int64_t item, const std::byte* from, std::byte* to, const FileBox::Dim& row,
                   std::int64_t rows, const FileBox::Dim& column) {
  switch (item) {
    case 1: return move_plane<std::uint8_t>(from, to, row, rows, column);
    case 2: return move_plane<std::uint16_t>(from, to, row, rows, column);
    case 4: return move_plane<std::uint32_t>(from, to, row, rows, column);
    case 8: return move_plane<std::uint64_t>(from, to, row, rows, column);
    default: return move_plane<Sixteen>(from, to, row, rows, column);
  }
}

}  // namespace

void scatter(const FileBox& box, std::size_t from_dim, std::int64_t count, const std::byte* file_bytes,
             std::byte* block) {
  const FileBox::Dim& dim = box.dims[from_dim];
  const std::size_t left = box.rank() - from_dim;
  if (left == 1) {
    if (box.run_bytes() > 0) {
      std::memcpy(block, file_bytes, static_cast<std::size_t>(count * box.item));
      return;
    }
    return move_plane_of(box.item, file_bytes, block, dim, count, {1, 0, 0});
  }
  if (left == 2 && box.run_bytes() == 0) {
    return move_plane_of(box.item, file_bytes, block, dim, count, box.dims[from_dim + 1]);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    scatter(box, from_dim + 1, box.dims[from_dim + 1].extent, file_bytes + i * dim.file_stride,
            block + i * dim.block_stride);
  }
}

}  // namespace tilewise::io
