// Puts one thread to sleep until another says so, at no cost to the other while nobody sleeps.
#pragma once
#include <tilewise/base/time.h>

#include <atomic>
#include <cstdint>

namespace tilewise::device {

// One thread parks, any thread wakes. The waker first makes the condition true with a sequentially consistent store,
// then calls wake(); the sleeper announces itself with one before it looks at the condition for the last time. In the
// single order of such operations one of the two sees the other, so no wake-up is lost (Dekker).
class Parker {
 public:
  // Returns when `ready()` holds, or after about `timeout_ns` (negative: never). Polls for `spin_ns` first.
  // `ready` reads what the wakers write with sequentially consistent loads.
  template <class Ready> void park_until(Ready ready, TimeNs spin_ns, TimeNs timeout_ns = -1) {
    if (ready() || spin(ready, spin_ns)) return;
    const TimeNs give_up = timeout_ns < 0 ? 0 : monotonic_now() + timeout_ns;
    for (;;) {
      state_.store(kParked);
      if (ready()) break;
      const TimeNs left = timeout_ns < 0 ? -1 : give_up - monotonic_now();
      if (timeout_ns >= 0 && left <= 0) break;
      sleep(left);
    }
    state_.store(kAwake);
  }
  void wake() {
    if (state_.load() == kParked) wake_sleeper();
  }

 private:
  static constexpr std::uint32_t kAwake = 0, kParked = 1;

  template <class Ready> static bool spin(Ready& ready, TimeNs spin_ns) {
    if (spin_ns <= 0) return false;
    const TimeNs until = monotonic_now() + spin_ns;
    do {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return true;
        relax();
      }
    } while (monotonic_now() < until);
    return false;
  }
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  void sleep(TimeNs left);  // while the state is kParked; may return early
  void wake_sleeper();

  std::atomic<std::uint32_t> state_{kAwake};
};

}  // namespace tilewise::device
