#include <tilewise/base/file.h>
#include <tilewise/io/npy.h>

#include "box_reader.h"
#include "file_box.h"

#include <fcntl.h>

namespace tilewise::io {

namespace {

Status check_length(const File& file, const NpyInfo& info) {
  TW_ASSIGN(const std::int64_t size, file.size());
  if (size - info.data_offset >= info.data_bytes) return {};
  return error(Errc::kCorruptData, file.path() + ": truncated: shape " + ir::to_string(info.shape) +
                                       " and dtype " + std::string(ir::name_of(info.dtype)) + " need " +
                                       std::to_string(info.data_offset + info.data_bytes) +
                                       " bytes, the file has " + std::to_string(size));
}

}  // namespace

Result<NpyInfo> read_npy_header(const std::string& path) {
  TW_ASSIGN(const File file, File::open(path, O_RDONLY));
  TW_TRY(file.size());
  // One read serves nearly every file; a longer header is read again, up to the limit.
  std::string head(4096, '\0');
  for (;;) {
    TW_ASSIGN(const std::size_t got, file.read_some(head.data(), head.size(), 0));
    const bool whole_file = got < head.size();
    const auto info = parse_npy_header(std::string_view(head).substr(0, got), path);
    if (info) {
      TW_TRY(check_length(file, *info));
      return *info;
    }
    if (whole_file || head.size() > kMaxNpyHeaderBytes) return info.error();
    head.resize(kMaxNpyHeaderBytes + 12);
  }
}

Status read_block(const std::string& path, const NpyInfo& info, const ir::Box& box, void* out,
                  const FileStamp& stamp) {
  TW_ASSIGN(const FileBox where, file_box(path, info, box));
  TW_ASSIGN(const File file, File::open(path, O_RDONLY));
  const auto check_version = [&]() -> Status {
    TW_ASSIGN(const FileStamp now, file.stamp());
    return check_stamp(path, now, stamp);
  };
  TW_TRY(check_version());
  TW_TRY(check_length(file, info));
  auto* block = static_cast<std::byte*>(out);
  TW_TRY(read_box(file, where, block, ReadTuning()));
  TW_TRY(check_version());  // it may be written into where it is
  if (info.dtype == ir::DType::kBool) normalise_bools(block, box.volume());
  return {};
}

}  // namespace tilewise::io
