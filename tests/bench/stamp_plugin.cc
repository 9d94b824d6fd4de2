// A kernel that says when it was first called: the parameters name a file of 8 bytes, which gets the steady clock's
// nanoseconds once. All processes of a machine share that clock.
#include <tilewise/kernels/plugin_abi.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <string>

namespace {

using Slot = std::atomic<std::int64_t>;

int stamp(const tilewise_call_v1* call) {
  thread_local std::string path;  // of the last call: mostly the same one
  thread_local Slot* slot = nullptr;
  const std::string wanted(static_cast<const char*>(call->params), call->params_bytes);
  if (slot == nullptr || wanted != path) {
    if (slot != nullptr) munmap(slot, sizeof(Slot));
    slot = nullptr;
    const int fd = open(wanted.c_str(), O_RDWR);
    void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (at == MAP_FAILED) {
      std::snprintf(call->message, call->message_bytes, "cannot map %s", wanted.c_str());
      return 1;
    }
    slot = static_cast<Slot*>(at);
    path = wanted;
  }
  if (slot->load(std::memory_order_relaxed) != 0) return 0;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::int64_t none = 0;
  slot->compare_exchange_strong(none, now.tv_sec * 1'000'000'000 + now.tv_nsec);
  return 0;
}

const tilewise_kernel_v1 kKernels[] = {{"bench.stamp", stamp, nullptr, -1, -1, nullptr}};
const tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "bench", "1.0", 1, kKernels};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
