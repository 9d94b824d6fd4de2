// The operating system's errors as typed ones.
#pragma once
#include <tilewise/base/result.h>

#include <string_view>

#include <boost/system/error_code.hpp>

namespace tilewise::net {

// "<what>: <text of errno>", with the code a caller would act upon: a peer that went away is kUnavailable.
Error os_error(std::string_view what, int err);
// Asio's own categories (names not found) beside errno values.
Error os_error(std::string_view what, const boost::system::error_code& ec);

}  // namespace tilewise::net
