// Expected failures as values. A user's mistake becomes an exception only at the client's edge;
// a bug stops the process (see check.h).
#pragma once
#include <boost/system/result.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilewise {

// Stable on the wire: append only.
enum class Errc : std::uint16_t {
  kOk = 0,
  kInvalidArgument,  // a value that can never be right (negative size, unknown dtype ...)
  kShapeMismatch,    // shapes, grids or dtypes that do not go together
  kOutOfRange,       // index or size outside its bounds, products past 2^63
  kNotFound,         // unknown array, worker, device, file
  kAlreadyExists,
  kPlacementConflict,  // two different explicit placements
  kLimitExceeded,      // a counted limit of D11
  kOutOfMemory,        // names op, device, bytes needed and there
  kDiskFull,
  kCorruptData,  // a malformed file or message
  kIo,           // the operating system said no
  kUnauthenticated,
  kPermissionDenied,
  kVersionMismatch,  // protocol, plug-in
  kUnavailable,      // not there now; may be later
  kWorkerLost,       // a fault domain died with copies that were needed
  kCancelled,
  kTimeout,
  kLaneDenied,   // strict mode and only a slow lane
  kDeviceError,  // driver or kernel failure
  kTaskFailed,   // a kernel reported an error
  kUnsupported,
  kInternal,
  kSingular,  // the values have no such result: a singular or not positive definite matrix, an iteration that does not converge
};

std::string_view name_of(Errc code);

struct [[nodiscard]] Error {
  Errc code = Errc::kInternal;
  std::string message;  // names what was wrong and where

  friend bool operator==(const Error&, const Error&) = default;
};

template <class T> using Result = boost::system::result<T, Error>;
using Status = Result<void>;

// `.value()` on an error throws this; code inside Tilewise asks first.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location& where);

inline Error error(Errc code, std::string message) { return Error{code, std::move(message)}; }

}  // namespace tilewise

// Propagate an error from a Result-returning function.
#define TW_CONCAT_INNER(a, b) a##b
#define TW_CONCAT(a, b) TW_CONCAT_INNER(a, b)
#define TW_TRY(expr) \
  do { \
    auto&& tw_try_status = (expr); \
    if (!tw_try_status) return std::move(tw_try_status).error(); \
  } while (false)
#define TW_ASSIGN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr); \
  if (!tmp) return std::move(tmp).error(); \
  lhs = std::move(*tmp)
#define TW_ASSIGN(lhs, expr) TW_ASSIGN_IMPL(TW_CONCAT(tw_result_, __LINE__), lhs, expr)
