// Memory is granted as offsets, in an order that cannot deadlock (D6): the lowest unfinished task of a device may
// always use the reserve, which is as large as the largest admitted step, its inputs included where they are copied, and is
// an extent, not a count of bytes.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

std::optional<alloc::Extent> Core::Impl::take(std::uint16_t d, std::int64_t bytes, bool settled, Claim claim,
                                              alloc::Fence& wait_for) {
  DeviceState& device = devices[d];
  if (claim == Claim::kOrdinary && owes_reserve(device, bytes)) return std::nullopt;
  const auto attempt = [&] {
    return settled ? device.arena.allocate_settled(bytes) : device.arena.allocate(bytes, wait_for);
  };
  auto extent = attempt();
  if (!extent) {
    if (const std::int64_t wanted = device.full ? 0 : device.arena.wants_slab(bytes); wanted > 0) {
      if (!device.slab_pending) {
        device.slab_pending = true;
        out->slabs.push_back({d, wanted});
      }
      return std::nullopt;
    }
    if (evict(d, bytes)) extent = attempt();
    if (!extent && claim == Claim::kLowest && device.reserve) {
      // The rest stays reserved: the same step may need room for its inputs, one after another, and its outputs.
      const std::int64_t reserved = device.reserve->bytes;
      device.arena.free(*device.reserve, alloc::Fence{});
      extent = attempt();
      const std::int64_t rest = extent ? reserved - (extent->bytes + 255) / 256 * 256 : reserved;
      device.reserve = rest > 0 ? device.arena.allocate_settled(rest) : std::nullopt;
    }
  }
  if (extent) device.bytes_peak = std::max(device.bytes_peak, device.arena.bytes_in_use());
  return extent;
}

// The reserve could not be carved, or is in use: what is free then belongs to the lowest task, or blocks on their way to later
// ones would fill it. Twice the reserve in pieces is enough not to keep the others waiting.
bool Core::Impl::owes_reserve(const DeviceState& device, std::int64_t bytes) const {
  const std::int64_t kept = device.reserve ? device.reserve->bytes : 0;
  const alloc::Arena& arena = device.arena;
  if (kept >= device.reserve_bytes || arena.bytes_resident() == 0) return false;
  if (!device.full && arena.wants_slab(device.reserve_bytes) > 0) return false;
  const std::int64_t limit = device.full ? arena.bytes_resident() : device.spec.memory_bytes;
  return limit - arena.bytes_in_use() - bytes < 2 * device.reserve_bytes;
}

// Lets go of replicas that are kept for later readers only, oldest first, about as many bytes as are wanted.
bool Core::Impl::evict(std::uint16_t d, std::int64_t bytes) {
  DeviceState& device = devices[d];
  std::int64_t freed = 0;
  for (std::size_t left = device.spares.size(); freed < bytes && left > 0; --left) {
    const std::uint64_t key = device.spares.front();
    const auto found = device.index.find(key);
    device.spares.pop_front();
    if (found == device.index.end()) continue;
    Copy& copy = copies[found->second];
    if (copy.spare && arrays[copy.array].pinned != 0) {  // a recovery may be counting on it
      device.spares.push_back(key);
      continue;
    }
    if (!std::exchange(copy.spare, false) || copy.uses != kNone) continue;
    freed += copy.bytes;
    ++counts.evicted;
    destroy_copy(found->second);
  }
  return freed > 0;
}

// What a step needs at once: room for its outputs and, where peers' blocks have to be copied here, for what it reads. Blocks
// at edges are not larger than those in the middle of a grid.
std::int64_t Core::Impl::step_bytes(const OpEntry& entry) const {
  const ir::Geometry& geometry = entry.geometry;
  std::int64_t bytes = geometry.output_bytes_bound();
  const bool copied = std::any_of(peers.begin(), peers.end(), [](const auto& peer) {
    return peer.second.info.role == msg::Role::kWorker && !peer.second.mapped;
  });
  if (!copied || geometry.point_count() == 0) return bytes;
  std::vector<ir::Read> reads;
  geometry.reads(geometry.point(geometry.point_count() / 2), 0, reads);
  for (const ir::Read& read : reads) {
    const ir::SourceArray& source = entry.sources[read.operand];
    bytes += (source.grid.box(ir::unravel(read.block, source.grid.counts())).volume() *
                  static_cast<std::int64_t>(ir::size_of(source.dtype)) +
              255) /
             256 * 256;
  }
  return bytes;
}

