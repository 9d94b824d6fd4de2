// A block whose transfer from its owner has failed, though the owner lives: it is had from somebody else who has a copy, if anybody is
// known to. First another device of this worker; else the owner is told that its own way failed (a Subscribe whose `via` names itself) and
// says where to turn: to a device that passes the block on, that keeps a copy because it was asked to, or that the placement names as a
// holder. The last two may not have it (yet) and say so (kMissing); then the owner's way is tried again. Each such round costs one of the
// attempts that a block has, so there is an end.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

// A copy of the same block that another device here has whole, in its memory.
Slot Core::Impl::sibling_of(Slot slot) const {
  const Copy& copy = copies[slot];
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    const Slot other = d == copy.device ? kNone : find_copy(copy.array, copy.block, d);
    if (other != kNone && copies[other].state == CopyState::kSealed && copies[other].has_memory) return other;
  }
  return kNone;
}

void Core::Impl::go_round(Slot slot, Slot op) {
  Copy& copy = copies[slot];
  const Slot sibling = sibling_of(slot);
  if (sibling == kNone) return subscribe(slot, op, copy.source);
  ++counts.detours;
  copy.via = devices[copies[sibling].device].spec.id;
  copy.state = CopyState::kOffered;
  list_fresh(slot);
}

// Of those who may have a copy beside us, the owner, each in turn.
DeviceId Core::Impl::another_holder(Slot slot, Use& use) {
  const Copy& copy = copies[slot];
  const ArrayState& array = arrays[copy.array];
  const auto reader = remote.find(use.device.value);
  if (!whole(copy) || copy.kind != CopyKind::kProduced || reader == remote.end() || reader->second.client)
    return {};
  boost::container::small_vector<DeviceId, 8> holders;
  const auto add = [&](DeviceId device) {
    const auto it = remote.find(device.value);
    if (device == use.device || device == devices[copy.device].spec.id || it == remote.end()) return;
    if (it->second.client || it->second.lost || it->second.worker == options.self) return;
    if (std::ranges::find(holders, device) == holders.end()) holders.push_back(device);
  };
  if (copy.tree != kNone) {
    for (const Leader& leader : trees[copy.tree].leaders)
      if (leader.state == Leader::State::kHas) add(leader.device);
  }
  const ir::Index point = ir::unravel(copy.block, array.counts);
  for (const Slot keeper : array.keeps)
    if (ops[keeper].cancelled == kNone) add(ops[keeper].entry->placement.owner(point));
  if (const Slot made_by = maker(copy.array, copy.block); made_by != kNone) {
    const ir::Placement& placement = ops[made_by].entry->placement;
    for (const auto& [id, peer] : peers) {
      if (!placement.replicated()) break;
      for (const DeviceId device : peer.info.devices)
        if (placement.holds(point, device)) add(device);
    }
  }
  if (holders.empty()) return {};
  ++counts.detours;
  return holders[use.detours++ % holders.size()];
}

}  // namespace tilewise::worker
