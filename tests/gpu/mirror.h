// Runs one kernel call on the GPU and on a host kernel set, on copies of the same memory, and compares the outputs.
#pragma once
#include <tilewise/base/prng.h>

#include <deque>

#include "gpu.h"

namespace tilewise::gpu {

// Memory that exists twice, on the host and on the GPU.
class Mirror {
 public:
  // `finite`: no NaN or infinity among random values; one of them would hide all other errors of a sum.
  explicit Mirror(Gpu& gpu, bool finite = false) : gpu_(gpu), finite_(finite) { gpu_.reset(); }

  std::byte* add(std::int64_t bytes);
  // A view of `shape` with random strides (permuted, stepped, reversed, repeated) over random values.
  kernels::TensorView random_view(ir::DType dtype, const ir::Shape& shape, Prng& prng, bool plain = false);
  kernels::TensorView output(ir::DType dtype, const ir::Shape& shape);
  kernels::TensorView random_output(ir::DType dtype, const ir::Shape& shape, Prng& prng);

  // `call` names host memory. Runs it on the GPU, then with `host`; outputs of both are kept.
  Status run(kernels::KernelCall call, kernels::KernelSet& host);
  // The largest difference of an output as a multiple of `tolerance` * (1 + |expected|); exact for integers and bool
  // (0 or infinity). NaN equals NaN.
  double difference(const kernels::TensorView& output, double tolerance) const;
  // Uploads, runs on the GPU only, downloads into gpu_bytes().
  Status run_gpu(kernels::KernelCall call);
  const std::byte* gpu_bytes(const void* host) const;

 private:
  struct Buffer {
    std::vector<std::byte> host, result;  // result: what the GPU left
    std::byte* device;
  };
  const Buffer& find(const void* data) const;
  void* on_device(void* data) const;

  Gpu& gpu_;
  bool finite_;
  std::deque<Buffer> buffers_;
};

ir::Shape random_shape(Prng& prng, int max_rank, std::int64_t max_volume);
void fill_random(void* data, ir::DType dtype, std::int64_t count, Prng& prng, bool finite);

}  // namespace tilewise::gpu
