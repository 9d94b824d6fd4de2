#include <tilewise/base/file.h>
#include <tilewise/base/time.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

namespace tilewise {

namespace {

Errc classify(int code) {
  switch (code) {
    case ENOENT: return Errc::kNotFound;
    case EEXIST: return Errc::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS: return Errc::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return Errc::kDiskFull;
    case ENOMEM: return Errc::kOutOfMemory;
    case EMFILE:
    case ENFILE: return Errc::kLimitExceeded;
    case EISDIR:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP: return Errc::kInvalidArgument;
    default: return Errc::kIo;
  }
}

constexpr std::size_t kMaxCall = std::size_t{1} << 30;  // the kernel stops at 2 GiB anyway

}  // namespace

Error file_error(int code, const std::string& path, std::string_view what) {
  return error(classify(code), path + ": " + std::string(what) + ": " + std::strerror(code));
}

Result<File> File::open(const std::string& path, int flags, int mode) {
  // A path with a NUL inside would silently name another file.
  if (path.empty() || path.find('\0') != std::string::npos) {
    return error(Errc::kInvalidArgument, "a file name is empty or holds a NUL");
  }
  // O_NONBLOCK so that a named pipe is refused, not waited for until somebody opens its other end; files ignore it.
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode);
  if (fd < 0 && errno != ENXIO) return file_error(errno, path, "cannot open");
  struct stat st {};
  if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISFIFO(st.st_mode)) return File(path, fd);
  if (fd >= 0) ::close(fd);
  return error(Errc::kInvalidArgument, path + ": not a regular file");
}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::int64_t> File::size() const {
  struct stat st {};
  if (fstat(fd_, &st) != 0) return file_error(errno, path_, "fstat");
  if (!S_ISREG(st.st_mode)) return error(Errc::kInvalidArgument, path_ + ": not a regular file");
  return std::int64_t{st.st_size};
}

namespace {

Result<FileStamp> stamp_in(const struct stat& st, const std::string& path) {
  if (!S_ISREG(st.st_mode)) return error(Errc::kInvalidArgument, path + ": not a regular file");
  constexpr std::int64_t kMost = INT64_MAX / kSecond - 1;  // whatever a file system makes of its clock
  return FileStamp{st.st_size,
                   std::clamp<std::int64_t>(st.st_mtim.tv_sec, -kMost, kMost) * kSecond + st.st_mtim.tv_nsec};
}

}  // namespace

Result<FileStamp> File::stamp() const {
  struct stat st {};
  if (fstat(fd_, &st) != 0) return file_error(errno, path_, "fstat");
  return stamp_in(st, path_);
}

Result<FileStamp> stamp_of(const std::string& path) {
  constexpr TimeNs kGrain = 20 * kMillisecond;  // of clocks that tick with the kernel's; twice that and more
  for (int tries = 0;; ++tries) {
    struct stat st {};
    if (stat(path.c_str(), &st) != 0) return file_error(errno, path, "cannot open");
    TW_ASSIGN(const FileStamp stamp, stamp_in(st, path));
    const TimeNs age = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() -
                       stamp.changed_ns;
    if (age > kGrain || tries == 5) return stamp;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(kGrain, kGrain - age + 1)));
  }
}

namespace {

std::string text_of(const FileStamp& stamp) {
  const std::time_t seconds = stamp.changed_ns / kSecond;
  std::tm utc{};
  char text[64] = "?";
  if (gmtime_r(&seconds, &utc) != nullptr)
    std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900,
                  utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                  static_cast<int>(std::abs(stamp.changed_ns % kSecond / kMillisecond)));
  return std::to_string(stamp.bytes) + " bytes of " + text;
}

}  // namespace

Status check_stamp(const std::string& path, const FileStamp& now, const FileStamp& then) {
  if (then.bytes < 0 || now == then) return {};
  return error(Errc::kNotFound, path + ": has been changed since an array was made of it: " + text_of(now) +
                                    ", not " + text_of(then));
}

Result<std::size_t> File::read_some(void* to, std::size_t bytes, std::int64_t offset) const {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = pread(fd_, static_cast<char*>(to) + done, std::min(bytes - done, kMaxCall),
                            offset + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(errno, path_, "cannot read");
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Status File::read(void* to, std::size_t bytes, std::int64_t offset) const {
  TW_ASSIGN(const std::size_t got, read_some(to, bytes, offset));
  if (got == bytes) return {};
  return error(Errc::kCorruptData, path_ + ": truncated: ends at byte " +
                                       std::to_string(offset + static_cast<std::int64_t>(got)) + ", byte " +
                                       std::to_string(offset + static_cast<std::int64_t>(bytes)) +
                                       " is needed");
}

Status File::write(const void* from, std::size_t bytes, std::int64_t offset) const {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = pwrite(fd_, static_cast<const char*>(from) + done, std::min(bytes - done, kMaxCall),
                             offset + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(errno, path_, "cannot write");
    done += static_cast<std::size_t>(n);
  }
  return {};
}

// Not posix_fallocate: where the file system cannot reserve, that one writes into every block, and would race with
// others who write their data.
Status File::reserve(std::int64_t bytes) const {
  if (bytes == 0) return {};
  int rc;
  do {
    rc = fallocate(fd_, 0, 0, bytes);
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return {};
  const std::string what = "cannot reserve " + std::to_string(bytes) + " bytes";
  if (errno != EOPNOTSUPP && errno != ENOSYS) return file_error(errno, path_, what);
  TW_ASSIGN(const std::int64_t now, size());
  if (now < bytes && ftruncate(fd_, bytes) != 0) return file_error(errno, path_, what);
  return {};
}

Status File::sync() const {
  // EINVAL: this file system does not sync such files (folders, mostly).
  if (fsync(fd_) != 0 && errno != EINVAL) return file_error(errno, path_, "fsync");
  return {};
}

}  // namespace tilewise
