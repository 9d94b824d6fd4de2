// Below a device's memory there may be pinned host memory (of GPUs) and a file on disk: blocks go there when memory is short,
// those first that are used last, and come back before they are used. See docs/design/tiers.md.
//
//   sealed, in memory ── write_out ──> the same, being written ── IoDone ──> below too (clean) ── leave ──> spilled
//   spilled ── bring_back ──> returning ── IoDone ──> sealed and clean: it is never written twice
//
// Memory that spilling cannot give back is *fixed*: of results that are being made, of bytes on their way, and of blocks that
// others read in place. A block is lent only while the reserve lies elsewhere, whole; else it is offered without a place, and
// goes to its reader as a copy, from below if it is there. So a device's lowest task always gets room for its step, whatever
// the others are waiting for.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

constexpr std::int64_t kWriteAhead =
    64 << 20;                            // written at once where less is wanted (a 16th of the arena at most)
constexpr std::int64_t kStepsAhead = 8;  // whose inputs a waiting task wants back beside those of its next

std::int64_t write_ahead(const DeviceState& device) {
  return std::min(kWriteAhead, device.spec.memory_bytes / 16);
}

}  // namespace

// ---- memory of copies ----------------------------------------------------------------------------------------------

void Core::Impl::give_memory(Slot slot, const alloc::Extent& extent) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  TW_CHECK(!copy.has_memory, "a copy is given memory that has some");
  copy.extent = extent;
  copy.has_memory = true;
  copy.at = {device.spec.id, extent.slab, extent.offset};
  copy.resident_at = static_cast<std::uint32_t>(device.resident.size());
  device.resident.push_back(slot);
  ++device.victims_news;
  device.shares.add_bytes(arrays[copy.array].session, arrays[copy.array].weight, in_arena(extent.bytes));
  refix(slot);
}

// What becomes of the extent is the caller's business.
alloc::Extent Core::Impl::lose_memory(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  const Slot last = device.resident.back();
  device.resident[copy.resident_at] = last;
  copies[last].resident_at = copy.resident_at;
  device.resident.pop_back();
  copy.has_memory = false;
  device.shares.remove_bytes(arrays[copy.array].session, in_arena(copy.extent.bytes));
  refix(slot);
  return copy.extent;
}

void Core::Impl::refix(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  const bool fixed = copy.has_memory && (copy.state != CopyState::kSealed || copy.lent > 0 ||
                                         copy.relayed > 0 || copy.handed_on);
  if (fixed == copy.fixed) return;
  copy.fixed = fixed;
  if (fixed || !copy.has_memory) return;
  if (device.spec.spills) {
    device.memory_freed = true;  // it may be spilled now
    ++device.victims_news;
  }
  may_move_now(device);
}

// The device's uses of the block, all of them: it reads the bytes here, or they are being sent from here, until its Dones.
void Core::Impl::lend(Slot slot, DeviceId to) {
  Copy& copy = copies[slot];
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (uses[u].device == to && !std::exchange(uses[u].lent, true)) ++copy.lent;
  }
  copy.handed_on |= stage >= Stage::kStill;
  refix(slot);
}

void Core::Impl::send_from_below(Slot slot, DeviceId to) {
  Copy& copy = copies[slot];
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (uses[u].device == to && !std::exchange(uses[u].sending, true)) ++copy.sending;
  }
  copy.handed_on |= stage >= Stage::kStill;
  ++counts.sent_from_below;
}

bool Core::Impl::may_lend(const Copy& copy) const {
  const DeviceState& device = devices[copy.device];
  if (copy.state != CopyState::kSealed) return false;
  if (copy.adopted) return true;
  // Bytes do not count: loans here and there would leave enough of them, and no extent for the reserve.
  return !device.spec.spills || copy.fixed || has_reserve(device);
}

// ---- places below --------------------------------------------------------------------------------------------------

Core::Impl::Store::Store(std::int64_t bytes)
    : places({.max_bytes = bytes & -kTierPage,
              .slab_bytes = std::max(bytes & -kTierPage, kTierPage),
              .alignment = kTierPage}) {
  if (places.max_bytes() > 0) places.add_slab(places.max_bytes());
}

