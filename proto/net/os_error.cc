#include <fcntl.h>
#include <tilewise/net/fd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "os_error.h"

namespace tilewise::net {
namespace {

Errc code_of(int err) {
  switch (err) {
    case ECONNRESET:
    case EPIPE:
    case ECONNREFUSED:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case ENOENT:
    case EAGAIN: return Errc::kUnavailable;
    case ETIMEDOUT: return Errc::kTimeout;
    case EACCES:
    case EPERM: return Errc::kPermissionDenied;
    case EADDRINUSE: return Errc::kAlreadyExists;
    case EADDRNOTAVAIL: return Errc::kInvalidArgument;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ETOOMANYREFS: return Errc::kLimitExceeded;
    case ENOMEM: return Errc::kOutOfMemory;
    case ENOSPC:
    case EDQUOT: return Errc::kDiskFull;
    default: return Errc::kIo;
  }
}

}  // namespace

Error os_error(std::string_view what, int err) {
  return error(code_of(err), std::string(what) + ": " + std::generic_category().message(err));
}

Error os_error(std::string_view what, const boost::system::error_code& ec) {
  if (ec.category() == boost::system::system_category()) return os_error(what, ec.value());
  return error(Errc::kNotFound, std::string(what) + ": " + ec.message());
}

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<UniqueFd> duplicate(int fd) {
  int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return os_error("duplicate descriptor", errno);
  return UniqueFd(copy);
}

}  // namespace tilewise::net
