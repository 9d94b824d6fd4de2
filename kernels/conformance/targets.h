// The instruction sets that host kernels are compiled for, and a way to have one of them used: for tests alone, since what is
// chosen holds for the whole process.
#pragma once
#include <hwy/highway.h>

#include <cstdint>
#include <vector>

namespace tilewise::kernels::conformance {

// Those of kernels/CMakeLists.txt that this machine has, the plainest first. Arm has none but NEON, which every one of them has.
inline std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> out;
#if HWY_ARCH_X86
  const std::int64_t compiled[] = {HWY_SCALAR, HWY_AVX2, HWY_AVX3};
#else
  const std::int64_t compiled[] = {HWY_NEON};
#endif
  for (const std::int64_t target : compiled)
    if ((hwy::SupportedTargets() & target) != 0) out.push_back(target);
  return out;
}

// While it lives.
class WithTarget {
 public:
  explicit WithTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();  // the next call chooses anew
  }
  ~WithTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  WithTarget(const WithTarget&) = delete;
  WithTarget& operator=(const WithTarget&) = delete;
};

}  // namespace tilewise::kernels::conformance
