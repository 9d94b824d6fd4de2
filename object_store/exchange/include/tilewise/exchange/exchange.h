// All peer links of one process: finds its peers, proves who they are, maps their memory or moves bytes (transfer),
// and carries batches of messages. Workers and clients' data endpoints use the same object.
//
// Everything happens on the event loop's thread. Callbacks come from the loop, never from inside a call made
// here, and may call everything but poll() and the destructor.
//
// A peer is one incarnation. It is announced (peer_joined), gets a link, becomes ready, and ends. A link over TCP that
// breaks is made again for a while, and what had not arrived is sent again: batches come once and in order over any number
// of links, and nobody here is asked to do anything. Where there is no way to a peer, the link goes through a worker that reaches it. Only transfers have to be begun anew. Links inside a host break
// with their process: they are not made again, that is the scheduler's decision to take (peer_lost, a new incarnation).
#pragma once
#include <tilewise/base/limits.h>
#include <tilewise/device/device.h>
#include <tilewise/msg/msg.h>
#include <tilewise/net/endpoint.h>
#include <tilewise/transfer/ucx_engine.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewise::exchange {

struct Options {
  net::Token token;
  std::string host_id;  // equal on two processes that may share memory; empty: shares with nobody
  // "unix-abstract:...", "tcp://0.0.0.0:0"; none: this process connects to all.
  std::vector<std::string> listen;
  std::string advertise;  // the host that peers use for our TCP addresses; empty: the one listened on
  // false: shares no memory with peers, neither blocks (all are copied) nor rings for messages (net/handshake.h)
  bool map_peers = true;
  // A transfer into a GPU's memory that is staged through the host, or one through a socket between two processes of a host that would
  // share memory, is an error.
  bool strict_lanes = false;
  bool use_ucx = true;  // false: no copying lane at all
  // What UCX says of a kind of memory is tried out first: of the host's when this is made, of GPUs' with the first slab that is
  // added while no transfer is under way.
  bool prove_ucx = false;
  transfer::UcxOptions ucx;                // net_devices empty and all listening loopback: loopback
  TimeNs silence_ns = 10 * kSecond;        // net::HandshakeOptions
  TimeNs link_deadline_ns = 15 * kSecond;  // from peer_joined to on_ready; no limit for clients that connect
  // How long it is tried to make a broken link over TCP again. 0: not at all. Who is connected to waits a little longer, and
  // for a client until the scheduler has lost it.
  TimeNs resume_ns = 10 * kSecond;
  // Where a peer cannot be reached, a worker that is reached is asked to pass on what is said to it and what it says. Of use between
  // hosts only; whoever is asked does it, whatever this says.
  bool relays = true;
  TimeNs direct_ns =
      15 * kSecond;  // how soon the direct way is tried beside that, then twice as late each time
  // false: who cannot be reached in time is told of by on_cut_off, not on_unreachable, and tried on.
  bool gives_up = true;
  TimeNs unmap_grace_ns = 30 * kSecond;       // a lost peer's memory stays mapped so long, see mapped()
  std::size_t max_queued_bytes = 256u << 20;  // of messages to one peer not yet taken by its link
  // Taken by its link over TCP, not known to have arrived; one always may. Room for the largest message beside what a receiver
  // does not acknowledge yet (courier/outstanding.h): else that would wait for ever.
  std::size_t max_kept_bytes = limits::kMaxMessageBytes + (2u << 20);
  std::size_t max_strangers = 64;  // links that have not said hello, or that of a peer not yet announced
  std::size_t max_slabs = 4'096;   // of one peer
};

struct Callbacks {
  std::function<void(WorkerId, msg::PeerBatch)> on_batch;  // in order per peer, after its on_ready
  std::function<void(WorkerId, bool mapped)> on_ready;  // once; mapped: its host slabs can be read in place
  // At most once, instead of or after on_ready; transfers end with kUnavailable. kTimeout (no link in time, also after a
  // break), kUnavailable, kUnauthenticated; kLimitExceeded when it does not take its messages; other codes: it broke
  // the protocol.
  std::function<void(WorkerId, const Error&)> on_unreachable;
  // After its on_ready: a link that is being made again, and what came of it.
  std::function<void(WorkerId, const Error& why)> on_broken = {};
  std::function<void(WorkerId)> on_back = {};
  // Instead of on_unreachable with kTimeout (Options::gives_up): receives that wait for the link end with kUnavailable, and so do new
  // ones. on_ready or on_back follows when there is a link; then it may happen again.
  std::function<void(WorkerId, const Error& why)> on_cut_off = {};
  // From now on bytes between these two go through this process, because the first cannot reach the other.
  std::function<void(WorkerId, WorkerId)> on_relay = {};
  // A slab of one of its GPUs, which device::CudaPeers can open by its handle; before any message that names it. Who dies takes
  // it away.
  std::function<void(WorkerId, const msg::SlabDesc&)> on_lent = {};
  // UCX cannot do what it says. `refused`: memory of a kind was not moved to this process itself and back, or was taken for another
  // kind, so UCX is given no such memory from now on; else a slab could not be registered, and each transfer will be.
  std::function<void(const Error&, bool refused)> on_ucx_fault = {};
  // A connection could not be accepted, for want of a file descriptor say, or was dropped because there were too many. It is tried
  // again ten times a second.
  std::function<void(const Error&)> on_deaf = {};
};

