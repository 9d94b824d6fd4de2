#include "peer_slabs.h"

#include <algorithm>

namespace tilewise::worker {

Status PeerSlabs::open(WorkerId peer, const msg::SlabDesc& slab, std::size_t position,
                       device::Device& device) {
  std::unique_ptr<device::CudaPeers>& opened = opened_[position];
  if (opened == nullptr) opened = std::make_unique<device::CudaPeers>(device);
  TW_ASSIGN(std::byte* const address, opened->open(peer.value, slab.ipc_handle, slab.bytes));
  addresses_.emplace(std::tuple(slab.device, slab.slab, position), std::pair(peer, address));
  return {};
}

std::byte* PeerSlabs::address(DeviceId of, std::uint32_t slab, std::size_t position) const {
  const auto found = addresses_.find({of, slab, position});
  return found == addresses_.end() ? nullptr : found->second.second;
}

void PeerSlabs::lose(WorkerId peer) {
  const bool any = std::ranges::any_of(addresses_, [&](const auto& a) { return a.second.first == peer; });
  if (any) lost_.emplace(peer, Lost{});
}

void PeerSlabs::settle(std::span<const Mark> marks) {
  for (auto entry = lost_.begin(); entry != lost_.end();) {
    const WorkerId peer = entry->first;
    Lost& lost = entry->second;
    if (!std::exchange(lost.marked, true)) lost.marks.assign(marks.begin(), marks.end());
    if (used_[peer] > 0 || !std::ranges::all_of(lost.marks, &Mark::passed)) {
      ++entry;
      continue;
    }
    std::erase_if(addresses_, [&](const auto& a) { return a.second.first == peer; });
    // What the driver says of it is of no use: where the GPU has failed, its health says so.
    for (const auto& [position, opened] : opened_) (void)!opened->close(peer.value);
    used_.erase(peer);
    entry = lost_.erase(entry);
  }
}

}  // namespace tilewise::worker
