// Numerics only: views in, views out, stream explicit. No kernel knows blocks of other arrays, workers or messages.
#pragma once
#include <tilewise/device/device.h>
#include <tilewise/ir/op.h>

#include <array>
#include <boost/container/small_vector.hpp>
#include <memory>
#include <string>

namespace tilewise::kernels {

// Memory of one region as the kernel sees it. `strides` in elements, signed; 0 repeats. `shape` is the region's.
struct TensorView {
  void* data = nullptr;  // of element (0, ..., 0); null: this operand is not read in this step
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;
  ir::Strides strides;
};

// One step of one task.
struct KernelCall {
  const ir::Op* op = nullptr;  // outlives completion of the step
  ir::Box box;                 // the point's elements in the op's space (global indices: iota, random)
  ir::Shape space_shape;       // extents of the op's space (random counters are C-order positions in it)
  std::int64_t step = 0, steps = 1;  // first step initialises the output, later ones accumulate into it
  boost::container::small_vector<TensorView, 16> inputs;  // one per operand; of listed blocks: one per block
  boost::container::small_vector<ir::Box, 16>
      input_boxes;  // their regions, in the operand views' coordinates
  boost::container::static_vector<TensorView, limits::kMaxOutputs> outputs;  // C-order, contiguous blocks
  boost::container::static_vector<ir::Box, limits::kMaxOutputs>
      output_boxes;              // in the output array's coordinates
  std::byte* scratch = nullptr;  // scratch_bytes(op) of device memory, 256-byte aligned; null if none
};

// What a device kind can compute.
class KernelSet {
 public:
  virtual ~KernelSet() = default;
  // Can this op run here, whatever its point? Names op and dtype if not. Cheap on CUDA, where the host runs what cannot.
  virtual Status supports(const ir::Op& op) const = 0;
  virtual std::int64_t scratch_bytes(const ir::Op& op) const = 0;
  // Enqueues one step on `stream`, returns at once; the caller records. Host kernels run inside the stream's thread.
  // The views' memory is readable/writable in stream order. Same bits for the same call, whatever the threads.
  virtual Status launch(const KernelCall& call, device::Stream& stream) = 0;
  // The same step on the calling thread, to its end: for a shell that already runs inside a host stream's thread. CUDA:
  // kUnsupported.
  virtual Status run(const KernelCall& call) const;
  // Runs before the first launch of `op` where something can be prepared (a CUDA tape is compiled). Any thread.
  virtual Status prepare(const ir::Op& op) = 0;
};

class PluginTable;  // plug-in kernels by name, see plugin.h

std::unique_ptr<KernelSet> make_host_kernels(const PluginTable* plugins);
// Slow and plain, on host memory; the truth that the others are compared with.
std::unique_ptr<KernelSet> make_reference_kernels(const PluginTable* plugins);
// kUnavailable without the CUDA module, a driver or a GPU.
Result<std::unique_ptr<KernelSet>> make_cuda_kernels(device::Device& device, const PluginTable* plugins);

}  // namespace tilewise::kernels
