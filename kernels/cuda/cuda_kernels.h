// The kernel set of one CUDA device.
#pragma once
#include "launch.h"

namespace tilewise::cuda {

class CudaKernels final : public kernels::KernelSet {
 public:
  static Result<std::unique_ptr<CudaKernels>> make(device::Device& device,
                                                   const kernels::PluginTable* plugins);

  Status supports(const ir::Op& op) const override;
  std::int64_t scratch_bytes(const ir::Op& op) const override;
  Status launch(const KernelCall& call, device::Stream& stream) override;
  // Compiles what the op will launch, from the disk cache if it is there. Without it the first launch compiles, and
  // whoever enqueues waits for the compiler.
  Status prepare(const ir::Op& op) override;

  Programs& programs() { return programs_; }

 private:
  CudaKernels(device::Device& device, const Context& context, std::unique_ptr<Nvrtc> nvrtc,
              std::unique_ptr<Cublas> cublas, std::unique_ptr<Cusolver> cusolver,
              std::unique_ptr<Cufft> cufft, const kernels::PluginTable* plugins)
      : device_(device),
        programs_(context, std::move(nvrtc), CubinCache(CubinCache::default_folder())),
        cublas_(std::move(cublas)),
        cusolver_(std::move(cusolver)),
        cufft_(std::move(cufft)),
        env_{context, programs_, cublas_.get(), cusolver_.get(), cufft_.get(), plugins} {}

  device::Device& device_;
  Programs programs_;
  std::unique_ptr<Cublas> cublas_;
  std::unique_ptr<Cusolver> cusolver_;
  std::unique_ptr<Cufft> cufft_;
  Environment env_;
};

}  // namespace tilewise::cuda
