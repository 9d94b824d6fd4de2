// A device that is full may have neighbours with room, whose memory is nearer than what lies below (DeviceSpec::neighbours). Blocks
// that leave it go there first, as *guests*, and come back from there. A guest is never in its host's way: it has been promised
// a place in a tier below, which is kept for it, and as soon as the host wants memory, guests go there: those that are in their own
// device's memory, too, at once, the others when they have been written. So a neighbour's memory makes spilling faster, not larger.
//
//   sealed ── write_out ──> the same, being copied ── IoDone ──> guest (clean) ── leave ──> spilled ── bring_back ──> ...
//   spilled guest ── send_away ──> the same, being written to its place below ── IoDone ──> spilled there
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

constexpr auto kAway = static_cast<std::size_t>(Tier::kNeighbour);

}  // namespace

// Where `copy.below` is.
Tier Core::Impl::tier_of_place(const Copy& copy) {
  return copy.tier == Tier::kNeighbour ? copy.lodging.promised : copy.tier;
}

MemoryRef Core::Impl::lodging_of(const Copy& copy) const {
  const Lodging& lodging = copy.lodging;
  return {devices[lodging.device].spec.id, lodging.extent.slab, lodging.extent.offset};
}

// What is in a tier, and nobody touches it there.
bool Core::Impl::rests(const Copy& copy) {
  return copy.stored && copy.io == 0 && copy.sending == 0 && !copy.handed_on;
}

void Core::Impl::list_guest(Slot slot) {
  Lodging& lodging = copies[slot].lodging;
  DeviceState& host = devices[lodging.device];
  lodging.listed_at = static_cast<std::uint32_t>(host.guests.size());
  host.guests.push_back(slot);
  host.guest_bytes += in_arena(lodging.extent.bytes);
}

void Core::Impl::unlist_guest(const Copy& copy) {
  DeviceState& host = devices[copy.lodging.device];
  const Slot last = host.guests.back();
  host.guests[copy.lodging.listed_at] = last;
  copies[last].lodging.listed_at = copy.lodging.listed_at;
  host.guests.pop_back();
  host.guest_bytes -= in_arena(copy.lodging.extent.bytes);
}

// Memory of the host's has come free, or may be had now.
void Core::Impl::touch_host(const Lodging& lodging) {
  DeviceState& host = devices[lodging.device];
  host.memory_freed = true;
  host.last_change = now;
}

// It has more than enough: nobody waits for memory, and half of it stays free.
bool Core::Impl::takes_guest(const DeviceState& host, std::int64_t bytes) const {
  if (!host.short_now.empty() || !host.short_before.empty() || !host.ungranted.empty()) return false;
  const alloc::Arena& arena = host.arena;
  const std::int64_t reserve = std::max<std::int64_t>(0, host.reserve_bytes - reserved(host));
  const std::int64_t limit = host.full ? arena.bytes_resident() : arena.max_bytes();
  return arena.bytes_in_use() + in_arena(bytes) + reserve <= limit / 2;
}

// A place below that both may use, where nothing lies yet: the slower one will do. Nobody gives his up for it.
std::optional<alloc::Extent> Core::Impl::promise(const DeviceState& device, const DeviceState& host,
                                                 std::int64_t bytes, Tier& tier) {
  for (const Tier below : {Tier::kDisk, Tier::kPinned}) {
    const auto t = static_cast<std::size_t>(below);
    if (!may_use(device, below) || !may_use(host, below) || device.cut_off[t] || host.cut_off[t]) continue;
    if (store(below).broken || store(below).refuses) continue;
    if (const auto place = store(below).places.allocate_settled(bytes)) return tier = below, place;
  }
  return std::nullopt;
}

// Sends the block to a neighbour that has room, if it can be promised a place below.
bool Core::Impl::lodge(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  if (!may_use(device, Tier::kNeighbour) || device.cut_off[kAway] || stage >= Stage::kStill) return false;
  if (store(Tier::kNeighbour).ios >= kMaxIos) return false;
  for (const std::uint16_t n : device.spec.neighbours) {
    DeviceState& host = devices[n];
    if (!takes_guest(host, copy.bytes)) continue;
    Tier promised{};
    const auto place = promise(device, host, copy.bytes, promised);
    if (!place) continue;
    const auto extent = host.arena.allocate_settled(copy.bytes);
    if (!extent) {
      store(promised).places.free(*place, alloc::Fence{});
      awaits_slab(n, copy.bytes);  // for those that come after
      continue;
    }
    host.bytes_high = std::max(host.bytes_high, host.arena.bytes_in_use());
    host.bytes_peak = std::max(host.bytes_peak, host.bytes_high);
    copy.tier = Tier::kNeighbour;
    copy.below = *place;
    copy.lodging = {n, promised, *extent};
    list_guest(slot);
    copy.writing = true;
    begin_io(slot, Way::kOut);
    ++counts.lodged;
    return true;
  }
  return false;
}

