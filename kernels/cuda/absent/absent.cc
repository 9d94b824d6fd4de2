// The CUDA kernels of a build without a toolkit.
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels {

Result<std::unique_ptr<KernelSet>> make_cuda_kernels(device::Device&, const PluginTable*) {
  return error(Errc::kUnavailable,
               "this build has no CUDA module (no cuda.h was found when it was configured)");
}

}  // namespace tilewise::kernels
