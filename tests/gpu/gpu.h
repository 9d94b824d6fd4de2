// What the checks and benchmarks of gpu_check share.
#pragma once
#include <tilewise/device/cuda.h>
#include <tilewise/kernels/kernels.h>

#include <memory>
#include <string>
#include <vector>

namespace tilewise::gpu {

// A device with its kernels and a bump allocator over one slab.
class Gpu {
 public:
  explicit Gpu(std::int64_t memory_bytes);  // stops the program with its story where there is no GPU

  device::Device& device() { return *device_; }
  device::Stream& stream(int i = 0) { return device_->compute_stream(i); }
  kernels::KernelSet& kernels() { return *kernels_; }
  std::byte* allocate(std::int64_t bytes);
  void reset() { used_ = 0; }
  // Stops the program unless the last step of every stream ended well.
  void finish();

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  device::Slab slab_;
  std::int64_t used_ = 0;
};

[[noreturn]] void stop(const std::string& story);
void must(const Status& status, const std::string& what);

// One measurement: the table's line and the JSON file's entry.
struct Figure {
  std::string name, unit;
  double value = 0;
  double reference = 0;  // what it is compared with (0: nothing)
  std::string of;        // what `reference` is
};
std::vector<Figure> run_benchmarks();

// `gpu_check --ipc-child HANDLE BYTES`: the other process of ipc_check.cc.
int ipc_child(const std::string& handle, std::int64_t bytes);
void set_program(const std::string& path);

// Ops for hand-made calls: only what kernels look at is filled in.
ir::Tape tape(std::initializer_list<ir::TapeInstr> code);
ir::Op map_op(ir::Tape tape, const ir::Shape& shape, int operands);
ir::Op reduce_op(ir::Tape tape, ir::ReduceKind kind, std::uint32_t axes, const ir::Shape& shape);
kernels::TensorView dense(void* data, ir::DType dtype, const ir::Shape& shape);
kernels::KernelCall call_of(const ir::Op& op, const ir::Shape& shape);

}  // namespace tilewise::gpu