// Of guests who are at home, too.
bool Core::Impl::forget_clean_guest(DeviceState& host) {
  const auto clean = std::find_if(host.guests.begin(), host.guests.end(), [&](Slot slot) {
    return rests(copies[slot]) && copies[slot].state == CopyState::kSealed;
  });
  if (clean == host.guests.end()) return false;
  forget_below(copies[*clean]);
  return true;
}

// Sees to it that guests leave so much memory, and says how much of that is coming or has come: of those that are at home, too, at
// once; of others as they are used, the last first, and before what a task of their own device waits for.
std::int64_t Core::Impl::dismiss_guests(std::uint16_t d, std::int64_t bytes) {
  DeviceState& host = devices[d];
  std::int64_t coming = 0;
  std::vector<std::tuple<bool, NextUse, Slot>> away;
  for (std::size_t i = host.guests.size(); i-- > 0 && coming < bytes;) {
    const Slot slot = host.guests[i];
    Copy& copy = copies[slot];
    if (!rests(copy)) continue;
    if (copy.state == CopyState::kSpilled) {
      away.emplace_back(!copy.wanted, kNever, slot);
      continue;
    }
    coming += in_arena(copy.lodging.extent.bytes);
    forget_below(copy);
  }
  const bool busy = store(Tier::kDisk).ios >= kMaxIos && store(Tier::kPinned).ios >= kMaxIos;
  if (coming >= bytes || busy || stage >= Stage::kStill) return coming;
  for (auto& [unwanted, use, slot] : away) use = next_use(copies[slot]);
  std::sort(away.begin(), away.end(), std::greater<>());
  for (const auto& [unwanted, use, slot] : away) {
    if (coming >= bytes) break;
    const std::int64_t size = in_arena(copies[slot].lodging.extent.bytes);
    if (send_away(slot)) coming += size;
  }
  return coming;
}

// To pinned memory, if there is room, else to the place that it has been promised.
bool Core::Impl::send_away(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& host = devices[copy.lodging.device];
  const auto open = [&](Tier tier) {
    const Store& below = store(tier);
    return may_use(devices[copy.device], tier) && may_use(host, tier) && below.ios < kMaxIos &&
           !below.broken && !below.refuses && !host.cut_off[static_cast<std::size_t>(tier)];
  };
  Tier tier = copy.lodging.promised;
  std::optional<alloc::Extent> better;
  if (tier == Tier::kDisk && open(Tier::kPinned))
    better = store(Tier::kPinned).places.allocate_settled(copy.bytes);
  if (better) tier = Tier::kPinned;
  if (!open(tier)) return false;
  copy.io = next_io++;
  copy.demoting = true;
  ios[copy.io] = {.copy = slot,
                  .device = copy.lodging.device,
                  .way = Way::kOnward,
                  .tier = tier,
                  .from_host = true,
                  .bytes = copy.bytes,
                  .since = now,
                  .below = better.value_or(alloc::Extent{})};
  ++store(tier).ios;
  ++host.ios;
  host.writing_bytes += copy.bytes;
  host.last_change = now;
  out->ios.push_back({copy.io, true, copy.lodging.device, lodging_of(copy), tier,
                      (better ? *better : copy.below).offset, copy.bytes});
  return true;
}

void Core::Impl::dismissed(const Io& io, const IoDone& event) {
  Store& below = store(io.tier);
  DeviceState& host = devices[io.device];
  const bool ok = event.failed.code == Errc::kOk, better = io.below.bytes > 0;
  host.writing_bytes -= io.bytes;
  if (ok)
    host.written_bytes[static_cast<std::size_t>(io.tier)] += io.bytes;
  else if (event.failed.code == Errc::kDeviceError)
    host.cut_off[static_cast<std::size_t>(io.tier)] = true;
  else
    (event.failed.code == Errc::kDiskFull ? below.refuses : below.broken) = true;
  if (io.copy == kNone) {
    if (better) free_place(io.tier, io.below, {});
    return free_place(Tier::kNeighbour, io.from, io.lodging);
  }
  Copy& copy = copies[io.copy];
  copy.io = 0;
  copy.demoting = false;
  devices[copy.device].last_change = now;
  // Who is being sent the block reads it where it was, so there it stays for now.
  if (!ok || copy.sending > 0 || copy.handed_on) {
    if (better) free_place(io.tier, io.below, {});
    return;
  }
  below.tries = 0;
  wrote_or_read(io);
  std::array<std::int64_t, kTiers>& spilled = devices[copy.device].spilled_bytes;
  spilled[kAway] -= copy.bytes;
  spilled[static_cast<std::size_t>(io.tier)] += copy.bytes;
  unlist_guest(copy);
  host.arena.free(copy.lodging.extent, alloc::Fence{});
  if (better) free_place(copy.lodging.promised, std::exchange(copy.below, io.below), {});
  copy.tier = io.tier;
  list_spilled(io.copy);
  ++counts.dismissed;
}

}  // namespace tilewise::worker
