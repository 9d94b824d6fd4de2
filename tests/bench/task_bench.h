// Task graphs of Task Bench (Slaughter et al., SC'20): rows of `width` tasks, each reading outputs of the row before.
// Shared by the plug-in that runs and validates a task and by the program that measures.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace tilewise::bench {

enum class Pattern : std::int32_t { kTrivial, kNoComm, kStencil1d, kFft, kTree, kNearest, kSpread };

inline constexpr std::string_view kPatternNames[] = {"trivial", "no_comm", "stencil_1d", "fft",
                                                     "tree",    "nearest", "spread"};

// Parameters of one row's call, as bytes.
struct RowParams {
  std::int64_t row = 0;
  std::int64_t width = 0;
  Pattern pattern = Pattern::kTrivial;
  std::int32_t radix = 0;  // of nearest and spread
  std::int64_t iterations = 0;
};

// Points of row - 1 that point i of the row reads, in the order in which the task gets them. Row 0 reads nothing.
// (tree as in the method: point i reads i / 2 of a row that has doubled; once the row has its full width, it stays.)
inline std::vector<std::int64_t> dependencies(const RowParams& p, std::int64_t i) {
  std::vector<std::int64_t> out;
  if (p.row == 0) return out;
  const auto add = [&](std::int64_t dep) {
    if (dep < 0 || dep >= p.width) return;
    for (const std::int64_t seen : out)
      if (seen == dep) return;
    out.push_back(dep);
  };
  switch (p.pattern) {
    case Pattern::kTrivial: break;
    case Pattern::kNoComm: add(i); break;
    case Pattern::kStencil1d:
      for (std::int64_t k = -1; k <= 1; ++k) add(i + k);
      break;
    case Pattern::kFft: {
      std::int64_t levels = 0;
      while ((std::int64_t{1} << levels) < p.width) ++levels;
      if (levels == 0) levels = 1;
      const std::int64_t distance = std::int64_t{1} << ((p.row + levels - 1) % levels);
      add(i - distance), add(i), add(i + distance);
      break;
    }
    case Pattern::kTree: add(i / 2); break;
    case Pattern::kNearest:
      for (std::int64_t k = -(p.radix / 2); k <= (p.radix - 1) / 2; ++k) add(i + k);
      break;
    case Pattern::kSpread:
      for (std::int64_t k = 0; k < p.radix; ++k)
        add((i + k * p.width / p.radix + (k > 0 ? p.row % p.width : 0)) % p.width);
      break;
  }
  return out;
}

// The compute kernel: 64 doubles, `iterations` times a = a*a + a. Returns something of it, so that it is not removed.
constexpr double flops_of(std::int64_t iterations) { return 2.0 * 64 * static_cast<double>(iterations) + 64; }
double compute(std::int64_t iterations);

}  // namespace tilewise::bench