bool Core::Impl::may_use(const DeviceState& device, Tier tier) const {
  if (tier == Tier::kNeighbour) return device.spec.spills && !device.spec.neighbours.empty();
  return device.spec.spills && (tier == Tier::kDisk || device.spec.pins) &&
         store(tier).places.max_bytes() > 0;
}

void Core::Impl::forget_below(Copy& copy) {
  if (!copy.stored) return;
  copy.stored = false;
  if (copy.tier == Tier::kNeighbour) unlist_guest(copy);
  store(tier_of_place(copy)).refuses = false;
  tiers_dirty = true;
  free_place(copy.tier, copy.below, copy.lodging);
}

void Core::Impl::free_place(Tier tier, const alloc::Extent& below, const Lodging& lodging) {
  if (tier == Tier::kNeighbour) {
    devices[lodging.device].arena.free(lodging.extent, alloc::Fence{});
    touch_host(lodging);
    tier = lodging.promised;
  }
  free_place(tier, below);
}

void Core::Impl::free_place(Tier tier, const alloc::Extent& place) {
  store(tier).places.free(place, alloc::Fence{});
  if (tier == Tier::kDisk) out->vacated.push_back({place.offset, place.bytes});
  place_freed(tier);
}

// A tier belongs to several devices: each that found no place there tries again. That another one found a smaller place
// meanwhile is nothing to it.
void Core::Impl::place_freed(Tier tier) {
  for (DeviceState& device : devices) {
    if (!std::exchange(device.wants_place[static_cast<std::size_t>(tier)], false)) continue;
    device.memory_freed = true;
    device.last_change = now;
  }
}

// Also a place that copies of what is in memory use: it is taken from them.
std::optional<alloc::Extent> Core::Impl::find_place(DeviceState& device, Tier tier, std::int64_t bytes) {
  Store& below = store(tier);
  bool& wants = device.wants_place[static_cast<std::size_t>(tier)];
  wants = false;  // what it frees itself does not wake it
  if (below.broken || device.cut_off[static_cast<std::size_t>(tier)]) return std::nullopt;
  std::optional<alloc::Extent> place;
  if (!below.refuses) {
    place = below.places.allocate_settled(bytes);
    if (!place && forget_clean(tier, bytes)) place = below.places.allocate_settled(bytes);
  }
  wants = !place;
  return place;
}

// Nobody may be sent what is below any more: a guest may be dismissed, and the place of a block that could not be brought back
// is given back.
void Core::Impl::maybe_leave_place(Slot slot) {
  Copy& copy = copies[slot];
  if (copy.tier == Tier::kNeighbour && rests(copy)) touch_host(copy.lodging);
  if (!copy.left_below || copy.sending > 0 || copy.handed_on) return;
  copy.left_below = false;
  copy.stored = true;
  forget_below(copy);
  ++devices[copy.device].victims_news;  // made again meanwhile, it may be spilled now
}

// All that the copy has, in memory and below. What is being written or read is kept until that has ended, a place from which
// others are being sent the bytes until they have them.
void Core::Impl::let_go(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  if (copy.adopted) return give_back(slot);
  const bool sent = copy.stored && (copy.sending > 0 || copy.handed_on);
  if (std::exchange(copy.wanted, false)) std::erase(device.returns, slot);
  if (copy.state == CopyState::kSpilled) {
    device.spilled_bytes[static_cast<std::size_t>(copy.tier)] -= copy.bytes;
    unlist_spilled(slot);
  }
  if (sent) copy.left_below = true, copy.stored = false;
  if (copy.io != 0 && ios.at(copy.io).way == Way::kAside) let_go_moving(slot);
  if (copy.io == 0) {
    free_memory(slot);
    forget_below(copy);
    return;
  }
  TW_CHECK(!sent || !copy.demoting, "a block is let go while it is being sent and passed on");
  Io& io = ios.at(std::exchange(copy.io, 0));
  if (std::exchange(copy.demoting, false)) {
    io.copy = kNone;
    io.from = copy.below;
    if (io.from_host) io.lodging = copy.lodging, unlist_guest(copy);
    copy.stored = false;
    tiers_dirty = true;
    return;
  }
  if (io.way == Way::kOut) device.shares.end_leaving(arrays[copy.array].session, in_arena(copy.extent.bytes));
  io.copy = kNone;
  io.has_memory = true;
  io.fence = readers_of(copy);
  io.memory = lose_memory(slot);
  if (!sent) {
    io.below = copy.below;
    if (io.tier == Tier::kNeighbour) io.lodging = copy.lodging, unlist_guest(copy);
  }
  copy.writing = copy.stored = false;
}

