// Pinned host memory has a disk below it. It is filled by what left the devices first, which may be what is read last: where it is
// full, blocks in it that are read later than the one that leaves now are passed on to the disk, and that one takes their place.
// The block stays where it is, and readable for who is being sent it, until the disk has it; then its place goes to others. It
// never comes up again but through its device's memory, so what is passed on is passed on once.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

constexpr std::size_t kMostWeighed = 64;             // blocks, for one place
constexpr std::int64_t kMaxDemotions = kMaxIos / 2;  // under way: others have business with the disk, too
constexpr std::int64_t kPatience = 2 * kMaxDemotions;

}  // namespace

void Core::Impl::list_spilled(Slot slot) {
  if (copies[slot].tier != Tier::kPinned) return;
  Store& pinned = store(Tier::kPinned);
  copies[slot].resident_at = static_cast<std::uint32_t>(pinned.spilled.size());
  pinned.spilled.push_back(slot);
  ++pinned.news;
}

void Core::Impl::unlist_spilled(Slot slot) {
  if (copies[slot].tier != Tier::kPinned) return;
  std::vector<Slot>& spilled = store(Tier::kPinned).spilled;
  const Slot last = spilled.back();
  spilled[copies[slot].resident_at] = last;
  copies[last].resident_at = copies[slot].resident_at;
  spilled.pop_back();
}

bool Core::Impl::demotable(Slot slot) const {
  const Copy& copy = copies[slot];
  return copy.state == CopyState::kSpilled && copy.stored && copy.tier == Tier::kPinned && copy.io == 0 &&
         !copy.wanted && copy.sending == 0 && !copy.handed_on && copy.bytes > 0;
}

// Of blocks that are in pinned memory alone, all of them used later than `use`, at most `most`: those whose places make room for `bytes`,
// and more, as many as have `ahead` bytes together. Empty: there is no such room. The list that they come from may be some steps old.
std::vector<Slot> Core::Impl::used_later(const NextUse& use, std::int64_t bytes, std::int64_t ahead,
                                         std::size_t most) {
  Store& pinned = store(Tier::kPinned);
  auto& order = pinned.order;
  if (pinned.order_at != step_number && pinned.news * 4 > static_cast<std::int64_t>(order.size())) {
    order.clear();
    pinned.order_at = step_number;
    pinned.news = 0;
    for (const Slot slot : pinned.spilled) {
      if (demotable(slot))
        order.emplace_back(next_use(copies[slot]), slot);
      else
        ++pinned.news;
    }
    std::sort(order.begin(), order.end());
  }
  const auto put_back = [&](const std::pair<NextUse, Slot>& entry) {
    order.insert(std::upper_bound(order.begin(), order.end(), entry), entry);
  };
  std::vector<std::pair<NextUse, Slot>> later;
  std::vector<alloc::Extent> places;
  std::vector<std::size_t> room;  // of those
  std::int64_t sum = 0;
  for (std::size_t looks = 0; looks < kMostWeighed && !order.empty() && later.size() < most; ++looks) {
    if (!room.empty() && sum >= ahead) break;
    auto entry = order.back();
    const Slot slot = entry.second;
    if (!demotable(slot)) {
      ++pinned.news;
      order.pop_back();
      continue;
    }
    const NextUse now_used = next_use(copies[slot]);
    if (now_used <= use && now_used >= entry.first) break;  // and so are all before it
    order.pop_back();
    entry.first = now_used;
    if (now_used <= use) {
      put_back(entry);
      continue;
    }
    later.push_back(entry);
    places.push_back(copies[slot].below);
    sum += copies[slot].bytes;
    const std::size_t count = places.size();
    if (room.empty() && (count & (count - 1)) == 0) room = pinned.places.room_by_freeing(places, bytes);
  }
  if (room.empty() && !places.empty()) room = pinned.places.room_by_freeing(places, bytes);
  std::vector<Slot> chosen;
  sum = 0;
  const auto choose = [&](std::size_t i) {
    chosen.push_back(later[i].second);
    sum += copies[chosen.back()].bytes;
  };
  for (const std::size_t i : room) choose(i);
  for (std::size_t i = 0; i < later.size(); ++i) {
    if (std::find(room.begin(), room.end(), i) != room.end()) continue;
    if (!room.empty() && sum < ahead)
      choose(i);
    else
      put_back(later[i]);
  }
  return chosen;
}

