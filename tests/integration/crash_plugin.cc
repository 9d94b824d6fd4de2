// A plug-in with a kernel that takes its process down on some data.
#include <tilewise/kernels/plugin_abi.h>

#include <cstdlib>

namespace {

// out[i] = in[i] + 1, float64, one dimension; but where in[0] is 13, abort().
int unlucky(const tilewise_call_v1* call) {
  const tilewise_view_v1& in = call->inputs[0];
  const auto* from = static_cast<const double*>(in.data);
  if (in.shape[0] > 0 && from[0] == 13) std::abort();
  auto* out = static_cast<double*>(call->outputs[0].data);
  for (int64_t i = 0; i < in.shape[0]; ++i) out[i] = from[i * in.strides[0]] + 1;
  return 0;
}

const tilewise_kernel_v1 kKernels[] = {{"crash.unlucky", unlucky, nullptr, 1, 1, nullptr}};
const tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "crash", "1.0", 1, kKernels};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
