// NumPy's .npy files, read and written a block at a time.
//
// Reading: read_npy_header() once, then read_block() from anywhere that sees the file. Formats 1.0, 2.0 and 3.0, C and
// Fortran order, the dtypes of ir. Headers are parsed, never evaluated; object arrays (pickles) are refused.
//
// Writing by many processes at once, with all of the file appearing or nothing:
//   1. one calls create_temp() with the final path, a token and the array; again if its answer was lost;
//   2. writers put their blocks with write_block(); no two write the same element (but for one that writes the same again);
//   3. when all have returned, one calls commit(): it makes the file durable and renames it; or discard(). Again if its answer was lost.
// What each writer wrote into is told by begun.h.
// The token tells one attempt from another (an id of the graph and version, say); the temporary file lies beside the
// final one as `.<name>.<token>.partial`.
//
// All functions may be called from any thread. They block on the disk. Every error names the file:
//   kNotFound, kPermissionDenied, kIo       what the system said
//   kCorruptData                            not an .npy file, or a truncated or contradictory one
//   kUnsupported                            a well-formed file of a dtype, byte order or version that is not ours
//   kLimitExceeded, kOutOfRange             too many dimensions; sizes past 2^63
//   kDiskFull                               no space, quota or file size limit
#pragma once
#include <tilewise/base/file_stamp.h>
#include <tilewise/io/begun.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>

#include <span>
#include <string>
#include <string_view>

namespace tilewise::io {

struct NpyInfo {
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;
  bool fortran_order = false;
  std::int64_t data_offset = 0;  // bytes from the start of the file
  std::int64_t data_bytes = 0;   // whole array
  friend bool operator==(const NpyInfo&, const NpyInfo&) = default;
};

// ---- headers as bytes ----

// The longest header text that is looked at. Ours take 128 bytes or 4,096.
constexpr std::size_t kMaxNpyHeaderBytes = 65'536;
// Files with so much data are written past the page cache, straight from where blocks lie; smaller ones stay in it, where
// who reads them next finds them.
constexpr std::int64_t kLargeNpyBytes = 256 << 20;

// A format 1.0 header for a C-order array, as NumPy writes it, padded so that the data starts on a multiple of 64; of
// kLargeNpyBytes and more on one of 4,096, as direct I/O wants it.
Result<std::string> npy_header(ir::DType dtype, const ir::Shape& shape);
// What npy_header() describes.
Result<NpyInfo> npy_info(ir::DType dtype, const ir::Shape& shape);
// `head` starts a file and holds at least its header; `file` names it in errors. Sizes of the file itself are not
// checked here.
Result<NpyInfo> parse_npy_header(std::string_view head, std::string_view file);

// ---- reading ----

// Also checks that the file is long enough for its data.
Result<NpyInfo> read_npy_header(const std::string& path);

// Reads `box` (elements, inside info.shape) into `out` as a C-order block of box.volume() elements, host memory. Runs
// that lie close together in the file are read together. Bytes of a bool array become 0 or 1. On an error the contents
// of `out` are unspecified.
// kNotFound if the file is, or has become, another version than `stamp` (base/file.h).
Status read_block(const std::string& path, const NpyInfo& info, const ir::Box& box, void* out,
                  const FileStamp& stamp = {});

// ---- writing ----

// Makes the temporary file with its header, at its full size, and returns its path. Space is reserved where the file
// system can, so that write_block() does not run out later. kAlreadyExists if the token is taken by another array;
// kInvalidArgument for a token that is not 1 to 64 letters, digits, '_' or '-'.
Result<std::string> create_temp(const std::string& final_path, std::string_view token, ir::DType dtype,
                                const ir::Shape& shape);
// Writes a C-order block (host memory) to `box` of the temporary file that create_temp() returned.
Status write_block(const std::string& temp_path, const NpyInfo& info, const ir::Box& box, const void* data);
// fsync, rename, fsync of the folder. Replaces an older file of that name. `parts`: into which file each block was written (begun.h); at
// least one. Again after it has succeeded, by anybody: still succeeds, while the file in place is one of these, and removes what was
// begun a second time. kNotFound if parts are in a file that is gone: then nothing is put in place.
Status commit(const std::string& final_path, std::string_view token, ir::DType dtype, const ir::Shape& shape,
              std::span<const FileId> parts);
// Removes the temporary file, if it is there.
Status discard(const std::string& final_path, std::string_view token);

}  // namespace tilewise::io
