// A plug-in with a kernel that takes its time: as long as it is told, times what its process says of itself. So one worker of several
// is slow with no core taken from the others.
#include <tilewise/kernels/plugin_abi.h>

#include <fcntl.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

// out[i] = in[i] / 3 + 1, float64, one dimension, after `params` nanoseconds (int64) times $SLOW_FACTOR. Adds a byte to the file
// $SLOW_LOG.
int step(const tilewise_call_v1* call) {
  long long ns = 0;
  if (call->params_bytes != sizeof ns) return 1;
  std::memcpy(&ns, call->params, sizeof ns);
  if (const char* factor = std::getenv("SLOW_FACTOR")) ns *= std::atoi(factor);
  const timespec nap{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&nap, nullptr);
  if (const char* log = std::getenv("SLOW_LOG")) {
    const int file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    const bool written = file >= 0 && write(file, "x", 1) == 1;
    if (file >= 0) close(file);
    if (!written) return 1;
  }
  const tilewise_view_v1& in = call->inputs[0];
  const auto* from = static_cast<const double*>(in.data);
  auto* out = static_cast<double*>(call->outputs[0].data);
  for (int64_t i = 0; i < in.shape[0]; ++i) out[i] = from[i * in.strides[0]] / 3 + 1;
  return 0;
}

const tilewise_kernel_v1 kKernels[] = {{"slow.third", step, nullptr, 1, 1, nullptr}};
const tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "slow", "1.0", 1, kKernels};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
