// The operating system's errors as typed ones.
#pragma once
#include <tilewise/base/result.h>

#include <string_view>

namespace tilewise::net {

// "<what>: <text of errno>", with the code a caller would act upon: a peer that went away is kUnavailable.
Error os_error(std::string_view what, int err);

}  // namespace tilewise::net