// ---- who goes ------------------------------------------------------------------------------------------------------

NextUse Core::Impl::use_of(Slot t) const {
  const Task& task = tasks[t];
  const OpState& op = ops[task.op];
  const std::size_t position = devices[task.device].queues.position(queues[task.queue].place);
  return {static_cast<std::int64_t>(position), op.order.value, task.ordinal};
}

// The ordinal of the first of the device's points that reads the block for this op, from where that is: tasks finish nearly in order, so
// what is finished says how far an op is.
std::int64_t Core::Impl::next_point(const Copy& copy, const OpState& op) {
  const DeviceId self = devices[copy.device].spec.id;
  const ShareState& share = op.shares[copy.device];
  const std::int64_t at = std::min(share.completed, share.owned - 1);
  const ir::Placement& placement = op.entry->placement;
  std::int64_t point = INT64_MAX;
  for (std::size_t operand = 0; operand < op.operands.size(); ++operand) {
    if (op.operands[operand] != copy.array) continue;
    op.entry->geometry->users(static_cast<int>(operand), copy.block, next_users);
    for (const ir::Geometry::Users& users : next_users) {
      const auto first = placement.first_owned(self, users.points);
      if (!first) continue;
      std::int64_t ordinal = placement.ordinal(self, *first);
      if (ordinal < at) {  // begun: its next point at or behind the one where the op is
        const auto later = ir::next_in(users.points, placement.nth(self, at));
        if (!later) continue;
        ordinal = placement.owner(*later) == self ? placement.ordinal(self, *later) : at + 1;
      }
      point = std::min(point, ordinal);
    }
  }
  return std::max(point == INT64_MAX ? at : point, at);
}

// When the copy's device reads it next, about. A block that only others will read is as good below, except while it is on its way to
// them.
NextUse Core::Impl::next_use(const Copy& copy) {
  const DeviceState& device = devices[copy.device];
  NextUse next = kNever;
  if (!device.spec.spills) return next;
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    const OpState& op = ops[uses[u].op];
    const std::int64_t queue = queue_position(device, op.run.graph);
    if (uses[u].device != device.spec.id) {
      if (!uses[u].offered)
        next = std::min(next, {queue, op.order.value, INT64_MAX});
      else if (!uses[u].sending)
        next = std::min(next, {0, 0, 0});
    } else if (op.shares[copy.device].owned > 0) {
      next = std::min(next, {queue, op.order.value, next_point(copy, op)});
    }
  }
  return next;
}

bool Core::Impl::spillable(Slot slot) const {
  const Copy& copy = copies[slot];
  if (!copy.has_memory || copy.fixed || copy.io != 0 || copy.left_below || copy.spare || copy.bytes == 0)
    return false;
  if (launching && std::find(inputs.begin(), inputs.end(), slot) != inputs.end()) return false;
  return std::find(locked.begin(), locked.end(), slot) == locked.end();
}

// What the device's lowest task is about to read stays.
void Core::Impl::lock_lowest(std::uint16_t d) {
  locked.clear();
  if (const Slot t = lowest_task(devices[d]); t != kNone && tasks[t].next < tasks[t].steps) {
    const OpState& op = ops[tasks[t].op];
    op.entry->geometry->reads(op.entry->geometry->point(tasks[t].point), tasks[t].next, reads_ahead_out);
    for (const ir::Read& read : reads_ahead_out) {
      const Slot c = find_copy(op.operands[read.operand], read.block, d);
      if (c != kNone) locked.push_back(c);
    }
  }
}

void Core::Impl::add_victim(DeviceState& device, Slot slot) {
  const SessionId session = arrays[copies[slot].array].session;
  auto of = std::find_if(device.victims.begin(), device.victims.end(),
                         [&](const Victims& victims) { return victims.session == session; });
  if (of == device.victims.end()) of = device.victims.insert(of, Victims{session, {}});
  of->blocks.emplace_back(next_use(copies[slot]), slot);
}

