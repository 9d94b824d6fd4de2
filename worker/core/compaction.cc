// Free memory may lie about in pieces that are each too small for what a device's lowest task wants in one. Then blocks that nobody
// touches move out of the way, within the device's memory (alloc::Arena::compact):
//
//   sealed ── compact ──> the same, being copied ── IoDone ──> sealed, elsewhere
//
// Until a block has been copied it is read, and offered, where it was; who began to read it there meanwhile ends there too. The gaps and
// the places that blocks have left are kept from others until the last block has moved and nobody reads where one was: then what was wanted is
// one piece, and the lowest task's for as long as the worker's step lasts. A block that is lent meanwhile stays, and all was in vain: it is
// not chosen again.
//
// Others wait: moving costs a copy, and what the others want comes free by itself, or they become the lowest.
#include "state.h"

#include <algorithm>
#include <functional>

namespace tilewise::worker {
namespace {

// Where more blocks are looked through than this, that waits for the steps in flight: they may free what is wanted, and there are many.
constexpr std::size_t kManyBlocks = 8192;

}  // namespace

// Nobody reads it from outside, nothing of it is under way, and no step that has been enqueued reads it.
bool Core::Impl::may_move(const Copy& copy) const {
  return copy.has_memory && !copy.fixed && copy.io == 0 && copy.bytes > 0 &&
         devices[copy.device].arena.is_complete(readers_of(copy));
}

// A block that could not be moved can be: who found no range looks again.
void Core::Impl::may_move_now(DeviceState& device) {
  if (std::ranges::min(device.no_range) == INT64_MAX) return;
  device.memory_freed = true;
  device.last_change = now;
}

// Sees to it that the bytes come free in one piece, for the lowest task or as a part of the reserve, whose other parts then stay. False:
// that cannot be had by moving blocks.
bool Core::Impl::compact(std::uint16_t d, std::int64_t bytes, Room of) {
  DeviceState& device = devices[d];
  if (device.clearing) return true;
  const std::int64_t free = device.arena.bytes_free() - device.arena.bytes_pending() +
                            (of == Room::kOfLowest ? reserved(device) : 0);
  std::int64_t& no_range = device.no_range[static_cast<std::size_t>(of)];
  if (stage >= Stage::kStill || device.moves_fail || free < bytes || bytes >= no_range) return false;
  no_range = bytes;  // until something changes, if this fails
  const bool busy = std::any_of(device.streams.begin(), device.streams.end(),
                                [](const StreamState& stream) { return !stream.flight.empty(); });
  if (busy && device.resident.size() > kManyBlocks) return false;
  std::vector<Slot> movable;
  std::vector<alloc::Extent> extents;
  for (const Slot slot : device.resident) {
    if (!may_move(copies[slot])) continue;
    movable.push_back(slot);
    extents.push_back(copies[slot].extent);
  }
  std::vector<std::int64_t> parts;
  if (of == Room::kOfLowest) {  // what the reserve is for
    for (const alloc::Extent& part : device.reserve) parts.push_back(part.bytes);
    std::sort(parts.begin(), parts.end(), std::greater<>());
    drop_reserve(device);
  }
  const std::optional<alloc::Compaction> found = device.arena.compact(extents, bytes);
  for (const std::int64_t part : parts)
    if (const auto again = device.arena.allocate_settled(part)) device.reserve.push_back(*again);
  if (!found) return false;
  Clearing& clearing = device.clearing.emplace();
  clearing.bytes = bytes;
  clearing.of = of;
  for (const alloc::Extent& gap : found->gaps) clearing.kept.emplace_back(gap, alloc::Fence{});
  for (const auto& [from, to] : found->moves) relocate(movable[from], to);
  return true;
}

void Core::Impl::relocate(Slot slot, const alloc::Extent& to) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  copy.io = next_io++;
  ios[copy.io] = {.copy = slot,
                  .device = copy.device,
                  .way = Way::kAside,
                  .bytes = copy.bytes,
                  .since = now,
                  .aside = to};
  ++device.ios;
  ++device.clearing->moving;
  device.last_change = now;
  out->relocations.push_back(
      {copy.io, copy.device, copy.at, {device.spec.id, to.slab, to.offset}, copy.bytes});
}

// The copy goes while it moves: its memory is kept till that is over.
void Core::Impl::let_go_moving(Slot slot) {
  Copy& copy = copies[slot];
  Io& io = ios.at(std::exchange(copy.io, 0));
  io.copy = kNone;
  io.has_memory = true;
  io.fence = readers_of(copy);
  io.memory = lose_memory(slot);
}

void Core::Impl::relocated(const Io& io, const IoDone& event) {
  DeviceState& device = devices[io.device];
  Clearing& clearing = *device.clearing;
  --device.ios;
  device.last_change = now;
  const bool ok = event.failed.code == Errc::kOk;
  device.moves_fail |= !ok;
  if (io.copy == kNone) {
    clearing.kept.emplace_back(io.memory, io.fence);
    device.arena.free(io.aside, alloc::Fence{});
  } else {
    Copy& copy = copies[io.copy];
    copy.io = 0;
    // Its place below may be had again.
    if (copy.stored) copy.tier == Tier::kNeighbour ? touch_host(copy.lodging) : place_freed(copy.tier);
    if (ok && !copy.fixed) {
      const alloc::Fence fence = readers_of(copy);
      clearing.kept.emplace_back(lose_memory(io.copy), fence);
      copy.readers = {};
      give_memory(io.copy, io.aside);
      ++counts.relocated;
      device.relocated_bytes += io.bytes;
    } else {
      clearing.in_vain = true;
      device.arena.free(io.aside, alloc::Fence{});
      ++device.victims_news;
    }
  }
  --clearing.moving;
  maybe_end_clearing(io.device);
}

// What was wanted for the reserve is carved by restore_reserve() before anybody else can have it.
void Core::Impl::maybe_end_clearing(std::uint16_t d) {
  DeviceState& device = devices[d];
  if (!device.clearing || device.clearing->moving > 0) return;
  const bool read = std::any_of(device.clearing->kept.begin(), device.clearing->kept.end(),
                                [&](const auto& place) { return !device.arena.is_complete(place.second); });
  if (read && !device.clearing->in_vain) return;
  const Clearing clearing = std::move(*device.clearing);
  device.clearing.reset();
  for (const auto& [extent, fence] : clearing.kept) device.arena.free(extent, fence);
  device.memory_freed = true;
  if (!clearing.in_vain && clearing.of == Room::kOfLowest)
    device.cleared = device.arena.allocate_settled(clearing.bytes);
}

// Bytes in the arena that are no block's while room is made: what is kept, and places that blocks are to have.
std::int64_t Core::Impl::kept_for_room(std::uint16_t d) const {
  std::int64_t bytes = 0;
  if (!devices[d].clearing) return bytes;
  for (const auto& [extent, fence] : devices[d].clearing->kept) bytes += in_arena(extent.bytes);
  for (const auto& [number, io] : ios) bytes += io.device == d ? in_arena(io.aside.bytes) : 0;
  return bytes;
}

// Of room that was made for the lowest task: now it may have it, or nobody in particular.
bool Core::Impl::open_cleared(DeviceState& device) {
  if (!device.cleared) return false;
  device.arena.free(*device.cleared, alloc::Fence{});
  device.cleared.reset();
  return true;
}

}  // namespace tilewise::worker