// Once the arena can grow no further, the reserve is carved before anybody else is served. It grows when there is room, and
// is kept as it is while there is none.
void Core::Impl::restore_reserve(std::uint16_t d) {
  DeviceState& device = devices[d];
  const std::int64_t kept = device.reserve ? device.reserve->bytes : 0;
  if (kept >= device.reserve_bytes || device.arena.bytes_resident() == 0) return;
  if (!device.full && device.arena.wants_slab(device.reserve_bytes) > 0) return;
  if (device.reserve) device.arena.free(*device.reserve, alloc::Fence{});
  device.reserve = device.arena.allocate_settled(device.reserve_bytes);
  while (!device.reserve && evict(d, 1))  // spare replicas go, before a task could take their place
    device.reserve = device.arena.allocate_settled(device.reserve_bytes);
  if (!device.reserve && kept > 0) device.reserve = device.arena.allocate_settled(kept);
}

void Core::Impl::retry_blocked(std::uint16_t d) {
  for (Slot q : devices[d].queues) {
    Queue& queue = queues[q];
    while (!queue.blocked.empty()) {
      const Slot t = queue.blocked.back();
      queue.blocked.pop_back();
      tasks[t].state = TaskState::kReady;
      queue.ready.push_front(t);
    }
  }
}

bool Core::Impl::lowest_waits(Slot copy) const {
  for (Slot t = copies[copy].waiters; t != kNone; t = tasks[t].next_waiter) {
    if (is_lowest(t)) return true;
  }
  return false;
}

// What tasks wait for comes first; a large block that does not fit does not keep smaller ones out.
void Core::Impl::try_grants(std::uint16_t d) {
  DeviceState& device = devices[d];
  for (const bool waited : {true, false}) {
    std::erase_if(device.ungranted, [&](Slot c) {
      if (copies[c].state != CopyState::kOffered) return true;
      const Slot waiter = copies[c].waiters;
      return (waiter != kNone) == waited && grant(c, waited && lowest_waits(c));
    });
  }
}

// Memory for an offered block, then the word to the sender. Settled memory only: the transport is not a stream.
bool Core::Impl::grant(Slot slot, bool lowest) {
  Copy& copy = copies[slot];
  alloc::Fence none;
  const auto extent = take(copy.device, copy.bytes, true, lowest ? Claim::kLowest : Claim::kOrdinary, none);
  if (!extent) return false;
  devices[copy.device].last_change = now;
  copy.extent = *extent;
  copy.has_memory = true;
  copy.at = {devices[copy.device].spec.id, extent->slab, extent->offset};
  copy.state = CopyState::kReceiving;
  copy.kind = CopyKind::kRemote;
  copy.transfer = next_transfer++;
  transfers[copy.transfer] = slot;
  transfer_began(copy);
  out->receives.push_back(
      {remote[copy.source.value].worker, copy.transfer, copy.device, copy.at, copy.bytes});
  batch_to(copy.source)
      .grants.push_back(
          {{arrays[copy.array].id, copy.block}, copy.source, devices[copy.device].spec.id, copy.transfer});
  return true;
}

// The offered block without memory that a task waits for, or none.
Slot Core::Impl::ungranted_input(const DeviceState& device, Slot t) const {
  for (Slot c : device.ungranted) {
    for (Slot waiter = copies[c].waiters; waiter != kNone; waiter = tasks[waiter].next_waiter) {
      if (waiter == t) return c;
    }
  }
  return kNone;
}

// The lowest unfinished task, where memory alone keeps it from running: its outputs do not fit, or it waits for an offered
// block for which there is no room. Later tasks do not count: the lowest may wait for a slow peer, and they for it.
Slot Core::Impl::starved_task(const DeviceState& device) const {
  const Slot t = lowest_task(device);
  if (t == kNone) return kNone;
  return tasks[t].state == TaskState::kBlocked || ungranted_input(device, t) != kNone ? t : kNone;
}

bool Core::Impl::idle(const DeviceState& device) const {
  for (const StreamState& stream : device.streams) {
    if (!stream.flight.empty()) return false;
  }
  return !device.slab_pending;
}

// Memory is wanted and nothing here has moved for a while: say so. Time only delays the word (a peer may still be
// reading what it borrowed from us); it decides nothing by itself.
void Core::Impl::check_stuck() {
  if (stuck_reported || !releasing.empty()) return;
  for (const DeviceState& device : devices) {
    if (now - device.last_change < options.stuck_ns || !idle(device)) continue;
    const Slot t = starved_task(device);
    if (t == kNone) continue;
    const Task& task = tasks[t];
    const OpEntry& entry = *ops[task.op].entry;
    const Slot input = ungranted_input(device, t);
    const std::int64_t needed = input != kNone ? copies[input].bytes : entry.geometry.output_bytes_bound();
    out->to_scheduler.push_back(
        msg::Stuck{entry.graph, entry.id, device.spec.id, needed, device.arena.largest_settled()});
    stuck_reported = true;
    return;
  }
}

}  // namespace tilewise::worker