// What is locked is not among them.
void Core::Impl::find_victims(std::uint16_t d) {
  DeviceState& device = devices[d];
  device.victims.clear();
  device.victims_at = step_number;
  device.victims_news = 0;
  for (const Slot slot : device.resident) {
    if (spillable(slot))
      add_victim(device, slot);
    else
      device.victims_news += !copies[slot].fixed;  // locked now, but not for long
  }
  for (Victims& victims : device.victims) std::sort(victims.blocks.begin(), victims.blocks.end());
}

// The one of them that is used last, taken off the list, if that is after `later_than`. The list may be some steps old: whoever
// is named is looked at again.
Slot Core::Impl::pop_victim(std::uint16_t d, Victims& from, const NextUse& later_than) {
  while (!from.blocks.empty()) {
    const Slot slot = from.blocks.back().second;
    const bool here =
        copies[slot].device == d && arrays[copies[slot].array].session == from.session && spillable(slot);
    if (here && next_use(copies[slot]) <= later_than) break;
    from.blocks.pop_back();
    if (here) return slot;
    ++devices[d].victims_news;  // it may be again, before long
  }
  return kNone;
}

// In this order: what nobody here is going to read, whosever it is; what is used last of a session that has to give way; what is
// used after the asker's task, of its own session; and, for the lowest task, anything.
Slot Core::Impl::best_victim(std::uint16_t d, const Asker& asker, std::int64_t bytes) {
  DeviceState& device = devices[d];
  constexpr NextUse kLast{INT64_MAX, UINT64_MAX, INT64_MAX - 1};  // before kNever, and nothing between
  Slot found = kNone;
  const auto pop = [&](SessionId session, const NextUse& later_than) {
    for (Victims& of : device.victims) {
      if (found == kNone && of.session == session) found = pop_victim(d, of, later_than);
    }
    return found != kNone;
  };
  const ByteShares& shares = device.shares;
  if (shares.alone() && device.victims.size() == 1)
    return pop_victim(d, device.victims[0], asker.later_than());
  const std::vector<SessionId> sessions = shares.by_usage();
  for (const SessionId session : sessions)
    if (pop(session, std::max(kLast, asker.later_than()))) return found;
  for (const SessionId session : sessions) {
    if (!shares.gives_way(session, 0, asker.session, in_arena(bytes)) || !pop(session, kBeforeAll)) continue;
    if (shares.gives_way(session, in_arena(copies[found].extent.bytes), asker.session, in_arena(bytes))) {
      ++counts.gave_way;
      return found;
    }
    add_victim(device, std::exchange(found, kNone));
  }
  if (pop(asker.session, asker.later_than()) || asker.claim != Claim::kLowest) return found;
  for (const SessionId session : sessions)
    if (pop(session, kBeforeAll)) return found;
  return kNone;
}

// A block that leaves so that the asker gets `bytes`, taken off its list.
Slot Core::Impl::next_victim(std::uint16_t d, const Asker& asker, std::int64_t bytes) {
  DeviceState& device = devices[d];
  lock_lowest(d);
  std::size_t listed = 0;
  for (const Victims& of : device.victims) listed += of.blocks.size();
  const auto of_its_own = [&] {
    return std::any_of(device.victims.begin(), device.victims.end(),
                       [&](const Victims& of) { return of.session == asker.session && !of.blocks.empty(); });
  };
  const auto renew = [&] {
    if (device.victims_at == step_number || device.victims_news == 0) return false;
    find_victims(d);
    return true;
  };
  if (device.victims_news * 4 > static_cast<std::int64_t>(listed)) renew();
  do {
    if (const Slot slot = best_victim(d, asker, bytes); slot != kNone) return slot;
  } while (!of_its_own() && renew());
  return kNone;
}

// The memory of a clean block at once, if there is one that may leave.
bool Core::Impl::drop_clean(std::uint16_t d, const Asker& asker, std::int64_t bytes) {
  DeviceState& device = devices[d];
  const bool any = std::any_of(stores.begin(), stores.end(),
                               [](const Store& below) { return below.places.bytes_in_use() > 0; });
  if (!device.spec.spills || !any) return false;
  if (forget_clean_guest(device)) return true;
  std::vector<Slot> dirty;
  Slot found = kNone;
  while (found == kNone) {
    const Slot slot = next_victim(d, asker, bytes);
    if (slot == kNone) break;
    if (copies[slot].stored)
      found = slot;
    else
      dirty.push_back(slot);
  }
  for (; !dirty.empty(); dirty.pop_back()) add_victim(device, dirty.back());
  if (found == kNone) return false;
  leave(found);
  ++counts.dropped;
  return true;
}

