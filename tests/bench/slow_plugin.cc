// A kernel that takes as long as it is told: out[i] = in[i] / 2 + row after a sleep, which leaves the cores to others.
#include <tilewise/kernels/plugin_abi.h>

#include <cstdlib>
#include <cstring>
#include <ctime>

#include "slow.h"

namespace {

int step(const tilewise_call_v1* call) {
  tilewise::bench::SlowParams params;
  if (call->params_bytes != sizeof params) return 1;
  std::memcpy(&params, call->params, sizeof params);
  long long ns = params.sleep_ns;
  if (const char* slower = std::getenv("BENCH_SLOWER")) ns *= std::atoi(slower);  // this worker's
  const timespec nap{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&nap, nullptr);
  const tilewise_view_v1& in = call->inputs[0];
  const auto* from = static_cast<const double*>(in.data);
  auto* out = static_cast<double*>(call->outputs[0].data);
  for (int64_t i = 0; i < in.shape[0]; ++i)
    out[i] = from[i * in.strides[0]] / 2 + static_cast<double>(params.row);
  return 0;
}

const tilewise_kernel_v1 kKernels[] = {{"bench.slow", step, nullptr, 1, 1, nullptr}};
const tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "bench_slow", "1.0", 1, kKernels};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
