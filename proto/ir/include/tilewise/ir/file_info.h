// What a file says of an array in it: read where a client sees the file, used by workers that read its blocks.
#pragma once
#include <tilewise/base/file_stamp.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>

#include <string>
#include <string_view>

namespace tilewise::ir {

enum class FileFormat : std::uint8_t {
  kNpy,
  kZarr,
  kHdf5,
  kRaw
};  // kRaw: says nothing but which version it is

struct FileInfo {
  DType dtype = DType::kFloat64;
  Shape shape;
  Shape chunk;                   // extents that are stored together (and compressed as one); empty: none
  std::int64_t data_offset = 0;  // kNpy: bytes before the first element
  bool fortran_order = false;    // kNpy
  std::string params;            // other formats: of the built-in kernel that reads a block
  FileStamp stamp;               // kNpy, kRaw: the version that was looked at
};

// Built-in kernels that read and write files, beside the ops that do: they may sleep, and run on hosts.
constexpr bool is_file_kernel(std::string_view kernel) {
  return kernel.starts_with("tilewise.") &&
         (kernel.ends_with("_npy") || kernel.ends_with("_zarr") || kernel.ends_with("_stored"));
}

}  // namespace tilewise::ir