// Sees to it that about so much memory comes free: of clean blocks now, of others when they are written. What is coming
// already counts; what is free when a step is over does not count twice: if the asker was short before, steps that need not wait for that took it.
void Core::Impl::make_room(std::uint16_t d, std::int64_t bytes, bool settled, const Asker& asker) {
  DeviceState& device = devices[d];
  const bool again = std::any_of(
      device.short_before.begin(), device.short_before.end(),
      [&](const Asker& other) { return other.session == asker.session && other.use == asker.use; });
  std::int64_t coming = device.writing_bytes;
  if (settled && !again) coming += device.arena.bytes_pending();
  if (coming < bytes) coming += dismiss_guests(d, bytes - coming);
  if (coming >= bytes) return;
  const std::int64_t wanted = std::max(bytes, write_ahead(device));
  while (coming < wanted) {
    const Slot slot = next_victim(d, asker, bytes);
    if (slot == kNone) return;
    coming += copies[slot].bytes;
    if (copies[slot].stored) {
      leave(slot);
      ++counts.dropped;
      if (coming >= bytes) return;  // more than wanted only where it takes time
    } else if (!write_out(slot)) {
      add_victim(device, slot);  // as soon as it can be
      return;
    }
  }
}

// Room in a tier that only copies of what is in memory use. None of them loses its place unless that makes the room.
bool Core::Impl::forget_clean(Tier tier, std::int64_t bytes) {
  std::vector<Slot> clean;
  std::vector<alloc::Extent> taken;
  for (const DeviceState& device : devices) {
    for (const Slot slot : device.resident) {
      const Copy& copy = copies[slot];
      if (!copy.stored || tier_of_place(copy) != tier || !rests(copy)) continue;
      clean.push_back(slot);
      taken.push_back(copy.below);
    }
  }
  const std::vector<std::size_t> chosen = store(tier).places.room_by_freeing(taken, bytes);
  for (const std::size_t i : chosen) forget_below(copies[clean[i]]);
  return !chosen.empty();
}

bool Core::Impl::write_out(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  if (lodge(slot)) return true;
  std::optional<alloc::Extent> place;
  for (const Tier tier : {Tier::kPinned, Tier::kDisk}) {  // the faster one first
    if (place || !may_use(device, tier)) continue;
    if (store(tier).ios >= kMaxIos) return false;  // soon
    place = find_place(device, tier, copy.bytes);
    if (!place && tier == Tier::kPinned && makes_place(slot, write_ahead(device))) return false;  // soon
    device.waits_from = -1;
    if (place) copy.tier = tier;
    if (tier == Tier::kDisk || place) device.disk_short = !place;
  }
  if (!place) return false;
  copy.below = *place;
  copy.writing = true;
  begin_io(slot, Way::kOut);
  return true;
}

void Core::Impl::begin_io(Slot slot, Way way) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  const bool write = way == Way::kOut;
  copy.io = next_io++;
  ios[copy.io] = {
      .copy = slot, .device = copy.device, .way = way, .tier = copy.tier, .bytes = copy.bytes, .since = now};
  ++store(copy.tier).ios;
  (write ? device.writing_bytes : device.reading_bytes[static_cast<std::size_t>(copy.tier)]) += copy.bytes;
  if (write) device.shares.begin_leaving(arrays[copy.array].session, in_arena(copy.extent.bytes));
  ++device.ios;
  device.last_change = now;
  TierIo move{copy.io, write, copy.device, copy.at, copy.tier, copy.below.offset, copy.bytes};
  if (copy.tier == Tier::kNeighbour) move.at = 0, move.lodging = lodging_of(copy);
  out->ios.push_back(std::move(move));
}

// From memory, where its bytes are below.
void Core::Impl::leave(Slot slot) {
  Copy& copy = copies[slot];
  free_memory(slot);
  copy.state = CopyState::kSpilled;
  copy.at = {};
  devices[copy.device].spilled_bytes[static_cast<std::size_t>(copy.tier)] += copy.bytes;
  list_spilled(slot);
  ++counts.spilled;
  tiers_dirty = true;
}

