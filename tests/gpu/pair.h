// The same steps on CUDA and on the host, for checks of built-in kernels.
#pragma once
#include <tilewise/ir/builtin.h>
#include <tilewise/kernels/plugin.h>

#include "conformance/calls.h"
#include "gpu.h"

namespace tilewise::gpu {

using kernels::conformance::Array;
using kernels::conformance::call_step;
using kernels::conformance::check_same;
using kernels::conformance::kernel_step;
using kernels::conformance::Step;
using kernels::conformance::Subject;

struct Sets {
  Sets() {
    auto made = device::make_cuda_device({.memory_bytes = std::int64_t{1} << 28});
    if (!made) stop(made.error().message);
    device = std::move(*made);
    auto set = kernels::make_cuda_kernels(*device, nullptr);
    if (!set) stop(set.error().message);
    cuda = std::move(*set);
    must(table.add(kernels::builtin_kernels()), "built-in kernels");
    host = kernels::make_host_kernels(&table);
    host_device = device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 28});
  }

  std::unique_ptr<device::Device> device, host_device;
  std::unique_ptr<kernels::KernelSet> cuda, host;
  kernels::PluginTable table;
};
struct Pair : Sets {
  Subject gpu{.kernels = *cuda, .device = *device}, cpu{.kernels = *host, .device = *host_device};

  // Both, and the outputs compared.
  void compare(Step& step, const std::string& what) {
    Step want = step;
    run(gpu, step);
    run(cpu, want);
    for (std::size_t o = 0; o < want.outputs.size(); ++o)
      check_same(step.outputs[o], want.outputs[o], what + ", output " + std::to_string(o));
  }
};

}  // namespace tilewise::gpu
