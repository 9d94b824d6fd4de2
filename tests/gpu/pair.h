// The same steps on CUDA and on the host, for checks of built-in kernels.
#pragma once
#include <tilewise/ir/builtin.h>
#include <tilewise/kernels/plugin.h>

#include "conformance/harness.h"
#include "gpu.h"

namespace tilewise::gpu {

using kernels::conformance::Array;
using kernels::conformance::check_same;
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

inline ir::Grid whole_grid(const ir::Shape& shape) {
  std::vector<ir::DimGrid> dims;
  for (const std::int64_t n : shape) dims.push_back(ir::DimGrid::whole(n));
  return ir::Grid(std::move(dims));
}

// A call of a built-in kernel. What its operands are views of is left open, so that any layout may come.
inline Step kernel_step(std::string_view kernel, std::string params, const ir::Shape& space,
                        std::vector<Array> inputs, std::vector<Array> outputs) {
  Step step;
  step.op.kind = ir::OpKind::kCall;
  ir::CallAttrs attrs;
  attrs.kernel = kernel;
  attrs.params = std::move(params);
  step.op.attrs = std::move(attrs);
  step.op.space = whole_grid(space);
  for (const Array& a : inputs) step.op.operands.emplace_back().view.shape = a.shape;
  step.box = ir::box_of(space);
  step.space = space;
  for (const Array& a : inputs) step.input_boxes.push_back(ir::box_of(a.shape));
  for (const Array& a : outputs) step.op.outputs.push_back({.dtype = a.dtype, .grid = whole_grid(a.shape)});
  step.inputs = std::move(inputs);
  step.outputs = std::move(outputs);
  return step;
}

template <class P>
Step call_step(const P& params, const ir::Shape& space, std::vector<Array> inputs,
               std::vector<Array> outputs) {
  std::string bytes;
  if constexpr (!std::is_empty_v<P>) bytes = ir::builtin::bytes_of(params);
  return kernel_step(P::kName, std::move(bytes), space, std::move(inputs), std::move(outputs));
}

}  // namespace tilewise::gpu