// ---- and who comes back --------------------------------------------------------------------------------------------

// What the task needs for its next step and for some more. Memory for it is another matter.
void Core::Impl::want_back(Slot t) {
  const Task& task = tasks[t];
  const OpState& op = ops[task.op];
  DeviceState& device = devices[task.device];
  const ir::Geometry& geometry = *op.entry->geometry;
  const ir::Index point = geometry.point(task.point);
  for (std::int64_t s = task.next; s < std::min(task.steps, task.next + kStepsAhead); ++s) {
    geometry.reads(point, s, reads_ahead_out);
    for (const ir::Read& read : reads_ahead_out) {
      const Slot c = find_copy(op.operands[read.operand], read.block, task.device);
      if (c == kNone || copies[c].state != CopyState::kSpilled || std::exchange(copies[c].wanted, true))
        continue;
      device.returns.push_back(c);
    }
  }
  device.returns_due = true;
}

// Somebody of the same session, or the lowest task, waits for memory that is used sooner. Without this, pieces that are freed for
// it, too small each, would be taken by blocks that come back, and freed again, as fast as the tier below can.
bool Core::Impl::comes_before(const DeviceState& device, const Asker& asker) {
  const auto sooner = [&](const Asker& other) {
    return (other.session == asker.session || other.claim == Claim::kLowest) && other.use < asker.use;
  };
  return std::any_of(device.short_now.begin(), device.short_now.end(), sooner) ||
         std::any_of(device.short_before.begin(), device.short_before.end(), sooner);
}

