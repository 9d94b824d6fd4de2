// What tells one version of a file from the next.
#pragma once
#include <cstdint>

namespace tilewise {

struct FileStamp {
  std::int64_t bytes = -1;      // -1: whichever version is there
  std::int64_t changed_ns = 0;  // its time of modification, since 1970
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

}  // namespace tilewise
