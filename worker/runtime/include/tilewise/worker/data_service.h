// How blocks reach other processes: what a runtime needs of the outside. The embedded cluster hands pointers over, the
// daemons map memory and drive UCX.
#pragma once
#include <tilewise/device/device.h>
#include <tilewise/msg/msg.h>

#include <functional>
#include <optional>

namespace tilewise::worker {

// Called on the runtime's thread; nothing blocks.
class DataService {
 public:
  virtual ~DataService() = default;

  virtual void peer_joined(const msg::PeerInfo& peer) = 0;
  virtual void peer_lost(WorkerId peer) = 0;
  // A new slab of one of our devices: tell the peers that may map it. The device keeps owning it.
  virtual void slab_added(DeviceId device, std::uint32_t slab, const device::Slab& memory) = 0;

  virtual void send(WorkerId peer, msg::PeerBatch batch) = 0;
  // True where small blocks should travel inside their offers (the peer does not map our memory).
  virtual bool inlines(WorkerId peer) const = 0;
  // A peer's slab in our address space, or null. Stays valid until the peer is lost and its readers are done.
  virtual const std::byte* mapped(DeviceId device, std::uint32_t slab) const = 0;
  // What a client of this process has lent (is_foreign) is not read any more for that op's sake.
  virtual void given_back(const msg::Done& done) { (void)done; }
  // A peer whose memory we may have been reading gives it to others, since it was told that we are lost. Looked at after reading,
  // before what came of it is told.
  virtual std::optional<WorkerId> fenced_by() const { return std::nullopt; }

  // How a block is sent: at once, or in parts, as its receiver awaits it; and those as they come in by `follows`, a receive in parts.
  struct Parts {
    bool in_parts = false;
    std::uint64_t follows = 0;
  };
  // The copying lane. Both are idempotent per `transfer`; a receive ends in TransferDone posted to the runtime, exactly
  // once, when the transport has let go of the memory.
  // `sent` is called, on the runtime's thread, when the transport has let go of `from`: exactly once, failed or not. The receiver need
  // not know of a failure.
  using OnSent = std::function<void(const Status&)>;
  virtual void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                        device::Kind kind, Parts parts, OnSent sent) = 0;
  // There is no memory for bytes of no block that `to` wants to measure a link with (docs/design/link-probes.md). Inside the process it
  // hears so at once, others give up in time.
  virtual void refuse(WorkerId to, std::uint64_t transfer, const Error& why) = 0;
  // `in_parts`: PartArrived is posted when the first is here. What follows it (Parts) has ended before its TransferDone says that it failed.
  virtual void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                       device::Kind kind, bool in_parts) = 0;
  // `from` says that it will not send these bytes: the receive ends now, unless they are on their way all the same.
  virtual void disarm(WorkerId from, std::uint64_t transfer) = 0;
};

}  // namespace tilewise::worker
