#include <hwy/highway.h>
#include <tilewise/kernels/host_info.h>

#include <cstdlib>

#include "conformance/harness.h"

using namespace tilewise;

namespace {

void conform() {
  MESSAGE("" << kernels::host_numeric_class());
  const auto kernels = kernels::make_host_kernels(nullptr);
  const auto device = device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 30});
  const char* seed = std::getenv("TILEWISE_SEED");  // to look for trouble by hand
  kernels::conformance::run_all({.kernels = *kernels,
                                 .device = *device,
                                 .seed = seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10),
                                 .ulps64 = 2,  // as kernels/README.md states them
                                 .ulps32 = 2,
                                 .pow_ulps = 2,
                                 .complex_ulps = 5,
                                 .complex_pow_ulps = 5});
}

// Other machines' instruction sets, as far as this one has them.
void conform_with(std::int64_t target) {
  if ((hwy::SupportedTargets() & target) == 0) return;
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().DeInit();  // the next call chooses anew
  conform();
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();  // the next call chooses anew
}

}  // namespace

TEST_CASE("host kernels conform") { conform(); }
TEST_CASE("host kernels conform without vectors") { conform_with(HWY_SCALAR); }
#if HWY_ARCH_X86
TEST_CASE("host kernels conform with AVX2") { conform_with(HWY_AVX2); }
#endif
