// Time is an argument, never read inside a core.
#pragma once
#include <cstdint>

namespace tilewise {

using TimeNs = std::int64_t;  // nanoseconds on a monotonic clock of one process; never compared across hosts

constexpr TimeNs kMicrosecond = 1'000;
constexpr TimeNs kMillisecond = 1'000'000;
constexpr TimeNs kSecond = 1'000'000'000;

TimeNs monotonic_now();

}  // namespace tilewise
