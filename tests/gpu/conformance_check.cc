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

// Compiles what a step's kernels are made of and computes it on the host.
class Rehearsal final : public kernels::KernelSet {
 public:
  Rehearsal(KernelSet& cuda, KernelSet& host) : cuda_(cuda), host_(host) {}
  Status supports(const ir::Op& op) const override { return cuda_.supports(op); }
  std::int64_t scratch_bytes(const ir::Op& op) const override { return host_.scratch_bytes(op); }
  Status launch(const kernels::KernelCall& call, device::Stream& stream) override {
    // Of products prepare() wants the space.
    if (call.op->kind != ir::OpKind::kMatmul && call.op->kind != ir::OpKind::kMatmulPanels)
      must(cuda_.prepare(*call.op), "prepare");
    return host_.launch(call, stream);
  }
  Status prepare(const ir::Op&) override { return {}; }

 private:
  KernelSet &cuda_, &host_;
};

using Suite = void (*)(const kernels::conformance::Subject&);

// An emulated GPU compiles what it is given only when the first kernel runs, hundreds of programs at once in little more
// time than one: so it is given all of a suite's before.
void rehearse(kernels::KernelSet& cuda, Suite suite, const kernels::conformance::Subject& subject) {
  const auto host = kernels::make_host_kernels(nullptr);
  const auto device = device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 30});
  Rehearsal kernels(cuda, *host);
  suite({.kernels = kernels, .device = *device, .random_share = subject.random_share});
}

TEST_CASE("CUDA kernels conform") {
  auto device = device::make_cuda_device({.memory_bytes = std::int64_t{1} << 30});
  if (!device) stop(device.error().message);
  auto set = kernels::make_cuda_kernels(**device, nullptr);
  if (!set) stop(set.error().message);
  WithScratch kernels(**set);
  const auto conform = [&](Suite suite) {
    // A complex power is exp(b log a) in float64: its error grows with b log a, up to where the result overflows.
    const bool emulated = (*device)->info().model == "Emulated GPU";
    kernels::conformance::Subject subject{.kernels = kernels,
                                          .device = **device,
                                          .complex_pow_ulps = 2500,
                                          .complex_pow_by_exp = true,
                                          .logaddexp_cancels = true,
                                          .random_share = emulated ? 0.2 : 1,
                                          .scan_order_is_reference = false};
    if (emulated) rehearse(**set, suite, subject);
    suite(subject);
  };
  SUBCASE("elementwise") { conform(kernels::conformance::conform_elementwise); }
  SUBCASE("special values") { conform(kernels::conformance::conform_special_values); }
  SUBCASE("tapes") { conform(kernels::conformance::conform_tapes); }
  SUBCASE("random") { conform(kernels::conformance::conform_random); }
  SUBCASE("reductions") { conform(kernels::conformance::conform_reductions); }
  SUBCASE("moments") { conform(kernels::conformance::conform_moments); }
  SUBCASE("scans") { conform(kernels::conformance::conform_scans); }
  SUBCASE("products") { conform(kernels::conformance::conform_products); }
  SUBCASE("moves") { conform(kernels::conformance::conform_moves); }
}

}  // namespace
}  // namespace tilewise::gpu
