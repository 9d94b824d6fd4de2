#include <tilewise/kernels/host_info.h>
#include <tilewise/kernels/plugin.h>

#include <algorithm>
#include <cstdlib>

#include "conformance/harness.h"
#include "conformance/targets.h"

using namespace tilewise;

namespace {

struct Host {
  Host() { REQUIRE(table.add(kernels::builtin_kernels()).has_value()); }
  kernels::PluginTable table;
  std::unique_ptr<kernels::KernelSet> set = kernels::make_host_kernels(&table);
  std::unique_ptr<device::Device> device =
      device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 30});
  const char* seed = std::getenv("TILEWISE_SEED");  // to look for trouble by hand
  kernels::conformance::Subject subject{.kernels = *set,
                                        .device = *device,
                                        .seed = seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10),
                                        .ulps64 = 2,  // as kernels/README.md states them
                                        .ulps32 = 2,
                                        .pow_ulps = 2,
                                        .complex_ulps = 5,
                                        .complex_pow_ulps = 5,
                                        .order = hwy::SupportedTargets() != HWY_SCALAR};
};

// Other machines' instruction sets, as far as this one has them: of families whose bits targets_test.cc finds the same with each of
// them, the case above is enough, but for what has functions where there is no FMA.
void conform_with(std::int64_t target) {
  const std::vector<std::int64_t> targets = kernels::conformance::targets();
  if (std::find(targets.begin(), targets.end(), target) == targets.end()) return;
  const kernels::conformance::WithTarget chosen(target);
  CHECK(kernels::host_numeric_class().starts_with(hwy::TargetName(target)));
  Host host;
  if (target == HWY_SCALAR) {
    host.subject.random_share = 0.2;
    kernels::conformance::conform_elementwise(host.subject);
    kernels::conformance::conform_tapes(host.subject);
    kernels::conformance::conform_random(host.subject);
  }
  kernels::conformance::conform_special_values(host.subject);
  kernels::conformance::conform_moves(host.subject);
  kernels::conformance::conform_indices(host.subject);
  if (host.subject.order) kernels::conformance::conform_order(host.subject);
  kernels::conformance::conform_numbers(host.subject);
}

}  // namespace

TEST_CASE("host kernels conform") {
  MESSAGE("" << kernels::host_numeric_class());
  const Host host;
  kernels::conformance::run_all(host.subject);
}
TEST_CASE("host kernels conform without vectors") { conform_with(HWY_SCALAR); }
#if HWY_ARCH_X86
TEST_CASE("host kernels conform with AVX2") { conform_with(HWY_AVX2); }
#endif