struct Counters {
  std::int64_t links = 0;       // peers ready now
  std::int64_t ring_links = 0;  // of these, with messages through shared memory
  std::int64_t rejected = 0;    // connections without the token
  // Links with it, but for another incarnation, a lost peer, or nobody announced.
  std::int64_t strangers_closed = 0;
  std::int64_t protocol_errors = 0;  // links closed for what came over them
  std::int64_t batches_in = 0, batches_out = 0;
  std::int64_t mapped_bytes = 0;  // of peers' slabs, now
  std::int64_t breaks = 0;        // of links that are made again
  std::int64_t resumed = 0;       // of these, made again
  std::int64_t repeated = 0;      // messages sent again
  std::int64_t detours = 0;       // links to peers made through a third process
  std::int64_t relayed = 0;       // connections of others that went through this process
};

class Exchange {
 public:
  using Done = std::function<void(Status, msg::Lane)>;

  // In main(), before threads: transfer::UcxEngine::prepare_process().
  static Result<std::unique_ptr<Exchange>> create(net::EventLoop& loop, Options options, Callbacks callbacks);
  // No callback comes after it; `done`s under way are destroyed uncalled, their memory is free.
  ~Exchange();

  // Once, before joining; what to say in msg::Join::addresses, best first.
  Result<std::vector<std::string>> listen();
  // Once, after the scheduler's welcome and before peers are announced.
  void set_self(WorkerId self);

  // A repeat, ourselves, or one lost before: nothing.
  void peer_joined(const msg::PeerInfo& peer);
  // Its transfers end with kWorkerLost, its memory is unmapped after the grace; nothing of it comes any more. From here on what was
  // lent to it may be given to others: if it lives all the same, it finds itself fenced.
  void peer_lost(WorkerId peer);
  // Nobody reads the lost peer's memory any more: unmap it now.
  void readers_done(WorkerId peer);
  // A new slab of ours: peers that may map it are told, before any later message. The device keeps owning it. Not to be named
  // in offers: a GPU's without a handle.
  void slab_added(DeviceId device, std::uint32_t slab, const device::Slab& memory);

  // Until the link is ready messages wait. Errors: kNotFound, kUnavailable (unreachable), kLimitExceeded (the
  // peer does not take its messages, and is unreachable from now on).
  Status send(WorkerId peer, msg::PeerBatch batch);
  // The peer does not map our memory: small blocks should travel inside their offers.
  bool inlines(WorkerId peer) const;
  // A peer's slab in our address space, or nothing. Offers that name mapped slabs were checked to
  // lie inside. Valid until the grace after peer_lost() is over: kernels that read may still be queued then.
  // Dead peers' pages stay in memory as long.
  std::span<const std::byte> mapped(DeviceId device, std::uint32_t slab) const;
  // Keeps it mapped for as long as the result lives, whatever becomes of the peer and of this. Null: it is not mapped.
  std::shared_ptr<const void> pin(DeviceId device, std::uint32_t slab) const;

  // A peer of this host has been told that this process is lost, and gives the memory that it had lent us to others. To be looked at
  // after anything of a peer was read, in place or by a transfer, and before anybody is told of what came of it (net/fence.h).
  std::optional<WorkerId> fenced_by() const;

  // Both are on one host and wish to map each other's memory, which they do if their link's shared memory could be had.
  bool would_map(WorkerId peer) const;
  // Messages to and from this peer go through shared memory, not a socket.
  bool shares_ring(WorkerId peer) const;

  bool strict_lanes() const;
  // Whether the copying lane takes memory of this kind: UCX may have been built without CUDA.
  bool takes(device::Kind kind) const;
  // To and from this peer. Not a GPU's where a data connection is used, which carries host memory.
  bool takes(device::Kind kind, WorkerId peer) const;
  // The copying lane; the memory belongs to it until `done`, which always comes later, once. A repeat of a
  // transfer under way does nothing and its `done` is dropped. Errors as transfer::UcxEngine's, kUnsupported where
  // there is no UCX on both sides, kLaneDenied when strict. kUnavailable: there is no such peer, or its link broke
  // meanwhile, so that it can be tried again; a connection of UCX's that broke without the link is kIo. A
  // receive from a peer whose link is being made again begins when that is done. `held`: a receive has failed, but UCX does not let go of
  // its memory; at most once, before `done`, which may then never come.
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                device::Kind kind, Done done);
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, device::Kind kind,
               Done done, transfer::OnHeld held = {});

  // The same in chunks, where bytes of host memory to and from this peer go over a data connection (in_chunks()): kUnsupported where they
  // do not. The source or sink is the lane's until `done`, which a repeated transmit gets too (kAlreadyExists); resume() as UcxEngine's.
  bool in_chunks(WorkerId peer) const;
  bool is_up(WorkerId peer) const;  // there is a link now
  void transmit(WorkerId to, std::uint64_t transfer, transfer::Source& from, std::int64_t bytes, Done done);
  void receive(WorkerId from, std::uint64_t transfer, transfer::Sink& to, std::int64_t bytes, Done done);
  void resume(WorkerId peer);

  // As UcxEngine's, of a transfer to or from this peer.
  void extend(WorkerId peer, std::uint64_t transfer, bool sending);
  // The peer says that it will not send these bytes: unless they are coming all the same, the receive ends with kNotFound.
  void disarm(WorkerId from, std::uint64_t transfer);

  // For the loop's batch hook, where a thread polls before it sleeps: moves bytes now. Not needed otherwise.
  bool poll();

  Counters counters() const;
  transfer::UcxCounters ucx_counters() const;

  struct Impl;

 private:
  explicit Exchange(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewise::exchange
