// System calls on files with errors as values.
#pragma once
#include <tilewise/base/file_stamp.h>
#include <tilewise/base/result.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tilewise {

// `code` is an errno; the message is "<path>: <what>: <system's text>".
Error file_error(int code, const std::string& path, std::string_view what);

// An open file; closes itself.
class File {
 public:
  static Result<File> open(const std::string& path, int flags, int mode = 0666);
  static File adopt(std::string path, int fd) { return File(std::move(path), fd); }
  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept;
  ~File();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

  // The size of a regular file; kInvalidArgument for a folder, pipe or device.
  Result<std::int64_t> size() const;
  Result<FileStamp> stamp() const;  // likewise
  // Up to `bytes` from `offset`; less only at the end of the file.
  Result<std::size_t> read_some(void* to, std::size_t bytes, std::int64_t offset) const;
  // Exactly `bytes`, or kCorruptData if the file ends before.
  Status read(void* to, std::size_t bytes, std::int64_t offset) const;
  Status write(const void* from, std::size_t bytes, std::int64_t offset) const;
  // Reserves space and extends the file to `bytes` if it is shorter; never shrinks it.
  Status reserve(std::int64_t bytes) const;
  Status sync() const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

// Of the file that has this name. One that has just been changed is looked at again for up to a tenth of a second, until a later change
// would have another time: clocks of file systems tick a few hundred times a second (those that count seconds tell less).
Result<FileStamp> stamp_of(const std::string& path);
// kNotFound, naming both versions, where `now` is another one than `then`.
Status check_stamp(const std::string& path, const FileStamp& now, const FileStamp& then);

}  // namespace tilewise
