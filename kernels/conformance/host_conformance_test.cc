#include <tilewise/kernels/host_info.h>
#include <tilewise/kernels/plugin.h>

#include <cstdlib>

#include "conformance/harness.h"
#include "conformance/targets.h"

using namespace tilewise;

namespace {

void conform() {
  MESSAGE("" << kernels::host_numeric_class());
  kernels::PluginTable table;
  REQUIRE(table.add(kernels::builtin_kernels()).has_value());
  const auto kernels = kernels::make_host_kernels(&table);
  const auto device = device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 30});
  const char* seed = std::getenv("TILEWISE_SEED");  // to look for trouble by hand
  kernels::conformance::run_all({.kernels = *kernels,
                                 .device = *device,
                                 .seed = seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10),
                                 .ulps64 = 2,  // as kernels/README.md states them
                                 .ulps32 = 2,
                                 .pow_ulps = 2,
                                 .complex_ulps = 5,
                                 .complex_pow_ulps = 5,
                                 .order = hwy::SupportedTargets() != HWY_SCALAR});
}

// Other machines' instruction sets, as far as this one has them.
void conform_with(std::int64_t target) {
  if ((hwy::SupportedTargets() & target) == 0) return;
  const kernels::conformance::WithTarget chosen(target);
  CHECK(kernels::host_numeric_class().starts_with(hwy::TargetName(target)));
  conform();
}

}  // namespace

TEST_CASE("host kernels conform") { conform(); }
TEST_CASE("host kernels conform without vectors") { conform_with(HWY_SCALAR); }
#if HWY_ARCH_X86
TEST_CASE("host kernels conform with AVX2") { conform_with(HWY_AVX2); }
#endif
