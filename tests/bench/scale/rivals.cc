#include "rivals.h"

#include <tilewise/base/prng.h>

#include <algorithm>

namespace tilewise::scale {

std::vector<std::int32_t> round_robin(const Unrolled& graph, std::size_t devices) {
  std::vector<std::int32_t> out(graph.tasks());
  for (std::size_t t = 0; t < out.size(); ++t) out[t] = static_cast<std::int32_t>(t % devices);
  return out;
}

std::vector<std::int32_t> at_random(const Unrolled& graph, std::size_t devices, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::int32_t> out(graph.tasks());
  for (std::int32_t& owner : out) owner = static_cast<std::int32_t>(prng.below(devices));
  return out;
}

Choose like_dask(double bytes_per_s) {
  return [bytes_per_s](std::uint32_t task, const Running& now) {
    const std::uint32_t begin = now.graph.first_read[now.graph.first_step[task]];
    const std::uint32_t end = now.graph.first_read[now.graph.first_step[task + 1]];
    std::vector<std::int32_t> candidates{now.idlest};
    for (std::uint32_t r = begin; r < end; ++r) candidates.push_back(now.owner[now.graph.reads[r]]);
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    std::int32_t best = candidates[0];
    double best_s = 0;
    for (const std::int32_t device : candidates) {
      double missing = 0;
      for (std::uint32_t r = begin; r < end; ++r)
        if (!now.has(now.graph.reads[r], device)) missing += now.graph.bytes[now.graph.reads[r]];
      const double streams = std::max(1, now.machine.devices[static_cast<std::size_t>(device)].streams);
      const double start_s =
          now.occupied_s[static_cast<std::size_t>(device)] / streams + missing / bytes_per_s;
      if (device != candidates[0] && start_s >= best_s) continue;
      best = device;
      best_s = start_s;
    }
    return best;
  };
}

}  // namespace tilewise::scale
