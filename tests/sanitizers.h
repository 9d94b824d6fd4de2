#pragma once
#include <cstdint>

namespace tilewise::testing {

// What waiting for something may take longer, as ctest's time limits do (tilewise_time_limit).
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTimesSlower = 8;
#else
constexpr int kTimesSlower = 1;
#endif

// Bytes that a process may have beside what it would have without: what a sanitizer knows of each byte, and keeps of what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kOfSanitizers = std::int64_t{2} << 30;
#else
constexpr std::int64_t kOfSanitizers = 0;
#endif

}  // namespace tilewise::testing
