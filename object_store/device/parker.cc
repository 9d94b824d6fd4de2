#include "parker.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace tilewise::device {

// A futex rather than a condition variable: no lock for the waker to meet, and one word that sanitizers understand.
void Parker::sleep(TimeNs left) {
  timespec timeout{left / kSecond, left % kSecond};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&state_), FUTEX_WAIT_PRIVATE, kParked,
          left < 0 ? nullptr : &timeout, nullptr, 0);
}

void Parker::wake_sleeper() {
  if (state_.exchange(kAwake) != kParked) return;  // somebody else does it
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&state_), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace tilewise::device
