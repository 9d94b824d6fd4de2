// A plug-in as a user writes one: the C interface, nothing else of Tilewise. Built for the tests; a start to copy.
#include <tilewise/kernels/plugin_abi.h>

namespace {

// out[i] = 3 * in[i], float64, one dimension.
int triple(const tilewise_call_v1* call) {
  const tilewise_view_v1& in = call->inputs[0];
  auto* out = static_cast<double*>(call->outputs[0].data);
  for (int64_t i = 0; i < in.shape[0]; ++i)
    out[i] = 3 * static_cast<const double*>(in.data)[i * in.strides[0]];
  return 0;
}

const tilewise_kernel_v1 kKernels[] = {{"sample.triple", triple, nullptr, 1, 1, nullptr}};
#ifndef SAMPLE_VERSION  // the tests build others, to be refused
#define SAMPLE_VERSION "1.0"
#endif
#ifndef SAMPLE_ABI
#define SAMPLE_ABI TILEWISE_PLUGIN_ABI
#endif
const tilewise_plugin_v1 kPlugin = {SAMPLE_ABI, "sample", SAMPLE_VERSION, 1, kKernels};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
