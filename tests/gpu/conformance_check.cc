// The kernel conformance suite on CUDA.
#include <doctest/doctest.h>

#include "conformance/kernel_conformance.h"
#include "gpu.h"

namespace tilewise::gpu {
namespace {

// The suite's ops name no iteration space, which is what scratch is sized by; here they all get more than enough.
class WithScratch final : public kernels::KernelSet {
 public:
  explicit WithScratch(KernelSet& set) : set_(set) {}
  Status supports(const ir::Op& op) const override { return set_.supports(op); }
  std::int64_t scratch_bytes(const ir::Op&) const override { return std::int64_t{8} << 20; }
  Status launch(const kernels::KernelCall& call, device::Stream& stream) override {
    return set_.launch(call, stream);
  }
  Status prepare(const ir::Op&) override {
    return {};
  }  // some of the suite's ops lack what prepare() looks at

 private:
  KernelSet& set_;
};

TEST_CASE("CUDA kernels conform") {
  auto device = device::make_cuda_device({.memory_bytes = std::int64_t{1} << 30});
  if (!device) stop(device.error().message);
  auto set = kernels::make_cuda_kernels(**device, nullptr);
  if (!set) stop(set.error().message);
  WithScratch kernels(**set);
  const kernels::conformance::Subject subject{
      .kernels = kernels, .device = **device, .scan_order_is_reference = false};
  SUBCASE("elementwise") { kernels::conformance::conform_elementwise(subject); }
  SUBCASE("tapes") { kernels::conformance::conform_tapes(subject); }
  SUBCASE("random") { kernels::conformance::conform_random(subject); }
  SUBCASE("reductions") { kernels::conformance::conform_reductions(subject); }
  SUBCASE("scans") { kernels::conformance::conform_scans(subject); }
  SUBCASE("products") { kernels::conformance::conform_products(subject); }
  SUBCASE("moves") { kernels::conformance::conform_moves(subject); }
}

}  // namespace
}  // namespace tilewise::gpu