// Whether pinned memory, which is full, will have a place for the block: blocks used later are on their way to the disk. If not,
// the block itself may go there; so it may where others have taken the places so far, or what comes free is too small.
bool Core::Impl::makes_place(Slot slot, std::int64_t ahead) {
  const std::int64_t bytes = copies[slot].bytes;
  DeviceState& device = devices[copies[slot].device];
  Store& pinned = store(Tier::kPinned);
  const Store& disk = store(Tier::kDisk);
  if (pinned.broken || device.cut_off[static_cast<std::size_t>(Tier::kPinned)] || stage >= Stage::kStill)
    return false;
  if (!may_use(device, Tier::kDisk) || disk.broken || disk.refuses ||
      in_tier(bytes) > pinned.places.max_bytes())
    return false;
  if (device.waits_from >= 0 && pinned.ended - device.waits_from >= kPatience) return false;
  const NextUse use = next_use(copies[slot]);
  const auto is_made = [&] {
    const bool made = pinned.demoting > 0 && use < pinned.demoting_from && bytes <= pinned.demoting_for;
    if (made && device.waits_from < 0) device.waits_from = pinned.ended;
    return made;
  };
  if (is_made()) return true;
  if (pinned.demoting >= kMaxDemotions) return false;
  const std::vector<Slot> chosen =
      used_later(use, bytes, ahead, static_cast<std::size_t>(kMaxDemotions - pinned.demoting));
  std::vector<alloc::Extent> places;
  for (const Slot c : chosen) {
    const auto place = find_place(device, Tier::kDisk, copies[c].bytes);
    if (!place) break;
    places.push_back(*place);
  }
  if (places.size() < chosen.size()) {
    for (const alloc::Extent& place : places) store(Tier::kDisk).places.free(place, alloc::Fence{});
    pinned.news += static_cast<std::int64_t>(chosen.size());
    return false;
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) demote(chosen[i], places[i]);
  if (!chosen.empty()) pinned.demoting_for = std::max(pinned.demoting_for, bytes);
  return is_made();
}

void Core::Impl::demote(Slot slot, const alloc::Extent& place) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  Store& pinned = store(Tier::kPinned);
  const NextUse use = next_use(copy);
  pinned.demoting_from = pinned.demoting == 0 ? use : std::min(pinned.demoting_from, use);
  if (pinned.demoting == 0) pinned.demoting_for = 0;
  ++pinned.demoting;
  copy.io = next_io++;
  copy.demoting = true;
  ios[copy.io] = {.copy = slot,
                  .device = copy.device,
                  .way = Way::kOnward,
                  .bytes = copy.bytes,
                  .since = now,
                  .below = place};
  ++store(Tier::kDisk).ios;
  ++device.ios;
  device.last_change = now;
  out->ios.push_back(
      {copy.io, true, copy.device, {}, Tier::kDisk, place.offset, copy.bytes, copy.below.offset});
}

void Core::Impl::demoted(const Io& io, const IoDone& event) {
  Store &pinned = store(Tier::kPinned), &disk = store(Tier::kDisk);
  const bool ok = event.failed.code == Errc::kOk;
  --pinned.demoting;
  ++pinned.ended;
  if (!ok) (event.failed.code == Errc::kDiskFull ? disk.refuses : disk.broken) = true;
  if (ok) devices[io.device].written_bytes[static_cast<std::size_t>(Tier::kDisk)] += io.bytes;
  if (io.copy == kNone) {
    free_place(Tier::kPinned, io.from);
    return free_place(Tier::kDisk, io.below);
  }
  Copy& copy = copies[io.copy];
  copy.io = 0;
  copy.demoting = false;
  // Who is being sent the block reads it where it was, so there it stays. Who waits for its place has to look elsewhere.
  if (!ok || copy.sending > 0 || copy.handed_on) {
    free_place(Tier::kDisk, io.below);
    return place_freed(Tier::kPinned);
  }
  disk.tries = 0;
  std::array<std::int64_t, kTiers>& spilled = devices[copy.device].spilled_bytes;
  unlist_spilled(io.copy);
  spilled[static_cast<std::size_t>(Tier::kPinned)] -= copy.bytes;
  spilled[static_cast<std::size_t>(Tier::kDisk)] += copy.bytes;
  const alloc::Extent before = std::exchange(copy.below, io.below);
  copy.tier = Tier::kDisk;
  ++counts.demoted;
  free_place(Tier::kPinned, before);
}

}  // namespace tilewise::worker
