#include <tilewise/base/file.h>
#include <tilewise/io/zarr.h>

#include "compressor.h"
#include "temp_path.h"
#include "zarr_layout.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace tilewise::io {

namespace {

std::string metadata_name(const ZarrInfo& info) { return info.version == 2 ? "/.zarray" : "/zarr.json"; }

// Folders of `key` below `folder`, as far as they are missing.
Status make_folders(const std::string& folder, const std::string& key) {
  for (std::size_t at = key.find('/'); at != std::string::npos; at = key.find('/', at + 1)) {
    const std::string path = folder + "/" + key.substr(0, at);
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
      return file_error(errno, path, "cannot make the folder");
  }
  return {};
}

Status remove_all(const std::string& path) {
  std::error_code ec;
  std::filesystem::remove_all(path, ec);
  if (ec) return file_error(ec.value(), path, "cannot remove");
  return {};
}

// Nothing there, or a Zarr array that may be replaced.
Status may_replace(const std::string& path) {
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0)
    return errno == ENOENT ? Status() : file_error(errno, path, "cannot look");
  for (const char* name : {"/zarr.json", "/.zarray"}) {
    if (access((path + name).c_str(), F_OK) != 0) continue;
    const auto there = read_zarr_info(path);
    if (there || there.error().code != Errc::kInvalidArgument) return {};  // not a group
  }
  return error(Errc::kAlreadyExists, path + ": there is something else than a Zarr array, and it stays");
}

class BlockWriter {
 public:
  BlockWriter(const std::string& folder, const ZarrInfo& info, const ir::Box& box, const void* data)
      : folder_(folder),
        info_(info),
        box_(box),
        data_(static_cast<const std::byte*>(data)),
        item_(ir::size_of(info.dtype)),
        strides_(ir::c_order_strides(box.shape())) {}

  Status write(const ir::Index& at) {
    const std::string key = chunk_key(info_, at), path = folder_ + "/" + key;
    const ir::Box whole = chunk_box(info_.chunk, at);
    packed_.clear();
    TW_TRY(info_.inner.empty() ? chunk(whole, path) : shard(whole, path));
    TW_TRY(make_folders(folder_, key));
    // Written again it has the same bytes, and may be in place by now: so it is not made empty first.
    TW_ASSIGN(const File file, File::open(path, O_WRONLY | O_CREAT | O_NOFOLLOW));
    TW_TRY(file.write(packed_.data(), packed_.size(), 0));
    if (ftruncate(file.fd(), static_cast<off_t>(packed_.size())) != 0)
      return file_error(errno, path, "cannot set its size");
    return {};
  }

