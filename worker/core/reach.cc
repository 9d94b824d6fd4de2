// Whose memory the devices here can read. Between hosts nobody's; memory of a host's devices in place, where processes share it; a
// GPU's by other GPUs of the host, once the shell has opened its slab there: in place where it is the same GPU, else by a copy that
// the reader makes itself. So of an offer that names a slab, these decide whether the sender has anything left to do.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

namespace {
constexpr std::uint8_t kHost = 0, kCuda = 1;  // device::Kind
}

// Who is not announced has no link either; and who is lost has lent nothing any more.
void Core::Impl::on_slab_reached(const SlabReached& e) {
  const auto peer = peers.find(e.peer.value);
  if (peer == peers.end()) return void(++counts.stale);
  const msg::PeerInfo& info = peer->second.info;
  const auto at = static_cast<std::size_t>(std::ranges::find(info.devices, e.from) - info.devices.begin());
  if (at >= info.descriptions.size() || !options.map_peers) return void(++counts.stale);
  const std::string& gpu = info.descriptions[at].gpu;
  const bool same = !gpu.empty() && gpu == devices[e.device].spec.gpu;
  reached[{e.from, e.slab, e.device}] = same ? Reach::kReads : Reach::kCopies;
}

void Core::Impl::forget_slabs(DeviceId from) {
  reached.erase(reached.lower_bound({from, 0, 0}), reached.upper_bound({from, UINT32_MAX, UINT16_MAX}));
}

Core::Impl::Reach Core::Impl::reach(DeviceId from, std::uint32_t slab, std::uint16_t to) const {
  const auto it = remote.find(from.value);
  if (slab == msg::kNoSlab || it == remote.end() || it->second.lost) return Reach::kNone;
  if (is_foreign(slab) && !options.adopts) return Reach::kNone;
  if (it->second.kind == kHost && devices[to].spec.kind == kHost) {
    if (it->second.worker == options.self) return Reach::kReads;
    const auto peer = peers.find(it->second.worker.value);
    return peer != peers.end() && peer->second.mapped ? Reach::kReads : Reach::kNone;
  }
  const auto known = reached.find({from, slab, to});
  return known == reached.end() ? Reach::kNone : known->second;
}

// Whether offers say where the bytes are, which are lent with that. A host's memory is nobody's to fight for; a GPU's is lent only
// to those who can make something of it, others are sent it.
bool Core::Impl::lends(std::uint16_t from, DeviceId to) const {
  const DeviceState& device = devices[from];
  if (device.spec.kind == kHost) return true;
  const RemoteDevice& reader = remote.at(to.value);
  const auto peer = peers.find(reader.worker.value);
  return device.lends && reader.kind == kCuda && !reader.client && peer != peers.end() && peer->second.mapped;
}

// Something that others make may have to be copied here before it can be read.
bool Core::Impl::is_copied_to(std::uint16_t d) const {
  const std::uint8_t kind = devices[d].spec.kind;
  for (const DeviceState& other : devices)
    if (&other != &devices[d] && (kind != kHost || other.spec.kind != kHost)) return true;
  return std::ranges::any_of(peers, [&](const auto& peer) {
    const msg::PeerInfo& info = peer.second.info;
    if (info.role != msg::Role::kWorker) return false;
    return kind != kHost || !peer.second.mapped ||
           std::ranges::any_of(info.descriptions, [](const auto& device) { return device.kind != kHost; });
  });
}

}  // namespace tilewise::worker
