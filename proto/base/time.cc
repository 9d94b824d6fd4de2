#include <tilewise/base/time.h>

#include <chrono>

namespace tilewise {

TimeNs monotonic_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace tilewise
