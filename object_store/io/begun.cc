#include <tilewise/base/file.h>
#include <tilewise/base/prng.h>
#include <tilewise/io/begun.h>

#include "temp_path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace tilewise::io {
namespace {

// None: nothing is there.
Result<std::optional<FileId>> look(const std::string& path) {
  const Result<FileId> id = id_of(path);
  if (id) return std::optional(*id);
  if (id.error().code == Errc::kNotFound) return std::optional<FileId>();
  return id.error();
}

// In place may be anything: a link, a pipe, what we may not open; then it is none of ours. What cannot be opened just now may be.
Result<bool> is_in_place(const std::string& final_path, FileId id) {
  const Result<FileId> there = id_of(final_path);
  if (there) return *there == id;
  switch (there.error().code) {
    case Errc::kNotFound:
    case Errc::kInvalidArgument:
    case Errc::kPermissionDenied: return false;
    default: return there.error();
  }
}

}  // namespace

Result<FileId> id_of(const std::string& path) {
  // Opened, not only looked at: that asks the server of a network file system, not a cache of names.
  TW_ASSIGN(const File file, File::open(path, O_RDONLY | O_NOFOLLOW));
  struct statx info {};
  if (statx(file.fd(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) != 0)
    return file_error(errno, path, "cannot look");
  std::uint64_t id = Prng(info.stx_ino).next();
  if ((info.stx_mask & STATX_BTIME) != 0) {
    id = Prng(id ^ static_cast<std::uint64_t>(info.stx_btime.tv_sec)).next();
    id = Prng(id ^ info.stx_btime.tv_nsec).next();
  }
  return static_cast<FileId>(id >> 1 | 1);
}

Result<std::optional<std::string>> find_begun(const std::string& final_path, std::string_view token,
                                              FileId id) {
  TW_ASSIGN(const std::string temporary, temp_path(final_path, token));
  // In this order: it goes from here to there, never back.
  TW_ASSIGN(const std::optional<FileId> begun, look(temporary));
  if (begun == id) return std::optional(temporary);
  TW_ASSIGN(const bool in_place, is_in_place(final_path, id));
  if (in_place) return std::optional<std::string>();
  return error(Errc::kNotFound,
               temporary + ": what was begun there is not there any more, nor is it in place");
}

Result<Standing> standing(const std::string& final_path, std::string_view token,
                          std::span<const FileId> parts) {
  TW_ASSIGN(const std::string temporary, temp_path(final_path, token));
  if (parts.empty()) return error(Errc::kInvalidArgument, temporary + ": nobody has said what it is");
  TW_ASSIGN(const std::optional<FileId> begun, look(temporary));
  if (begun && std::all_of(parts.begin(), parts.end(), [&](FileId part) { return part == begun; }))
    return Standing::kWhole;
  // All of it was there when it was put in place, so one part that is in it says that it was.
  for (const FileId part : parts) {
    TW_ASSIGN(const bool in_place, is_in_place(final_path, part));
    if (in_place) return Standing::kInPlace;
  }
  return error(Errc::kNotFound, temporary + ": " +
                                    (begun ? "parts of the file are in one that is not there any more"
                                           : "what was begun there is not there any more") +
                                    ", and what is in place is another one");
}

}  // namespace tilewise::io
