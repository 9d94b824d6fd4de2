#include <tilewise/base/check.h>

#include <cstdio>
#include <cstdlib>

namespace tilewise {

void check_failed(const char* file, int line, const char* condition, std::string_view story) {
  std::fprintf(stderr, "tilewise: bug at %s:%d: %s\n  %.*s\n", file, line, condition,
               static_cast<int>(story.size()), story.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tilewise
