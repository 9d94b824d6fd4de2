// The runtime's way to its peers: an exchange.
#pragma once
#include <tilewise/exchange/exchange.h>
#include <tilewise/worker/runtime.h>

#include <set>

#include "daemon.h"

namespace tilewise::worker {

class Daemon::Service final : public DataService {
 public:
  // Before anything is called.
  void bind(exchange::Exchange& exchange, Runtime& runtime) { exchange_ = &exchange, runtime_ = &runtime; }
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
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                device::Kind kind) override;
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
               device::Kind kind) override;

 private:
  exchange::Exchange* exchange_ = nullptr;
  Runtime* runtime_ = nullptr;
  std::set<WorkerId> workers_, lost_;
};

}  // namespace tilewise::worker
