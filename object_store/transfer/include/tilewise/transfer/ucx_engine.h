// The copying lane: blocks from one process to another over UCX, paced by the receiver.
//
// A pair of processes shares a cookie (from its authenticated control link). The receiver calls expect() for
// exactly so many bytes under a number of its choice, tells the peer over the control link, and the peer
// calls transmit(). What arrives without a fitting expectation is refused before any memory is touched.
//
// Ownership of memory: from a successful transmit() or expect() until its `done`, the bytes belong to the
// transport. `done` comes exactly once, from progress(), and means that the transport has let go, whatever
// the outcome: a transfer past its deadline is first cancelled, then its connection is closed, and its memory
// stays in quarantine until UCX has completed the request. Should it not, a receive's `held` says so, so that nobody waits for the
// bytes any longer.
//
// One thread at a time (D8). The destructor blocks for at most two seconds; and where a peer has no stream and UCX uses TCP, the
// first transfer or expectation while UCX connects.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>
#include <tilewise/device/device.h>
#include <tilewise/net/byte_stream.h>
#include <tilewise/transfer/chunks.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tilewise::transfer {

// The name of a pair of incarnations, known to the two alone.
using Cookie = std::array<std::byte, 16>;

// How bytes really went, as read back from UCX. kNone: nothing went.
enum class Via : std::uint8_t { kNone = 0, kSharedMemory, kRdma, kTcp, kCudaIpc, kStaged };
std::string_view name_of(Via via);

struct UcxOptions {
  // As UCX_TLS, e.g. "tcp"; empty: what the user has set, or UCX's choice but its shared memory.
  std::string transports;
  std::string net_devices;  // as UCX_NET_DEVICES, e.g. "lo"; ignored where the user has set that
  // Of a receive; a send gets one second more (see ucx_impl.h). Over a stream it begins anew while bytes come: its own, or, up to ten times,
  // those of blocks before it.
  TimeNs deadline_ns = 30 * kSecond;
  TimeNs grace_ns = kSecond;        // between asking UCX to cancel and closing the connection
  std::size_t eager_bytes = 8'192;  // up to this, host memory is sent without asking first
  // Blocks that come over a stream from a process of this host are read where they lie, if they can be.
  bool in_place = true;
  std::size_t max_pending = 65'536;  // transfers not done
  std::size_t max_peers = 4'096;
};

struct UcxCounters {
  std::int64_t sent = 0, sent_bytes = 0;  // completed without error
  std::int64_t received = 0, received_bytes = 0;
  std::int64_t failed = 0, timed_out = 0;  // timed_out is part of failed
  std::int64_t quarantined = 0;            // now: given up, but UCX still holds their memory
  std::int64_t refused_malformed = 0;      // headers that are none
  std::int64_t refused_unknown = 0;        // not expected: no such cookie or number, or too late
  std::int64_t refused_length = 0;         // expected, with other bytes
  std::int64_t endpoints_failed = 0;       // UCX's and streams
  std::int64_t streams = 0;                // attached so far
};

using Done = std::function<void(Status, Via)>;
// It has failed, but UCX still holds its memory: `done` comes when it lets go, which may be never.
using OnHeld = std::function<void(const Error&)>;

// What an owner of streams is told, and has to see to.
struct StreamHooks {
  std::function<void()> on_work;  // progress() has something to deliver; may come from inside any call
  // From progress(): what was under way has ended with kUnavailable, the peer needs another stream. kTimeout: it took nothing for too long.
  std::function<void(const Cookie&, const Error&)> on_lost;
};

class UcxEngine {
 public:
  // Settings that UCX takes from the process only, and permission for peers to read this process's memory in place where Linux asks for
  // that (Yama). What the user has set in the environment stays. create() calls it too; a program with threads calls it
  // first thing in main(), because it changes the environment.
  static void prepare_process();

  // kUnavailable with UCX's reason. CUDA memory needs the context current, now and in all calls.
  static Result<std::unique_ptr<UcxEngine>> create(const UcxOptions& options);
  ~UcxEngine();  // lets go of all memory; outstanding `done`s are destroyed uncalled

  // For the peers' add_peer(). Opaque bytes.
  const std::string& address() const;
  // This build, driver and choice of transports can move memory of this kind.
  bool supports(device::Kind kind) const;
  // Tries it out, at most 64 KiB of this memory there and back by real transfers to this engine itself: for memory that nobody uses
  // yet, when no transfer is under way (kUnavailable). Where it fails (kTimeout, kCorruptData, what UCX says) this kind is
  // not supported from then on, and part of the memory may be UCX's as long as the engine lives. Blocks for a millisecond; 5 s where it fails.
  Status prove(const device::Slab& slab, device::Kind kind);
  // Asks it of one slab, and registers that with the network where there is one: kDeviceError if UCX takes
  // the memory for another kind, since it would then read it from the CPU and crash: then this kind is not supported from then on.
  // Kept until the engine ends.
  Status register_slab(const device::Slab& slab, device::Kind kind);

