#include <tilewise/worker/meter.h>

#include <algorithm>

namespace tilewise::worker {
namespace {

constexpr float kWeight = 0.125F;               // of the newest step in the ratio
constexpr double kErraticFactor = 20;           // above the prediction ...
constexpr std::int32_t kProbation = 1000;       // steps without such a one until it is forgotten
constexpr std::int64_t kErraticNs = 5'000'000;  // ... and this long: no mere preemption

}  // namespace

void Meter::add(std::int64_t model_ns, std::int64_t took_ns) {
  const float now = static_cast<float>(took_ns) / static_cast<float>(std::max<std::int64_t>(model_ns, 1));
  const bool first = steps_.fetch_add(1, std::memory_order_relaxed) == 0;
  if (!first && took_ns > kErraticNs && static_cast<double>(took_ns) > kErraticFactor * predict(model_ns))
    trust_.store(-kProbation, std::memory_order_relaxed);
  else if (trust_.load(std::memory_order_relaxed) < 0)
    trust_.fetch_add(1, std::memory_order_relaxed);
  // A step that was preempted says nothing about the next: one alone moves the ratio by a quarter at most.
  const float before = ratio_.load(std::memory_order_relaxed);
  ratio_.store(first ? now : before + kWeight * (std::min(now, 3 * before) - before),
               std::memory_order_relaxed);
  busy_ns_.fetch_add(took_ns, std::memory_order_relaxed);
  model_ns_.fetch_add(model_ns, std::memory_order_relaxed);
}

}  // namespace tilewise::worker
