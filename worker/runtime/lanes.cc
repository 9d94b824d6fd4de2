// The runtime's part in moving bytes: where blocks are, what is sent to peers and what is taken from them.
#include <tilewise/base/check.h>
#include <tilewise/worker/runtime.h>

#include <memory>
#include <new>
#include <string>

#include "below.h"
#include "peer_slabs.h"
#include "probe_memory.h"
#include "runtime_local.h"

namespace tilewise::worker {

namespace {
constexpr std::size_t kNowhere = SIZE_MAX;  // no device: of our own memory
constexpr std::int64_t kMaxSending =
    64 << 20;  // blocks read from disk for peers, in memory beside the devices'; one may
}  // namespace

// For steps and copies of that device: a peer's slab may have another address on each of ours.
std::byte* Runtime::address(const MemoryRef& ref, std::size_t device) const {
  for (const auto& local : locals_) {
    if (local->id == ref.device && !is_foreign(ref.slab)) return local->slabs[ref.slab].data + ref.offset;
  }
  if (std::byte* const base = peer_slabs_->address(ref.device, ref.slab, device)) return base + ref.offset;
  const std::byte* base = service_->mapped(ref.device, ref.slab);
  TW_CHECK(base != nullptr, "a borrowed block's slab is not mapped");
  return const_cast<std::byte*>(base) + ref.offset;
}

// So that peers' GPUs can tell how fast they copy from ours before there is a block. Where it cannot be had, probes are sent.
void Runtime::lend_probe_memory() {
  if (!options_.map_peers) return;
  for (const auto& local : locals_) {
    if (local->device->info().kind != device::Kind::kCuda) continue;
    if (const auto slab = probe_memory_->on_gpu(*local->device))
      service_->slab_added(local->id, msg::kProbeSlab, *slab);
  }
}

Status Runtime::peer_lends(WorkerId peer, const msg::SlabDesc& slab) {
  Status first;
  for (std::size_t d = 0; d < locals_.size(); ++d) {
    if (locals_[d]->device->info().kind != device::Kind::kCuda) continue;
    const Status opened = peer_slabs_->open(peer, slab, d, *locals_[d]->device);
    if (opened)
      post(SlabReached{peer, slab.device, slab.slab, static_cast<std::uint16_t>(d)});
    else if (first)
      first = opened;
  }
  return first;
}

// On a stream of the reader's own device, whose context the slab has been opened in.
void Runtime::pull(WorkerId peer, std::uint64_t transfer, std::size_t device, std::byte* to,
                   const std::byte* from, std::int64_t bytes) {
  peer_slabs_->use(peer);
  copier_.copy_on(locals_[device]->device->copy_stream(), to, from, bytes,
                  [this, peer, transfer](const Status& ok) {
                    peer_slabs_->unuse(peer);
                    post(TransferDone{transfer, ok ? Error{Errc::kOk, {}} : ok.error(), msg::Lane::kCudaIpc});
                  });
}

// Streams as they are in the turn after the loss: nothing reads the peer's memory that is enqueued later.
void Runtime::close_peer_slabs() {
  if (!peer_slabs_->any_lost()) return;
  std::vector<PeerSlabs::Mark> marks;
  for (const auto& local : locals_) {
    if (local->device->info().kind != device::Kind::kCuda) continue;
    for (std::size_t s = 0; s < local->enqueued.size(); ++s)
      marks.push_back({&local->device->compute_stream(static_cast<int>(s)), local->enqueued[s]});
  }
  peer_slabs_->settle(marks);
}

void Runtime::transmit(const Transmit& t) {
  if (t.below >= 0 && t.tier == Tier::kDisk) {
    to_send_.push_back(t);
    return send_from_disk();
  }
  const auto sent = [this, t](const Status& status) { transmitted(t, status); };
  if (t.below >= 0)
    return service_->transmit(t.to, t.transfer, below_->pinned(t.below), t.bytes, device::Kind::kHost,
                              {t.in_parts}, sent);
  device::Kind kind = device::Kind::kHost;
  for (const auto& local : locals_) {
    if (local->id == t.from.device) kind = local->device->info().kind;
  }
  service_->transmit(t.to, t.transfer, address(t.from, kNowhere), t.bytes, kind, {t.in_parts, t.follows},
                     sent);
}

void Runtime::transmitted(const Transmit& t, const Status& status) {
  if (!status) post(NotSent{t.block, t.sender, t.reader, t.transfer});
  if (t.tell) post(Sent{t.to, t.transfer});
}

void Runtime::send_from_disk() {
  while (!to_send_.empty() &&
         (sending_bytes_ == 0 || sending_bytes_ + to_send_.front().bytes <= kMaxSending)) {
    const Transmit t = to_send_.front();
    to_send_.pop_front();
    // As large as a block: the reader is told that it is not sent, as where a send fails, and asks again.
    const std::shared_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[static_cast<std::size_t>(t.bytes)]);
    if (bytes == nullptr) {
      transmitted(t, error(Errc::kOutOfMemory,
                           std::to_string(t.bytes) + " bytes of host memory to send a block from disk"));
      continue;
    }
    sending_bytes_ += t.bytes;
    const auto sent = [this, t, bytes](const Status& status) {
      sending_bytes_ -= t.bytes;
      transmitted(t, status);
      send_from_disk();
    };
    below_->disk()->read(t.below, bytes.get(), t.bytes, [this, t, bytes, sent](const Status& status) {
      later([this, t, bytes, sent, status] {
        if (!status) return sent(status);
        service_->transmit(t.to, t.transfer, bytes.get(), t.bytes, device::Kind::kHost, {t.in_parts}, sent);
      });
    });
  }
}

void Runtime::receive_probe(const ProbeReceive& probe) {
  device::Device& device = *locals_[probe.device]->device;
  auto bytes = probe_memory_->get(device, ProbeMemory::Way::kReceive, now_);
  if (!bytes) return post(TransferDone{probe.transfer, bytes.error(), msg::Lane::kTcp});
  probes_[probe.transfer] = *bytes;
  if (probe.pulled) {
    const std::byte* from = address({probe.pulled, msg::kProbeSlab, 0}, probe.device);
    return pull(probe.from, probe.transfer, probe.device, bytes->get(), from, probe.bytes);
  }
  service_->receive(probe.from, probe.transfer, bytes->get(), probe.bytes, device.info().kind, false);
}

// Without memory nothing is sent, and who waits gives up.
void Runtime::send_probe(const ProbeSend& probe) {
  device::Device& device = *locals_[probe.device]->device;
  auto bytes = probe_memory_->get(device, ProbeMemory::Way::kSend, now_);
  if (!bytes) return service_->refuse(probe.to, probe.transfer, bytes.error());
  service_->transmit(probe.to, probe.transfer, bytes->get(), probe.bytes, device.info().kind, {},
                     [kept = *bytes](const Status&) {});
}

void Runtime::inline_small(WorkerId peer, msg::PeerBatch& batch) const {
  if (batch.offers.empty() || !service_->inlines(peer)) return;
  for (msg::Offer& offer : batch.offers) {
    if (!offer.failed.ok() || !Core::inlinable(offer) || offer.slab == msg::kNoSlab) continue;
    for (const auto& local : locals_) {
      if (local->id != offer.from || local->device->info().kind != device::Kind::kHost) continue;
      if (offer.bytes > 0) {
        const std::byte* from = address({offer.from, offer.slab, offer.offset}, kNowhere);
        offer.data.assign(reinterpret_cast<const char*>(from), static_cast<std::size_t>(offer.bytes));
      }
      offer.inlined = true;
    }
  }
}

}  // namespace tilewise::worker
