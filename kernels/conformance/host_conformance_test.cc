#include "conformance/harness.h"

using namespace tilewise;

TEST_CASE("host kernels conform") {
  const auto kernels = kernels::make_host_kernels(nullptr);
  const auto device = device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 30});
  kernels::conformance::run_all({.kernels = *kernels, .device = *device});
}
