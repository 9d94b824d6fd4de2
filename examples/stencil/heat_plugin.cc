// A plug-in with two kernels of one explicit step of the heat equation, u' = u + r (left - 2 u + right), on a rod whose
// two end points keep their values. A plug-in needs one header of C declarations and nothing else of Tilewise.
#include <tilewise/kernels/plugin_abi.h>

#include <cstdio>
#include <cstring>

namespace {

double at(const tilewise_view_v1& view, int64_t i) {
  return static_cast<const double*>(view.data)[i * view.strides[0]];
}

double step(double r, double left, double middle, double right) {
  return middle + r * (left - 2 * middle + right);
}

int all_float64(const int32_t* input_dtypes, int32_t inputs, const int32_t* output_dtypes, int32_t outputs,
                char* message, size_t message_bytes) {
  for (int32_t i = 0; i < inputs + outputs; ++i) {
    if ((i < inputs ? input_dtypes[i] : output_dtypes[i - inputs]) == TILEWISE_FLOAT64) continue;
    std::snprintf(message, message_bytes, "heat kernels want float64");
    return 1;
  }
  return 0;
}

bool rate(const tilewise_call_v1* call, double& r) {
  if (call->params_bytes != sizeof(r)) {
    std::snprintf(call->message, call->message_bytes, "wants 8 bytes of parameters: the rate");
    return false;
  }
  std::memcpy(&r, call->params, sizeof(r));
  return true;
}

// For map_blocks: one input, the block with a halo of one element at each side that is not an end of the rod.
int windowed(const tilewise_call_v1* call) {
  double r = 0;
  if (!rate(call, r)) return 1;
  const tilewise_view_v1& in = call->inputs[0];
  auto* out = static_cast<double*>(call->outputs[0].data);
  const int64_t first =
      call->box_lo[0] > 0 ? call->box_lo[0] - 1 : 0;  // of the window: clipped at the rod's start
  for (int64_t i = call->box_lo[0]; i < call->box_hi[0]; ++i) {
    const int64_t j = i - first;
    const bool end = i == 0 || i + 1 == call->space[0];
    out[i - call->box_lo[0]] = end ? at(in, j) : step(r, at(in, j - 1), at(in, j), at(in, j + 1));
  }
  return 0;
}

// For task(): the whole rod in one call, as one block.
int whole(const tilewise_call_v1* call) {
  double r = 0;
  if (!rate(call, r)) return 1;
  const tilewise_view_v1& in = call->inputs[0];
  auto* out = static_cast<double*>(call->outputs[0].data);
  const int64_t n = in.shape[0];
  for (int64_t i = 0; i < n; ++i) {
    out[i] = i == 0 || i + 1 == n ? at(in, i) : step(r, at(in, i - 1), at(in, i), at(in, i + 1));
  }
  return 0;
}

const tilewise_kernel_v1 kKernels[] = {
    {"heat.windowed", windowed, nullptr, 1, 1, all_float64},
    {"heat.whole", whole, nullptr, 1, 1, all_float64},
};
const tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "heat", "1.0", 2, kKernels};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
