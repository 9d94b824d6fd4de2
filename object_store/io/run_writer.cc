#include "run_writer.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

namespace tilewise::io {
namespace {

constexpr std::int64_t kCall = 16 << 20;   // at most in one system call
constexpr std::int64_t kBuffer = 1 << 20;  // stays in the processor's cache
constexpr std::int64_t kCached = 4 << 20;  // after so many bytes the disk begins

// What the device wants of memory. Where it does not say, a page fits all.
std::int64_t memory_alignment(const File& file) {
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(file.fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_mem_align > 0 &&
      info.stx_dio_offset_align <= RunWriter::kPage)
    return info.stx_dio_mem_align;
#else
  (void)file;
#endif
  return RunWriter::kPage;
}

}  // namespace

Result<RunWriter> RunWriter::open(const std::string& path, bool direct) {
  TW_ASSIGN(File file, File::open(path, O_WRONLY | O_NOFOLLOW));
  RunWriter out(std::move(file));
  if (!direct) return out;
  if (auto past = File::open(path, O_WRONLY | O_NOFOLLOW | O_DIRECT); past) {
    out.memory_alignment_ = memory_alignment(*past);
    out.direct_ = std::move(*past);
  }
  return out;
}

Status RunWriter::write(const std::byte* data, std::int64_t bytes, std::int64_t offset) {
  if (bytes < kLongRun) return file_.write(data, static_cast<std::size_t>(bytes), offset);
  const std::int64_t end = offset + bytes, first = (offset + kPage - 1) & -kPage, last = end & -kPage;
  TW_TRY(file_.write(data, static_cast<std::size_t>(first - offset), offset));
  TW_TRY(file_.write(data + (last - offset), static_cast<std::size_t>(end - last), last));
  return write_pages(data + (first - offset), last - first, first);
}

Status RunWriter::write_pages(const std::byte* data, std::int64_t bytes, std::int64_t offset) {
  std::int64_t done = 0;
  while (direct_ && done < bytes) {
    const std::byte* from = data + done;
    std::int64_t part = std::min(kCall, bytes - done);
    if (reinterpret_cast<std::uintptr_t>(from) % static_cast<std::uintptr_t>(memory_alignment_) != 0) {
      if (!buffer_) buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, kBuffer)));
      if (!buffer_) return error(Errc::kOutOfMemory, file_.path() + ": no memory for a buffer to write from");
      part = std::min(kBuffer, part);
      std::memcpy(buffer_.get(), from, static_cast<std::size_t>(part));
      from = buffer_.get();
    }
    const Status written = direct_->write(from, static_cast<std::size_t>(part), offset + done);
    if (written)
      done += part;
    else if (written.error().code == Errc::kIo)  // some file systems take the flag and refuse the write
      direct_.reset();
    else
      return written;
  }
  // The disk begins with each piece while the next is copied: else all of it would wait in the cache for fsync.
  for (; done < bytes; done += kCached) {
    const std::int64_t part = std::min(kCached, bytes - done);
    TW_TRY(file_.write(data + done, static_cast<std::size_t>(part), offset + done));
    (void)sync_file_range(file_.fd(), offset + done, part, SYNC_FILE_RANGE_WRITE);  // a wish
  }
  return {};
}

}  // namespace tilewise::io
