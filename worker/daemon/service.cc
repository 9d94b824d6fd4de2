#include "service.h"

#include <tilewise/daemon/log.h>
#include <tilewise/device/cuda_pinned.h>

#include <functional>

namespace tilewise::worker {

Daemon::Service::Service(exchange::Exchange& exchange, device::Copier& copier, device::Device* gpu)
    : exchange_(&exchange),
      copier_(copier),
      local_(copier),
      parts_({.transmit = std::bind_front(&Service::transmit_one, this),
              .receive = std::bind_front(&Service::receive_one, this),
              .disarm = std::bind_front(&Service::disarm_one, this),
              .extend = std::bind_front(&exchange::Exchange::extend, &exchange)}) {
  exchange::ChunkOptions chunks;
  if (gpu != nullptr) {
    chunks.pin = [gpu](std::size_t bytes) -> std::shared_ptr<std::byte> {
      auto made = device::PinnedBuffer::make(*gpu, bytes);
      if (!made) {
        daemon::log_warn("what GPUs send to other hosts goes through memory that is not pinned, and slower",
                         {{"why", daemon::to_string(made.error())}});
        return nullptr;
      }
      const std::shared_ptr<device::PinnedBuffer> buffer = std::move(*made);
      return {buffer, buffer->data()};
    };
  }
  staging_.emplace(exchange, copier, chunks);
}

void Daemon::Service::peer_joined(const msg::PeerInfo& peer) {
  if (peer.role == msg::Role::kWorker) workers_.insert(peer.id);
  daemon::log_debug("peer announced", {{"peer", peer.name}, {"id", peer.id.value}});
  exchange_->peer_joined(peer);
}

void Daemon::Service::peer_lost(WorkerId peer) {
  daemon::log_debug("peer lost", {{"id", peer.value}});
  workers_.erase(peer);
  lost_.insert(peer);
  exchange_->peer_lost(peer);
  parts_.peer_broke(peer, error(Errc::kWorkerLost, "it is lost"));
}

void Daemon::Service::slab_added(DeviceId device, std::uint32_t slab, const device::Slab& memory) {
  exchange_->slab_added(device, slab, memory);
}

void Daemon::Service::send(WorkerId peer, msg::PeerBatch batch) {
  // A peer that cannot be told is unreachable, which on_unreachable says too, or lost, which is no news.
  const Status sent = exchange_->send(peer, std::move(batch));
  if (!sent)
    daemon::log_debug("batch dropped", {{"peer", peer.value}, {"why", daemon::to_string(sent.error())}});
}

void Daemon::Service::transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                               device::Kind kind, Parts parts, OnSent sent) {
  const auto done = [to, transfer, sent = std::move(sent)](const Status& status, msg::Lane) {
    if (!status) {
      daemon::log_warn(
          "send failed",
          {{"peer", to.value}, {"transfer", transfer}, {"why", daemon::to_string(status.error())}});
    }
    sent(status);
  };
  if (parts.in_parts) return parts_.transmit(to, transfer, from, bytes, kind, parts.follows, done);
  transmit_one(to, transfer, from, bytes, kind, done);
}

void Daemon::Service::transmit_one(WorkerId to, std::uint64_t transfer, const std::byte* from,
                                   std::int64_t bytes, device::Kind kind, exchange::Exchange::Done done) {
  if (to == self_) {
    const device::Place place{const_cast<std::byte*>(from), kind};
    return local_.transmit(self_, transfer, place, bytes,
                           [done](const Status& ok) { done(ok, msg::Lane::kPeerCopy); });
  }
  if (staged(kind, to)) return staging_->transmit(to, transfer, from, bytes, done);
  exchange_->transmit(to, transfer, from, bytes, kind, done);
}

void Daemon::Service::refuse(WorkerId to, std::uint64_t transfer, const Error& why) {
  daemon::log_warn("a link cannot be measured",
                   {{"peer", to.value}, {"transfer", transfer}, {"why", daemon::to_string(why)}});
  if (to == self_) local_.refuse(to, transfer, why);
}

void Daemon::Service::receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                              device::Kind kind, bool in_parts) {
  const auto done = [this, transfer](const Status& status, msg::Lane lane) {
    runtime_->post(TransferDone{transfer, status ? Error{Errc::kOk, {}} : status.error(), lane});
  };
  const auto held = [this, transfer](const Error& why) {
    runtime_->post(TransferDone{.transfer = transfer, .failed = why, .held = true});
  };
  if (!in_parts) return receive_one(from, transfer, to, bytes, kind, done, held);
  const auto first = [this, transfer] { runtime_->post(PartArrived{transfer}); };
  parts_.receive(from, transfer, to, bytes, kind, first, done, held);
}

void Daemon::Service::receive_one(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                                  device::Kind kind, exchange::Exchange::Done done, transfer::OnHeld held) {
  if (from == self_) {
    return local_.receive(self_, transfer, {to, kind}, bytes,
                          [done](const Status& ok) { done(ok, msg::Lane::kPeerCopy); });
  }
  if (staged(kind, from)) return staging_->receive(from, transfer, to, bytes, done);
  exchange_->receive(from, transfer, to, bytes, kind, std::move(done), std::move(held));
}

void Daemon::Service::disarm(WorkerId from, std::uint64_t transfer) {
  if (!parts_.disarm(from, transfer)) disarm_one(from, transfer);
}

void Daemon::Service::disarm_one(WorkerId from, std::uint64_t transfer) {
  if (from == self_) return local_.refuse(self_, transfer, {Errc::kNotFound, "the sender does not send it"});
  exchange_->disarm(from, transfer);
}

}  // namespace tilewise::worker