 private:
  // Appends the chunk as it is stored; what lies beyond the array is the fill value.
  Status chunk(const ir::Box& whole, const std::string& path) {
    const ir::Shape& unit = info_.unit();
    const ir::Box here = ir::intersect(whole, box_);
    const auto bytes = static_cast<std::size_t>(ir::volume(unit)) * item_;
    if (bytes > static_cast<std::size_t>(
                    kMaxZarrChunkBytes))  // plain ones are read without being held, but not written
      return error(Errc::kLimitExceeded, path + ": a chunk of " + ir::to_string(unit) + " is larger than " +
                                             std::to_string(kMaxZarrChunkBytes) + " bytes");
    const ir::Strides strides = stored_strides(info_, unit);
    plain_.resize(bytes);
    if (here != whole)
      copy_strided(unit, item_, info_.fill.data(), ir::Strides(unit.size(), 0), plain_.data(), strides);
    std::int64_t from = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) from += (here.lo[d] - box_.lo[d]) * strides_[d];
    copy_strided(here.shape(), item_, data_ + from * static_cast<std::int64_t>(item_), strides_,
                 plain_.data(), strides);
    if (info_.big_endian) swap_bytes(info_.dtype, plain_.data(), bytes);
    const std::size_t start = packed_.size();
    TW_TRY(compress(info_.compressor, plain_, item_, packed_, path));
    if (info_.crc32c) checksum(start);
    return {};
  }

  Status shard(const ir::Box& whole, const std::string& path) {
    ir::Shape counts;
    for (std::size_t d = 0; d < info_.inner.size(); ++d) counts.push_back(info_.chunk[d] / info_.inner[d]);
    const std::int64_t n = ir::volume(counts);
    std::vector<std::uint64_t> index(static_cast<std::size_t>(2 * n), ~std::uint64_t{0});
    const std::size_t index_bytes = index.size() * 8 + (info_.index_crc32c ? 4 : 0);
    if (info_.index_at_start) packed_.resize(index_bytes);
    for (std::int64_t i = 0; i < n; ++i) {
      ir::Index at = ir::unravel(i, counts);
      for (std::size_t d = 0; d < at.size(); ++d) at[d] += whole.lo[d] / info_.inner[d];
      const ir::Box one = chunk_box(info_.inner, at);
      if (ir::intersect(one, box_).volume() == 0) continue;  // beyond the array
      const std::size_t start = packed_.size();
      TW_TRY(chunk(one, path));
      index[static_cast<std::size_t>(2 * i)] = start;
      index[static_cast<std::size_t>(2 * i + 1)] = packed_.size() - start;
    }
    const std::size_t at = info_.index_at_start ? 0 : packed_.size();
    if (!info_.index_at_start) packed_.resize(at + index_bytes);
    std::memcpy(packed_.data() + at, index.data(), index.size() * 8);
    if (info_.index_crc32c) {
      const std::uint32_t sum = crc32c({packed_.data() + at, index.size() * 8});
      std::memcpy(packed_.data() + at + index.size() * 8, &sum, sizeof(sum));
    }
    return {};
  }

  void checksum(std::size_t start) {
    const std::uint32_t sum = crc32c({packed_.data() + start, packed_.size() - start});
    packed_.resize(packed_.size() + sizeof(sum));
    std::memcpy(packed_.data() + packed_.size() - sizeof(sum), &sum, sizeof(sum));
  }

  const std::string& folder_;
  const ZarrInfo& info_;
  const ir::Box& box_;
  const std::byte* data_;
  std::size_t item_;
  ir::Strides strides_;  // of the block, in elements
  std::vector<std::byte> plain_, packed_;
};

}  // namespace

Result<std::string> create_zarr_temp(const std::string& final_path, std::string_view token,
                                     const ZarrInfo& info) {
  TW_TRY(check_zarr(info, final_path));
  TW_ASSIGN(const std::string folder, temp_path(final_path, token));
  const std::string path = folder + metadata_name(info), text = zarr_metadata(info);
  // Mostly another block was here first.
  if (const auto file = File::open(path, O_RDONLY | O_NOFOLLOW)) {
    std::string there(text.size() + 1, '\0');
    TW_ASSIGN(const std::size_t got, file->read_some(there.data(), there.size(), 0));
    if (std::string_view(there).substr(0, got) == text) return folder;
    if (got >= text.size() || text.compare(0, got, there, 0, got) != 0)
      return error(Errc::kAlreadyExists, folder + ": the token is taken by another array");
  }
  TW_TRY(may_replace(final_path));
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    return file_error(errno, folder, "cannot make the folder");
  TW_ASSIGN(const File file, File::open(path, O_WRONLY | O_CREAT | O_NOFOLLOW));
  TW_TRY(file.write(text.data(), text.size(), 0));  // by several, the same bytes
  return folder;
}

