#include <tilewise/base/result.h>

#include <stdexcept>

namespace tilewise {

std::string_view name_of(Errc code) {
  switch (code) {
    case Errc::kOk: return "ok";
    case Errc::kInvalidArgument: return "invalid argument";
    case Errc::kShapeMismatch: return "shape mismatch";
    case Errc::kOutOfRange: return "out of range";
    case Errc::kNotFound: return "not found";
    case Errc::kAlreadyExists: return "already exists";
    case Errc::kPlacementConflict: return "placement conflict";
    case Errc::kLimitExceeded: return "limit exceeded";
    case Errc::kOutOfMemory: return "out of memory";
    case Errc::kDiskFull: return "disk full";
    case Errc::kCorruptData: return "corrupt data";
    case Errc::kIo: return "i/o error";
    case Errc::kUnauthenticated: return "unauthenticated";
    case Errc::kPermissionDenied: return "permission denied";
    case Errc::kVersionMismatch: return "version mismatch";
    case Errc::kUnavailable: return "unavailable";
    case Errc::kWorkerLost: return "worker lost";
    case Errc::kCancelled: return "cancelled";
    case Errc::kTimeout: return "timeout";
    case Errc::kLaneDenied: return "lane denied";
    case Errc::kDeviceError: return "device error";
    case Errc::kTaskFailed: return "task failed";
    case Errc::kUnsupported: return "unsupported";
    case Errc::kInternal: return "internal error";
    case Errc::kSingular: return "singular matrix";
  }
  return "unknown error";
}

void throw_exception_from_error(const Error& error, const boost::source_location&) {
  throw std::runtime_error(std::string(name_of(error.code)) + ": " + error.message);
}

}  // namespace tilewise
