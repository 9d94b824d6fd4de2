// What a session needs of the outside world: a link to the scheduler, links to workers' data services, and two ways to
// get at bytes. Implemented by the embedded cluster and by the remote connection.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace tilewise::client {

using msg::kNoSlab;

struct EndpointCallbacks {
  std::function<void(msg::Message)> on_message;           // from the scheduler, in order; Pings included
  std::function<void(WorkerId, msg::PeerBatch)> on_peer;  // from a worker, in order per worker
  std::function<void(Error)> on_lost;                     // the scheduler is gone for good; at most once
  // There is no way to this worker, directly or through another one, though the scheduler sees it; said again and again while that is
  // so. Nothing has come from there or gone there since `since` (the monotonic clock), which is as long ago as the endpoint has
  // patience, or longer: what has not moved since then is not to be waited for.
  std::function<void(WorkerId, Error, TimeNs since)> on_unreachable = {};
};

// Rules for implementations:
//   - callbacks run one at a time (any thread, but never two at once) and never inside a call of this interface
//     other than drive();
//   - callbacks may call every function of this interface but start(), stop(), drive() and the destructor;
//   - an endpoint answers Ping itself, besides passing it on;
//   - after on_lost, and after a worker is gone, calls are accepted and do nothing, except that `done` callbacks of
//     receive() and transmit() still come, with an error;
//   - stop() comes before anything of an endpoint, or of what decorates it, is destroyed, since callbacks call it.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // The accepted one. devices[0] is this client's data endpoint.
  virtual const msg::Welcome& welcome() const = 0;

  // Installed once by the session, before anything else is called.
  virtual void start(EndpointCallbacks callbacks) = 0;

  // Returns when no callback is running; none comes after it. Outstanding `done` callbacks are destroyed uncalled. What was sent
  // before goes out. Nothing but stop() and the destructor, which stops what was not, is called after it. Not from within a callback.
  virtual void stop() = 0;

  // To the scheduler, in the order of calls. Any thread; does not wait.
  virtual void send(msg::Message message) = 0;
  // To a worker's data service, in the order of calls per worker. Any thread; does not wait.
  virtual void send(WorkerId peer, msg::PeerBatch batch) = 0;

  // For a thread that waits: may run callbacks here, on the calling thread, until done() is true or the time is over.
  // done() is asked often, is cheap and calls nothing here. False if that was not possible, because another thread runs
  // them: then wait for it by other means. Not from within a callback.
  virtual bool drive(const std::function<bool()>& done, TimeNs timeout_ns) {
    (void)done, (void)timeout_ns;
    return false;
  }

  // Bytes [offset, offset + bytes) of a worker's slab, mapped for reading until the Done for that offer has been sent;
  // null when they cannot be mapped and must be received instead. Only called inside on_peer or on_message.
  virtual const std::byte* map(DeviceId device, std::uint32_t slab, std::int64_t offset,
                               std::int64_t bytes) = 0;

  // Keeps what map() gives of this slab readable for as long as the result lives: beyond the loss of the worker, not beyond the
  // endpoint's own end. Null where nothing is mapped. Only called where map() may be.
  virtual std::shared_ptr<const void> pin(DeviceId device, std::uint32_t slab) = 0;

  // The other way round: memory of this process that workers may read where it lies. Where they can, its place, for offers of
  // devices[0]; `owner` is kept until nothing reads it any more and it was withdrawn, or this endpoint has ended. `adoptable`: a
  // block there may stay there as a worker's own. Nothing where blocks have to be sent. Only called where map() may be.
  struct Place {
    std::uint32_t slab = kNoSlab;
    std::int64_t offset = 0;
  };
  virtual std::optional<Place> lend(const std::shared_ptr<const void>& owner,
                                    std::span<const std::byte> bytes, bool adoptable) {
    (void)owner, (void)bytes, (void)adoptable;
    return std::nullopt;
  }
  // Whether that worker is one of those: offers to others name no place. Only called where map() may be.
  virtual bool reads_in_place(WorkerId worker) const { return (void)worker, false; }
  // Bytes of blocks that have stayed in what was lent and withdrawn: arrays by now, of all clients of the cluster. Any thread.
  virtual std::int64_t kept_bytes() const { return 0; }
  // No offer will name it any more.
  virtual void withdraw(std::uint32_t slab) { (void)slab; }
  // Memory that lend() always finds a place for, aligned to 64 bytes and zeroed, where there is a kind of memory that workers of
  // other processes of the host can read; else ordinary memory. Any thread. kOutOfMemory.
  virtual Result<std::shared_ptr<std::byte>> allocate(std::int64_t bytes);

  // A worker has been told that this client is lost, and gives memory that we may have been reading to others. Looked at after
  // bytes were read or received, before they are believed.
  virtual std::optional<WorkerId> fenced_by() const { return std::nullopt; }

  // The copying lane. Arms a receive of exactly `bytes` tagged `transfer` from the worker of `from`; the session sends
  // the Grant afterwards. `done` is a callback like those above; `to` stays valid until it has been called or
  // destroyed. An error means that the transport has let go of `to`; kUnavailable that the link to the worker broke
  // meanwhile, so that it can be granted again.
  virtual void receive(DeviceId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                       std::function<void(Status)> done) = 0;
  // That worker has said that it cannot send what was granted as `transfer`: `done` comes soon, with an error. Nothing where no such
  // receive is armed.
  virtual void disarm(WorkerId from, std::uint64_t transfer) = 0;
  // Sends bytes that the worker of `to` has granted as `transfer`. The same rules.
  virtual void transmit(DeviceId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                        std::function<void(Status)> done) = 0;
};

// As ordinary memory, aligned to 64 bytes and zeroed.
Result<std::shared_ptr<std::byte>> allocate_plain(std::int64_t bytes);

}  // namespace tilewise::client
