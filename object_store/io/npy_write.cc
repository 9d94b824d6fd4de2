#include <tilewise/base/file.h>
#include <tilewise/io/npy.h>

#include "file_box.h"
#include "run_writer.h"
#include "temp_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace tilewise::io {

namespace {

// Whether the file starts with exactly this header. Bytes that are missing or zero may still be on their way from
// another writer of the same header.
enum class Head { kOurs, kUnfinished, kOther };
Result<Head> head_of(const File& file, const std::string& header) {
  std::string there(header.size(), '\0');
  TW_TRY(file.read_some(there.data(), there.size(), 0));
  if (there == header) return Head::kOurs;
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (there[i] != header[i] && there[i] != '\0') return Head::kOther;
  }
  return Head::kUnfinished;
}

Status put_in_place(const std::string& temporary, const std::string& final_path, const std::string& header,
                    const NpyInfo& info) {
  TW_ASSIGN(const File file, File::open(temporary, O_RDWR | O_NOFOLLOW));
  TW_ASSIGN(const std::int64_t size, file.size());
  TW_ASSIGN(const Head head, head_of(file, header));
  if (head != Head::kOurs || size != info.data_offset + info.data_bytes) {
    return error(Errc::kCorruptData, temporary + ": not the file that create_temp() makes for shape " +
                                         ir::to_string(info.shape) + " and dtype " +
                                         std::string(ir::name_of(info.dtype)));
  }
  TW_TRY(file.sync());
  if (std::rename(temporary.c_str(), final_path.c_str()) != 0)
    return file_error(errno, temporary, "cannot rename to " + final_path);
  return {};
}

}  // namespace

// Every caller does all of it: who calls again after a death half-way finishes it. The header bytes are the same, and reserving twice
// changes nothing.
Result<std::string> create_temp(const std::string& final_path, std::string_view token, ir::DType dtype,
                                const ir::Shape& shape) {
  TW_ASSIGN(const std::string path, temp_path(final_path, token));
  TW_ASSIGN(const std::string header, npy_header(dtype, shape));
  TW_ASSIGN(const NpyInfo info, npy_info(dtype, shape));
  TW_ASSIGN(const File file, File::open(path, O_RDWR | O_CREAT | O_NOFOLLOW));
  // No more than the header is read: what comes behind is written past the page cache.
  (void)posix_fadvise(file.fd(), 0, 0, POSIX_FADV_RANDOM);
  TW_ASSIGN(const std::int64_t size, file.size());
  TW_ASSIGN(const Head head, head_of(file, header));
  if (head == Head::kOther || size > info.data_offset + info.data_bytes) {
    return error(Errc::kAlreadyExists, path + ": the token is taken by another array");
  }
  // A file grows as space is reserved, so a whole one has it. (Reserving waits for all writes under way, and they for it: 10 ms a block.)
  if (size < info.data_offset + info.data_bytes) TW_TRY(file.reserve(info.data_offset + info.data_bytes));
  if (head == Head::kUnfinished) TW_TRY(file.write(header.data(), header.size(), 0));
  return path;
}

// Runs only: filling the gaps between them would undo what other writers put there.
Status write_block(const std::string& temp_path, const NpyInfo& info, const ir::Box& box, const void* data) {
  if (info.fortran_order) return error(Errc::kUnsupported, temp_path + ": files are written in C order");
  TW_ASSIGN(const FileBox where, file_box(temp_path, info, box));
  TW_ASSIGN(RunWriter file, RunWriter::open(temp_path, info.data_bytes >= kLargeNpyBytes));
  if (where.empty) return {};
  // The block is contiguous and so is each run in it: only the place in the file jumps. A fastest dimension that is
  // strided in the file has runs of one element.
  const std::int64_t run = std::max(where.run_bytes(), where.item);
  const std::size_t outer = where.run_bytes() > 0 ? where.rank() - 1 : where.rank();
  const std::int64_t total = box.volume() * where.item;
  ir::Index index(outer, 0);
  std::int64_t offset = where.first;
  for (std::int64_t done = 0; done < total; done += run) {
    TW_TRY(file.write(static_cast<const std::byte*>(data) + done, run, offset));
    for (std::size_t d = outer; d-- > 0;) {
      offset += where.dims[d].file_stride;
      if (++index[d] < where.dims[d].extent) break;
      offset -= where.dims[d].extent * where.dims[d].file_stride;
      index[d] = 0;
    }
  }
  return {};
}

Status commit(const std::string& final_path, std::string_view token, ir::DType dtype, const ir::Shape& shape,
              std::span<const FileId> parts) {
  TW_ASSIGN(const std::string path, temp_path(final_path, token));
  TW_ASSIGN(const std::string header, npy_header(dtype, shape));
  TW_ASSIGN(const NpyInfo info, npy_info(dtype, shape));
  TW_ASSIGN(Standing left, standing(final_path, token, parts));
  if (left == Standing::kWhole) {
    const Status put = put_in_place(path, final_path, header, info);
    // Somebody who was taken for dead may have done it this very moment.
    if (!put && put.error().code != Errc::kNotFound) return put;
    if (!put) {
      TW_ASSIGN(left, standing(final_path, token, parts));
      if (left == Standing::kWhole) return put;
    }
  }
  if (left == Standing::kInPlace) TW_TRY(discard(final_path, token));  // begun again by who did not know
  TW_ASSIGN(const File folder, File::open(folder_of(final_path), O_RDONLY | O_DIRECTORY));
  return folder.sync();
}

Status discard(const std::string& final_path, std::string_view token) {
  TW_ASSIGN(const std::string path, temp_path(final_path, token));
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return file_error(errno, path, "cannot remove");
  return {};
}

}  // namespace tilewise::io