  // `address` is what the peer's address() says; empty for one that can only be received from. Connects on
  // first use, and again after a failure.
  Status add_peer(const Cookie& cookie, std::string_view address);
  // Fails its transfers with `why`, each once UCX has let go, and closes the connection.
  void remove_peer(const Cookie& cookie, const Error& why);

  // Fails what is being received from it, each once UCX has let go. What it is sent goes on: its receiver may be reading that
  // memory. What is expected from now on is not concerned.
  void abandon_receives(const Cookie& cookie, const Error& why);
  // The pair has another cookie from now on, over the same connection. What was begun under the old one ends when UCX has let
  // go; what still comes under it is refused.
  void rename_peer(const Cookie& from, const Cookie& to);

  // Host memory goes over a plain stream between the two processes, not over UCX: for peers of this host, and on other hosts where UCX
  // would use TCP too. (Debian's UCX 1.13 ends the process when its connections are reset at a bad moment, and where it does not,
  // memory that it has let go of may still be written.) What is sent before there is a stream waits for it, as long as a
  // transfer may last.
  void set_stream_hooks(StreamHooks hooks);
  // False where UCX on both sides has a better network than TCP. Both sides come to the same answer.
  bool prefers_stream(const Cookie& cookie) const;
  void use_stream(const Cookie& cookie);
  // None can be made at present: for the message of what ends meanwhile.
  void no_stream(const Cookie& cookie, const Error& why);
  bool needs_stream(const Cookie& cookie) const;  // use_stream() was said, and there is none now
  // The lanes that are told have settled: those of the first few transfers may be of a connection that is being made.
  bool knows_lanes(const Cookie& cookie) const;
  bool uses_stream(const Cookie& cookie) const;
  // A stream whose other end is this peer's engine, proven by the caller. Takes the place of the one before, whose transfers end
  // with kUnavailable. kNotFound: no such peer, or use_stream() was not said.
  Status attach_stream(const Cookie& cookie, std::unique_ptr<net::ByteStream> stream, bool dialled);

  // Errors here mean that nothing was begun and `done` will not be called: kNotFound (no such peer),
  // kAlreadyExists (the same number is under way in this direction), kLimitExceeded, kUnsupported (kind),
  // kInvalidArgument (size). `done` gets kTimeout, kUnavailable (peer or connection gone), kCorruptData (the
  // peer sent other than `bytes`) or what remove_peer() said. A send that the peer refused counts as sent:
  // the receiver knows better.
  Status transmit(const Cookie& cookie, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                  device::Kind kind, Done done);
  // `held`: at most once, before `done`, two graces after the deadline.
  Status expect(const Cookie& cookie, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                device::Kind kind, Done done, OnHeld held = {});

  // The same in chunks, with a peer whose bytes go over a stream: kUnsupported with another. The source or sink is the transport's until
  // `done`.
  Status transmit(const Cookie& cookie, std::uint64_t transfer, Source& from, std::int64_t bytes, Done done);
  Status expect(const Cookie& cookie, std::uint64_t transfer, Sink& to, std::int64_t bytes, Done done);
  // A source or a sink of this peer's that had nothing to give, or no room, has now.
  void resume(const Cookie& cookie);

  // One of many that stand behind each other, and of which one has just ended: over a stream it may stand there as long again. Nothing where
  // there is none.
  void extend(const Cookie& cookie, std::uint64_t transfer, bool sending);
  // Ends an expectation that the peer says it will not fulfil, with kNotFound. Nothing where bytes are coming already, or
  // where there is none.
  void disarm(const Cookie& cookie, std::uint64_t transfer);

  // Moves what can be moved, then calls `done`s. True if anything happened: call again before arm().
  bool progress();
  // Readable when progress() would do something, once arm() has said true. Owned by the engine.
  int event_fd() const;
  // Prepares event_fd(). False: there is work already, call progress() first.
  bool arm();
  // When progress() must be called although nothing arrived; 1 << 62 when no deadline is pending.
  TimeNs next_deadline() const;
  bool idle() const;  // no transfer is under way

  const UcxCounters& counters() const;

  struct Impl;  // UCX, in ucx_impl.h

 private:
  explicit UcxEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewise::transfer
