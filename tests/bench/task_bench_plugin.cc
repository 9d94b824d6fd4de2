// One task of Task Bench: checks that every input is the output of the task that should have made it, computes, and
// says who it is. A scheduler that delivers anything else fails the graph.
#include <tilewise/kernels/plugin_abi.h>

#include <cstdio>
#include <cstring>

#include "task_bench.h"

namespace {

using tilewise::bench::RowParams;

int fail(const tilewise_call_v1* call, const char* why, int64_t a, int64_t b) {
  std::snprintf(call->message, call->message_bytes, "%s: %lld, %lld", why, static_cast<long long>(a),
                static_cast<long long>(b));
  return 1;
}

int point(const tilewise_call_v1* call) {
  RowParams row;
  if (call->params_bytes != sizeof(row)) return fail(call, "parameters of a wrong size", 0, 0);
  std::memcpy(&row, call->params, sizeof(row));
  const int64_t i = call->box_lo[0] / 2;  // a block is the pair (row, point)
  const auto wanted = tilewise::bench::dependencies(row, i);
  if (static_cast<std::size_t>(call->input_count) != wanted.size())
    return fail(call, "another number of inputs", call->input_count, static_cast<int64_t>(wanted.size()));
  for (int32_t k = 0; k < call->input_count; ++k) {
    const auto* in = static_cast<const int64_t*>(call->inputs[k].data);
    if (in[0] != row.row - 1 || in[1] != wanted[static_cast<std::size_t>(k)])
      return fail(call, "an input that is somebody else's", in[0], in[1]);
  }
  if (tilewise::bench::compute(row.iterations) == 0) return fail(call, "nothing computed", 0, 0);
  auto* out = static_cast<int64_t*>(call->outputs[0].data);
  out[0] = row.row;
  out[1] = i;
  return 0;
}

const tilewise_kernel_v1 kKernels[] = {{"task_bench.point", point, nullptr, -1, 1, nullptr}};
const tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "task_bench", "1.0", 1, kKernels};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
