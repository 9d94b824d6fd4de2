#include <tilewise/worker/step_log.h>

#include <algorithm>

namespace tilewise::worker {

StepLog::StepLog() : places_(std::make_unique<Place[]>(kCapacity)) {}

// After Boehm, "Can seqlocks get along with programming language memory models?" (2012).
void StepLog::add(const StepRecord& r) {
  const std::uint64_t n = next_.fetch_add(1, std::memory_order_relaxed);
  Place& place = places_[n % kCapacity];
  place.turn.store(2 * (n / kCapacity) + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const std::uint64_t words[kWords] = {r.op.value,
                                       r.graph.value,
                                       static_cast<std::uint64_t>(r.point),
                                       std::uint64_t{r.family} << 32 |
                                           std::uint64_t{static_cast<std::uint8_t>(r.lane)} << 16 |
                                           std::uint64_t{static_cast<std::uint8_t>(r.kind)} << 8 | r.stream,
                                       std::uint64_t{r.device.value} << 32 | r.peer.value,
                                       static_cast<std::uint64_t>(r.bytes),
                                       r.user.value,
                                       static_cast<std::uint64_t>(r.start_ns),
                                       static_cast<std::uint64_t>(r.end_ns)};
  for (std::size_t i = 0; i < kWords; ++i) place.words[i].store(words[i], std::memory_order_relaxed);
  place.turn.store(2 * (n / kCapacity) + 2, std::memory_order_release);
}

std::vector<StepRecord> StepLog::read(std::uint64_t& lost) const {
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  const std::uint64_t begin = end - std::min(end, kCapacity);
  lost = begin;
  std::vector<StepRecord> out;
  out.reserve(static_cast<std::size_t>(end - begin));
  for (std::uint64_t n = begin; n < end; ++n) {
    const Place& place = places_[n % kCapacity];
    const std::uint64_t whole = 2 * (n / kCapacity) + 2;
    if (place.turn.load(std::memory_order_acquire) != whole) continue;
    std::uint64_t w[kWords];
    for (std::size_t i = 0; i < kWords; ++i) w[i] = place.words[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (place.turn.load(std::memory_order_relaxed) != whole) continue;
    out.push_back({OpId{w[0]}, GraphId{w[1]}, static_cast<std::int64_t>(w[2]),
                   static_cast<std::uint32_t>(w[3] >> 32), DeviceId{static_cast<std::uint32_t>(w[4] >> 32)},
                   static_cast<std::uint8_t>(w[3]), static_cast<std::int64_t>(w[7]),
                   static_cast<std::int64_t>(w[8]), msg::TraceKind(static_cast<std::uint8_t>(w[3] >> 8)),
                   msg::Lane(static_cast<std::uint8_t>(w[3] >> 16)),
                   DeviceId{static_cast<std::uint32_t>(w[4])}, static_cast<std::int64_t>(w[5]), OpId{w[6]}});
  }
  return out;
}

}  // namespace tilewise::worker
