#include <tilewise/base/check.h>

#include <poll.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>

namespace tilewise {

void check_failed(const char* file, int line, const char* condition, std::string_view story) {
  constexpr int kPatienceMs = 1'000;  // a bug ends the process whether or not somebody reads of it
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, kPatienceMs) <= 0) std::abort();
  std::fprintf(stderr, "tilewise: bug at %s:%d: %s\n  %.*s\n", file, line, condition,
               static_cast<int>(story.size()), story.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tilewise
