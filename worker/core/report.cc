// Progress in batches: cumulative numbers, so that the scheduler may see them twice or out of order.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

void Core::Impl::mark_dirty(Slot op, std::uint16_t device) {
  ShareState& share = ops[op].shares[device];
  if (!share.dirty) {
    share.dirty = true;
    dirty.emplace_back(op, device);
  }
}

// The last entry of the log of which all is over.
std::uint64_t Core::Impl::log_told() {
  const auto runs = [&](OpId id) {
    const auto op = op_by_id.find(id.value);
    return op != op_by_id.end() && ops[op->second].live_tasks > 0;
  };
  while (!ending.empty() && std::none_of(ending.front().ops.begin(), ending.front().ops.end(), runs))
    ending.pop_front();
  return (ending.empty() ? log_next : ending.front().entry) - 1;
}

// What is told of memory is to be true when all is over, too: what a transport or a kernel still held comes free later than the last
// array.
bool Core::Impl::has_news() const {
  if (!dirty.empty() || lanes_dirty || tiers_dirty || log_moved) return true;
  return array_by_id.empty() && std::any_of(devices.begin(), devices.end(), [](const DeviceState& device) {
           return device.arena.bytes_in_use() != device.told_in_use;
         });
}

void Core::Impl::report() {
  if (!has_news()) return;
  if (!report_now && now - last_report < options.report_ns) return;
  msg::Progress progress;
  progress.log_applied = log_told();
  for (const auto& [slot, d] : dirty) {
    ShareState& share = ops[slot].shares[d];
    share.dirty = false;
    const OpId id = ops[slot].run.id;
    progress.ops.push_back({id, devices[d].spec.id, share.completed, share.failed});
    if (share.completed == share.owned)
      progress.measured.push_back({id, devices[d].spec.id, share.busy_ns, share.moved});
    maybe_forget(slot);
  }
  dirty.clear();
  progress.devices = device_stats();
  for (DeviceState& device : devices) {
    device.bytes_high = 0;
    device.told_in_use = device.arena.bytes_in_use();
  }
  if (std::exchange(lanes_dirty, false)) {
    for (const msg::LaneStats& lane : lanes) {
      if (lane.transfers > 0) progress.lanes.push_back(lane);
    }
    report_links(progress.links);
    report_pairs(progress.pairs);
  }
  log_moved = report_now = tiers_dirty = false;
  last_report = now;
  out->to_scheduler.push_back(std::move(progress));
}

std::vector<msg::DeviceStats> Core::Impl::device_stats() const {
  constexpr auto kDisk = static_cast<std::size_t>(Tier::kDisk),
                 kPinned = static_cast<std::size_t>(Tier::kPinned),
                 kAway = static_cast<std::size_t>(Tier::kNeighbour);
  std::vector<msg::DeviceStats> stats;
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    const DeviceState& device = devices[d];
    // The reserve is nobody's data, nor is what is kept for it while blocks move.
    std::int64_t reserve = kept_for_room(d);
    for (const alloc::Extent& extent : device.reserve) reserve += in_arena(extent.bytes);
    const std::int64_t used = std::max<std::int64_t>(0, device.arena.bytes_in_use() - reserve);
    stats.push_back({device.spec.id,
                     used,
                     device.bytes_peak,
                     device.arena.bytes_resident(),
                     device.steps_run,
                     device.busy_ns,
                     device.spilled_bytes[kDisk],
                     device.written_bytes[kDisk],
                     device.read_bytes[kDisk],
                     device.blocks_written,
                     device.blocks_read_back,
                     std::max(used, device.bytes_high - reserve),
                     device.spilled_bytes[kPinned],
                     device.written_bytes[kPinned],
                     device.read_bytes[kPinned],
                     device.spilled_bytes[kAway],
                     device.written_bytes[kAway],
                     device.read_bytes[kAway],
                     device.guest_bytes,
                     device.relocated_bytes,
                     disk_taken / static_cast<std::int64_t>(devices.size())});
  }
  return stats;
}

}  // namespace tilewise::worker