Status write_zarr_block(const std::string& temp, const ZarrInfo& info, const ir::Box& box, const void* data) {
  bool whole = box.lo.size() == info.shape.size() && box.hi.size() == info.shape.size();
  for (std::size_t d = 0; whole && d < info.shape.size(); ++d) {
    whole = box.lo[d] >= 0 && box.lo[d] <= box.hi[d] && box.hi[d] <= info.shape[d] &&
            box.lo[d] % info.chunk[d] == 0 && (box.hi[d] % info.chunk[d] == 0 || box.hi[d] == info.shape[d]);
  }
  if (!whole)
    return error(Errc::kInvalidArgument, temp + ": the block " + ir::to_string(box) +
                                             " of an array of shape " + ir::to_string(info.shape) +
                                             " is not made of whole chunks of " + ir::to_string(info.chunk));
  if (box.volume() == 0) return {};
  const ir::Box chunks = chunks_of(info.chunk, box);
  BlockWriter writer(temp, info, box, data);
  const std::int64_t n = chunks.volume();
  for (std::int64_t i = 0; i < n; ++i) {
    ir::Index at = ir::unravel(i, chunks.shape());
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += chunks.lo[d];
    TW_TRY(writer.write(at));
  }
  return {};
}

namespace {

// What was there takes the temporary name. Another one who does the same (who was taken for dead, and is not) may undo it: then it is
// done again, so what is left in place is what was written.
Status exchange(const std::string& path, const std::string& final_path, FileId written) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    if (renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) != 0)
      return file_error(errno, path, "cannot exchange with " + final_path);
    TW_ASSIGN(const FileId there, id_of(final_path));
    if (there == written) return {};
  }
  return error(Errc::kIo, final_path + ": somebody else puts another array in its place again and again");
}

Status put_in_place(const std::string& path, const std::string& final_path, const ZarrInfo& info,
                    FileId written) {
  TW_ASSIGN(const File folder, File::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  TW_ASSIGN(const ZarrInfo there, read_zarr_info(path));
  if (there != info)
    return error(Errc::kCorruptData, path + ": not the folder that create_zarr_temp() makes");
  // Many files and folders, by many writers: all that this file system has, once.
  if (syncfs(folder.fd()) != 0) return file_error(errno, path, "cannot make durable");
  TW_TRY(may_replace(final_path));
  TW_ASSIGN(const FileId now, id_of(path));  // it took a while: still the one that was written?
  if (now != written) return error(Errc::kNotFound, path + ": not the folder that was written");
  if (renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, final_path.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno != EEXIST) return file_error(errno, path, "cannot rename to " + final_path);
  return exchange(path, final_path, written);
}

}  // namespace

Status commit_zarr(const std::string& final_path, std::string_view token, const ZarrInfo& info,
                   std::span<const FileId> parts) {
  TW_ASSIGN(const std::string path, temp_path(final_path, token));
  TW_ASSIGN(Standing left, standing(final_path, token, parts));
  if (left == Standing::kWhole) {
    const Status put = put_in_place(path, final_path, info, parts.front());
    // Somebody who was taken for dead may have done it this very moment.
    if (!put && put.error().code != Errc::kNotFound) return put;
    if (!put) {
      TW_ASSIGN(left, standing(final_path, token, parts));
      if (left == Standing::kWhole) return put;
    }
  }
  // What was in place before, or was begun again by who did not know.
  TW_TRY(discard_zarr(final_path, token));
  TW_ASSIGN(const File folder, File::open(folder_of(final_path), O_RDONLY | O_DIRECTORY));
  return folder.sync();
}

Status discard_zarr(const std::string& final_path, std::string_view token) {
  TW_ASSIGN(const std::string path, temp_path(final_path, token));
  const std::string going = path + ".removed";
  if (std::rename(path.c_str(), going.c_str()) != 0 && errno != ENOENT) {
    // One that somebody began to remove is there.
    if (errno != EEXIST && errno != ENOTEMPTY) return file_error(errno, path, "cannot rename");
    TW_TRY(remove_all(going));
    if (std::rename(path.c_str(), going.c_str()) != 0 && errno != ENOENT)
      return file_error(errno, path, "cannot rename");
  }
  return remove_all(going);
}

}  // namespace tilewise::io
