// The runtime's way to its peers: an exchange, and around it what stays in this process.
#pragma once
#include <tilewise/exchange/parts.h>
#include <tilewise/exchange/staging.h>
#include <tilewise/worker/local_lane.h>
#include <tilewise/worker/runtime.h>

#include <optional>
#include <set>

#include "daemon.h"

namespace tilewise::worker {

class Daemon::Service final : public DataService {
 public:
  // `gpu`: one of ours, if there is any.
  Service(exchange::Exchange& exchange, device::Copier& copier, device::Device* gpu);
  // Before anything is called.
  void bind(WorkerId self, Runtime& runtime) { self_ = self, runtime_ = &runtime; }
  // Devices have come to rest, the exchange has let go; before the devices end.
  void let_go() { staging_.reset(); }
  // Moves bytes inside this process. True if any arrived.
  bool poll() { return copier_.poll(); }
  bool is_lost(WorkerId peer) const { return lost_.contains(peer); }
  bool is_worker(WorkerId peer) const { return workers_.contains(peer); }

  void peer_joined(const msg::PeerInfo& peer) override;
  void peer_lost(WorkerId peer) override;
  void slab_added(DeviceId device, std::uint32_t slab, const device::Slab& memory) override;
  void send(WorkerId peer, msg::PeerBatch batch) override;
  bool inlines(WorkerId peer) const override { return exchange_->inlines(peer); }
  const std::byte* mapped(DeviceId device, std::uint32_t slab) const override {
    return exchange_->mapped(device, slab).data();
  }
  std::optional<WorkerId> fenced_by() const override { return exchange_->fenced_by(); }
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                device::Kind kind, Parts parts, OnSent sent) override;
  void refuse(WorkerId to, std::uint64_t transfer, const Error& why) override;
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, device::Kind kind,
               bool in_parts) override;
  void disarm(WorkerId from, std::uint64_t transfer) override;
  void link_broke(WorkerId peer, const Error& why) { parts_.peer_broke(peer, why); }

 private:
  // A block, or a part of one.
  void transmit_one(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                    device::Kind kind, exchange::Exchange::Done done);
  void receive_one(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                   device::Kind kind, exchange::Exchange::Done done, transfer::OnHeld held);
  void disarm_one(WorkerId from, std::uint64_t transfer);
  bool staged(device::Kind kind, WorkerId peer) const {
    return kind == device::Kind::kCuda && !exchange_->takes(kind, peer);
  }

  exchange::Exchange* exchange_;
  device::Copier& copier_;
  LocalLane local_;  // between our own devices, where one cannot read the other's memory
  std::optional<exchange::Staging> staging_;
  exchange::Parts parts_;
  WorkerId self_;
  Runtime* runtime_ = nullptr;
  std::set<WorkerId> workers_, lost_;
};

}  // namespace tilewise::worker