// The lowest task's by right, others' in the order of asking, from what is left or used later than they are; an eighth of the
// memory at a time from each tier. What is to come from a tier that has enough to do does not keep out what is in another, nor what is
// refused one session what others want.
void Core::Impl::try_returns(std::uint16_t d) {
  DeviceState& device = devices[d];
  if (const Slot t = lowest_task(device); t != kNone && tasks[t].state == TaskState::kWaiting) {
    const Slot c = tasks[t].waits_for;
    if (copies[c].state == CopyState::kSpilled && copies[c].device == d && !copies[c].demoting)
      bring_back(c, asker_of(copies[c], Claim::kLowest));
  }
  boost::container::small_vector<SessionId, 4> refused;
  std::array<bool, kTiers> busy{};
  for (const Tier tier : {Tier::kNeighbour, Tier::kPinned, Tier::kDisk})
    busy[static_cast<std::size_t>(tier)] = !may_use(device, tier);
  for (std::size_t i = 0; i < device.returns.size();) {
    const Slot c = device.returns[i];
    Copy& copy = copies[c];
    if (copy.state == CopyState::kSpilled) {
      const auto tier = static_cast<std::size_t>(copy.tier);
      const std::int64_t coming = device.reading_bytes[tier];
      busy[tier] |= store(copy.tier).ios >= kMaxIos ||
                    (coming > 0 && coming + copy.bytes > device.spec.memory_bytes / 8);
      if (std::find(busy.begin(), busy.end(), false) == busy.end()) return;
      const SessionId session = arrays[copy.array].session;
      if (busy[tier] || copy.demoting ||
          std::find(refused.begin(), refused.end(), session) != refused.end()) {
        ++i;
        continue;
      }
      const std::size_t listed = device.returns.size();
      const Asker asker = asker_of(copy, Claim::kOrdinary);
      const bool barred = comes_before(device, asker);
      if (barred && asker.waits) device.shares.refuse(session, asker.bytes);
      if (barred || !bring_back(c, asker)) {
        if (device.shares.alone()) return;
        refused.push_back(session);
        ++i;
        continue;
      }
      if (device.returns.size() != listed) {  // others have gone to make room
        copy.wanted = false;
        std::erase(device.returns, c);
        i = 0;
        continue;
      }
    }
    copy.wanted = false;
    device.returns.erase(device.returns.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

Asker Core::Impl::asker_of(const Copy& copy, Claim claim) {
  const NextUse use = devices[copy.device].spec.spills ? next_use(copy) : first_reader(copy);
  return {arrays[copy.array].session, claim, use, copy.waiters != kNone, in_arena(copy.bytes)};
}

bool Core::Impl::bring_back(Slot slot, const Asker& asker) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  alloc::Fence none;
  const auto extent = take(copy.device, copy.bytes, true, asker, none);
  if (!extent) return false;
  copy.state = CopyState::kReturning;
  copy.transfer = 0;
  copy.readers = {};
  device.spilled_bytes[static_cast<std::size_t>(copy.tier)] -= copy.bytes;
  unlist_spilled(slot);
  give_memory(slot, *extent);
  begin_io(slot, Way::kBack);
  return true;
}

// A full disk may have room again: others write there too. Twice, then its word counts.
void Core::Impl::retry_disk() {
  if (!asks_disk_again()) return;
  Store& disk = store(Tier::kDisk);
  for (DeviceState& device : devices) {
    if (now - device.last_change < options.stuck_ns / 4 || !idle(device) || starved_task(device) == kNone)
      continue;
    device.last_change = now;
    device.memory_freed = true;
    disk.refuses = false;
  }
  disk.tries += !disk.refuses;
}

void Core::Impl::on_io(const IoDone& event) {
  const auto found = ios.find(event.io);
  if (found == ios.end()) return void(++counts.stale);
  const Io io = found->second;
  ios.erase(found);
  if (io.way == Way::kAside) return relocated(io, event);
  DeviceState& device = devices[io.device];
  Store& below = store(io.tier);
  --below.ios;
  const bool write = io.way == Way::kOut;
  if (io.way != Way::kOnward)
    (write ? device.writing_bytes : device.reading_bytes[static_cast<std::size_t>(io.tier)]) -= io.bytes;
  --device.ios;
  device.last_change = now;
  device.memory_freed = tiers_dirty = true;
  for (DeviceState& other : devices) {  // they share what may be under way
    other.returns_due = true;
    other.memory_freed |= other.spec.spills && below.ios + 1 >= kMaxIos;
  }
  if (io.way == Way::kOnward) return io.from_host ? dismissed(io, event) : demoted(io, event);
  if (io.tier == Tier::kNeighbour && io.copy != kNone)
    touch_host(copies[io.copy].lodging);  // it may be dismissed now
  const bool ok = event.failed.code == Errc::kOk;
  if (ok) {
    (write ? device.written_bytes : device.read_bytes)[static_cast<std::size_t>(io.tier)] += io.bytes;
    ++(write ? device.blocks_written : device.blocks_read_back);
  }
  if (!ok && write) {
    // A device that cannot copy says nothing of the tier; and a neighbour is one of several, and can be done without.
    if (event.failed.code == Errc::kDeviceError || io.tier == Tier::kNeighbour)
      device.cut_off[static_cast<std::size_t>(io.tier)] = true;
    else
      (event.failed.code == Errc::kDiskFull ? below.refuses : below.broken) = true;
  }
  if (io.copy == kNone) {
    device.arena.free(io.memory, io.fence);
    if (io.below.bytes > 0) free_place(io.tier, io.below, io.lodging);
    return;
  }
  Copy& copy = copies[io.copy];
  copy.io = 0;
  if (write) device.shares.end_leaving(arrays[copy.array].session, in_arena(copy.extent.bytes));
  if (ok) wrote_or_read(io);
  if (write) {
    copy.writing = false;
    if (!ok) {
      ++device.victims_news;  // for another tier
      if (io.tier == Tier::kNeighbour)
        unlist_guest(copy);
      else
        device.disk_short = may_use(device, Tier::kDisk);
      return free_place(io.tier, copy.below, copy.lodging);
    }
    copy.stored = true;
    below.tries = 0;
    lock_lowest(io.device);
    if (copy.state == CopyState::kSealed && spillable(io.copy)) return leave(io.copy);
    ++device.victims_news;
    return;
  }
  if (!ok) {
    fail_copy(io.copy, outcome({event.failed.code, "block " + std::to_string(copy.block) + " of array " +
                                                       std::to_string(arrays[copy.array].id.value) +
                                                       " cannot be read back: " + event.failed.message}));
    maybe_release(io.copy);
    return;
  }
  copy.state = CopyState::kSealed;
  ++counts.returned;
  refix(io.copy);
  wake(io.copy);
  usable(io.copy);
  maybe_release(io.copy);
}

}  // namespace tilewise::worker
