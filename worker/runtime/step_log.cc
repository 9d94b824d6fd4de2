#include <tilewise/worker/step_log.h>

#include <algorithm>
#include <bit>

namespace tilewise::worker {

StepLog::StepLog(std::uint64_t records)
    : bits_(std::bit_width(std::bit_ceil(std::clamp<std::uint64_t>(records, 2, kMost))) - 1),
      mask_((std::uint64_t{1} << bits_) - 1),
      places_(std::make_unique<Place[]>(capacity())) {}

// After Boehm, "Can seqlocks get along with programming language memory models?" (2012).
void StepLog::add(const StepRecord& r) {
  const std::uint64_t n = next_.fetch_add(1, std::memory_order_relaxed);
  Place& place = places_[n & mask_];
  place.turn.store(2 * (n >> bits_) + 1, std::memory_order_relaxed);
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
  place.turn.store(2 * (n >> bits_) + 2, std::memory_order_release);
}

bool StepLog::load(std::uint64_t n, StepRecord& out) const {
  const Place& place = places_[n & mask_];
  const std::uint64_t whole = 2 * (n >> bits_) + 2;
  if (place.turn.load(std::memory_order_acquire) != whole) return false;
  std::uint64_t w[kWords];
  for (std::size_t i = 0; i < kWords; ++i) w[i] = place.words[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (place.turn.load(std::memory_order_relaxed) != whole) return false;
  out = {OpId{w[0]},
         GraphId{w[1]},
         static_cast<std::int64_t>(w[2]),
         static_cast<std::uint32_t>(w[3] >> 32),
         DeviceId{static_cast<std::uint32_t>(w[4] >> 32)},
         static_cast<std::uint8_t>(w[3]),
         static_cast<std::int64_t>(w[7]),
         static_cast<std::int64_t>(w[8]),
         msg::TraceKind(static_cast<std::uint8_t>(w[3] >> 8)),
         msg::Lane(static_cast<std::uint8_t>(w[3] >> 16)),
         DeviceId{static_cast<std::uint32_t>(w[4])},
         static_cast<std::int64_t>(w[5]),
         OpId{w[6]}};
  return true;
}

StepLog::Read StepLog::read(const Wanted& wanted) const {
  // Records are added soon after what they tell has ended: so much later at most.
  constexpr TimeNs kSoon = kSecond;
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  const std::uint64_t begin = end - std::min(end, capacity());
  Read out;
  StepRecord r;
  for (std::uint64_t n = begin; begin > 0 && n < end && out.lost == 0; ++n) {
    if (!load(n, r)) continue;
    if (r.end_ns < wanted.from) break;  // whatever was overwritten ended before that
    out.lost = begin;
    out.since = r.end_ns;
  }
  for (std::uint64_t n = end; n-- > begin;) {
    if (!load(n, r)) continue;
    if (wanted.from > INT64_MIN + kSoon && r.end_ns < wanted.from - kSoon) break;
    if (r.end_ns < wanted.from || r.start_ns > wanted.until) continue;
    if (wanted.graph && r.graph != wanted.graph) continue;
    if (out.records.size() < wanted.most)
      out.records.push_back(r);
    else
      ++out.cut;
  }
  std::reverse(out.records.begin(), out.records.end());
  return out;
}

}  // namespace tilewise::worker
