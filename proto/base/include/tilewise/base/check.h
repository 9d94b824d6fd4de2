// Bugs stop the process with their story. Never reachable from the wire.
#pragma once
#include <string_view>

namespace tilewise {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view story);

}  // namespace tilewise

// Kept in release builds. `condition` only looks and changes nothing; `story` is evaluated only on failure and may build a string.
// TILEWISE_UNCHECKED leaves them out, to measure what they cost (tests/bench/README.md).
#ifdef TILEWISE_UNCHECKED
#define TW_CHECK(condition, story) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define TW_CHECK(condition, story) \
  do { \
    if (!(condition)) [[unlikely]] \
      ::tilewise::check_failed(__FILE__, __LINE__, #condition, (story)); \
  } while (false)
#endif
