// The worker as a pure state machine: it applies the scheduler's log, expands its own share of every op, follows each
// copy of a block from expectation to its last use, and says what to launch, send and receive. No threads, sockets,
// clock or CUDA: the daemon, the embedded cluster and the simulator drive the same object.
//
// Words: an op's share on a device is walked by a cursor in C order; a *task* exists from expansion to completion and at
// most kWindow of them do per device and graph; a *copy* exists while something on this worker needs it; a *use* is
// one op's claim on a copy, counted in reads for a local device, a single entry for any other.
#pragma once
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/time.h>
#include <tilewise/ir/geometry_cache.h>
#include <tilewise/msg/msg.h>

#include <boost/container/small_vector.hpp>
#include <boost/container/static_vector.hpp>
#include <memory>
#include <optional>
#include <vector>

namespace tilewise::worker {

struct DeviceSpec {
  DeviceId id;
  std::uint8_t kind = 0;          // device::Kind
  std::int64_t memory_bytes = 0;  // bound of the arena
  std::int64_t slab_bytes = 256 << 20;
  std::int32_t streams = 1;  // compute streams, at most kMaxStreams
  bool spills = false;       // its blocks may go below and come back: to the disk, if there is one
  bool pins = false;         // and before that to pinned host memory
  // Positions in Options::devices, the nearest first: devices whose memory it reaches faster than the tiers below. It keeps blocks
  // there that do not fit, as long as there is room (guests.cc).
  std::vector<std::uint16_t> neighbours = {};
  std::string gpu = {};  // device::Info::gpu
};
constexpr int kMaxStreams = 4;

// Where a block goes for which a device has no memory: to another device of the worker, or to what lies below all of them.
enum class Tier : std::uint8_t { kDisk, kPinned, kNeighbour };
constexpr int kTiers = 3;

struct Options {
  WorkerId self;
  std::uint32_t term = 1;
  std::vector<DeviceSpec> devices;
  std::int32_t window = 512;           // tasks expanded and unfinished, per device and graph
  std::int32_t queue_steps = 256;      // steps enqueued and unfinished, per stream
  TimeNs queue_ns = 2 * kMillisecond;  // predicted work enqueued per stream (always at least two steps)
  std::int32_t untried_steps = 2;      // enqueued where one is of a user's kernel that has never run here
  TimeNs report_ns = 10 * kMillisecond;
  std::int32_t releases_a_step = 2048;  // copies of released arrays looked at before other work has its turn
  TimeNs stuck_ns = 5 * kSecond;        // blocked this long with nothing moving: report stuck
  bool map_peers = true;                // false: never read a peer's memory in place, always copy
  bool adopts = false;            // clients are of this process: foreign slabs that they offer are honoured
  bool task_tables = true;        // false: what tasks read is worked out each time; nothing else differs
  std::int64_t spill_bytes = 0;   // bound of what all devices together may have on disk; 0: no disk
  std::int64_t pinned_bytes = 0;  // likewise in pinned host memory
  std::string host;               // as in its Join; empty: shared with nobody
  std::size_t max_held_ranges = 1'000'000;  // of one answer to a loss (msg::Held): a frame's worth
  // Larger blocks travel as trees between hosts (docs/design/trees.md); those of so many bytes in parts, so that a part is passed on while
  // the next one comes; and those of so many from each host to one other only.
  std::int64_t tree_bytes = 64 << 10, parts_bytes = 4 << 20, chain_bytes = 8 << 20;
  // Bytes granted to other processes and not here yet, of all devices: together, and to one of them. One block always may.
  std::int64_t in_flight_bytes = std::int64_t{1} << 30;
  std::int64_t in_flight_peer_bytes = 256 << 20;
};

// Slabs with these numbers are memory of this process that no device has allocated: a client's, lent to an embedded cluster. They are
// named with whichever device the block is offered by, and mean the same with each. Of some the lender allows that a block stays
// there as its reader's own (adopt.cc).
constexpr std::uint32_t kForeignSlab = 1u << 31, kAdoptableSlab = 1u << 30;
constexpr std::uint32_t kLastForeign = UINT32_MAX - 16;  // behind it are msg::kNoSlab and its like
constexpr bool is_foreign(std::uint32_t slab) { return slab >= kForeignSlab && slab <= kLastForeign; }

// Where bytes are: a slab of a device of this worker or, mapped or opened, of another.
struct MemoryRef {
  DeviceId device;
  std::uint32_t slab = 0;
  std::int64_t offset = 0;
  friend bool operator==(const MemoryRef&, const MemoryRef&) = default;
};

// What the shell may read of an op, from any thread, while a launch of it is unfinished. Never changes: the ops of a plan
// and of its replays share it, so arrays in `op` and `placement` have the names of the first time.
struct OpEntry {
  ir::Op op;
  ir::Placement placement;
  std::vector<ir::SourceArray> sources;  // what its operands read
  ir::SharedGeometry geometry;           // with ops of the same shape
  std::uint32_t family = 0;              // number of ir::family_of(op), from 0 (Core::families)
  std::int64_t model_ns = 0;             // ir::model_step_ns of its first point
};

// One op among those that share an entry, for whoever runs its steps.
struct OpRun {
  OpId id;
  GraphId graph;
  // What its steps on a device took: added to atomically, before they count as complete, and read when all of the device's are.
  std::int64_t* busy_ns = nullptr;
  bool again = false;  // it makes what was lost: nobody else can
};

// ---- events --------------------------------------------------------------------------------------------------------

struct PeerBatchReceived {
  WorkerId from;
  msg::PeerBatch batch;
};
struct PeerReady {
  WorkerId peer;
  bool mapped = false;
};  // its arenas can be read in place
struct StreamCompleted {
  std::uint16_t device = 0;
  std::uint8_t stream = 0;
  std::uint64_t sequence = 0;
  std::int64_t took_ns = 0;  // the stream's steps since the last such event, where they are timed
};
// Comes before the StreamCompleted of every step that may have read the failed one's result, on whatever stream.
struct StepFailed {
  std::uint16_t device = 0;
  std::uint8_t stream = 0;
  std::uint64_t sequence = 0;
  Error why;
};
struct TransferDone {
  std::uint64_t transfer = 0;
  Error failed{Errc::kOk, {}};
  msg::Lane lane = msg::Lane::kTcp;
  bool held =
      false;  // it has failed, but the transport still holds its memory: another one of this number comes when it lets go
};
// The first part of a Receive in parts is here. At most once, before its TransferDone.
struct PartArrived {
  std::uint64_t transfer = 0;
};
// A Transmit with `tell` is over: the transport has let go of the memory that it read. Of one that follows a Receive that fails it comes
// before that one's TransferDone.
struct Sent {
  WorkerId to;
  std::uint64_t transfer = 0;
};
// A Transmit failed: what it was to send, or the rest of it, will not come. Before the Sent of one with `tell`.
struct NotSent {
  msg::BlockRef block;
  DeviceId from, to;  // as the Transmit's `sender` and `reader`
  std::uint64_t transfer = 0;
};
// What the spill file takes on its disk has changed.
struct DiskTaken {
  std::int64_t bytes = 0;
};
struct SlabAdded {
  std::uint16_t device = 0;
  std::int64_t bytes = 0;
  bool ok = true;
  bool lent = false;  // of a GPU: peers of this host have been told how to open it
  Error why = {};     // where it is not ok
};
// A GPU of ours reaches a slab of a peer's. Comes before any message that names the slab.
struct SlabReached {
  WorkerId peer;
  DeviceId from;
  std::uint32_t slab = 0;
  std::uint16_t device = 0;
};
// A TierIo or a Relocate is over: its memory and the other place are not touched any more. kDiskFull for a write that found no room.
struct IoDone {
  std::uint64_t io = 0;
  Error failed{Errc::kOk, {}};
};
using Event =
    std::variant<msg::Log, PeerBatchReceived, PeerReady, StreamCompleted, StepFailed, TransferDone, SlabAdded,
                 SlabReached, IoDone, DiskTaken, PartArrived, Sent, NotSent, msg::LinkProbe>;

// ---- actions -------------------------------------------------------------------------------------------------------

// One step of one task: exactly one record() on that stream, in this order. Its number is `sequence`.
struct Launch {
  std::uint16_t device = 0;  // position in Options::devices
  std::uint8_t stream = 0;
  std::uint64_t sequence = 0;
  const OpEntry* op = nullptr;
  OpRun run;
  std::int64_t point = 0;  // C-order number in the op's space
  std::int64_t step = 0, steps = 1;
  bool awaited = false;  // the task's last step, and another device is known to read what it makes
  boost::container::small_vector<MemoryRef, 4> inputs;  // in the order of Geometry::reads
  boost::container::static_vector<MemoryRef, limits::kMaxOutputs> outputs;
  boost::container::static_vector<std::pair<std::uint8_t, std::uint64_t>, kMaxStreams>
      waits;  // (stream, sequence)
};
struct Transmit {  // over the copying lane; repeat-safe
  WorkerId to;
  std::uint64_t transfer = 0;
  MemoryRef from;
  std::int64_t bytes = 0;
  std::int64_t below = -1;  // not negative: read from here in `tier`, not from memory
  Tier tier = Tier::kDisk;
  bool tell = false;  // ends in Sent, exactly once, failed or not
  // For NotSent, in which it ends where it fails.
  msg::BlockRef block;
  DeviceId sender, reader;
  bool in_parts = false;      // as the Receive there
  std::uint64_t follows = 0;  // given: a Receive of ours in parts, of which each is sent when it is here
};
struct Receive {  // arm before the Grant is sent; ends in TransferDone
  WorkerId from;
  std::uint64_t transfer = 0;
  std::uint16_t device = 0;
  MemoryRef to;
  std::int64_t bytes = 0;
  bool in_parts = false;  // the first that is here is told of by PartArrived
};
// To a GPU's memory from that of a peer's, which it reaches. Ends in TransferDone, also where the peer dies meanwhile.
struct Pull {
  WorkerId peer;
  std::uint64_t transfer = 0;
  std::uint16_t device = 0;
  MemoryRef from, to;
  std::int64_t bytes = 0;
};
struct
    Disarm {  // its sender has no such bytes: the receive is to end now, unless they are coming all the same
  WorkerId from;
  std::uint64_t transfer = 0;
};
struct Store {  // write these inlined bytes now (host devices), then TransferDone
  std::uint64_t transfer = 0;
  std::uint16_t device = 0;
  MemoryRef to;
  std::string data;
};
// Moves a block between a device's memory and a tier, or from pinned memory to the disk. Ends in IoDone. One whose block
// was dropped meanwhile ends too. A guest that leaves for a tier below is moved from its host's memory: `device` is that.
struct TierIo {
  std::uint64_t io = 0;
  bool write = false;
  std::uint16_t device = 0;
  MemoryRef memory;
  Tier tier = Tier::kDisk;
  std::int64_t at = 0;  // there
  std::int64_t bytes = 0;
  std::int64_t from = -1;  // given: written from here in pinned memory, and `memory` is nowhere
  MemoryRef lodging;       // kNeighbour: there, and `at` is nowhere
};
// Nothing lies at this place on the disk any more. Comes before the TierIo that writes something else there.
struct Vacated {
  std::int64_t at = 0, bytes = 0;
};
// Within a device's memory, to make room in one piece. Ends in IoDone, also where the block goes meanwhile.
struct Relocate {
  std::uint64_t io = 0;
  std::uint16_t device = 0;
  MemoryRef from, to;
  std::int64_t bytes = 0;
};
struct AddSlab {
  std::uint16_t device = 0;
  std::int64_t bytes = 0;
};
// Measuring a link (docs/design/link-probes.md): memory of the device's kind, outside its arena, at most one of each at a time.
struct ProbeReceive {  // arm before the Probe is sent; ends in TransferDone
  WorkerId from;
  std::uint64_t transfer = 0;
  std::uint16_t device = 0;
  std::int64_t bytes = 0;  // at most msg::kMaxProbeBytes
  DeviceId pulled = {};    // given: copied from its msg::kProbeSlab, as a Pull is
};
struct ProbeSend {
  WorkerId to;
  std::uint64_t transfer = 0;
  std::uint16_t device = 0;
  std::int64_t bytes = 0;
};

// Independent lists; inside each, order matters.
struct Actions {
  std::vector<Launch> launches;
  std::vector<std::pair<WorkerId, msg::PeerBatch>> batches;  // one per peer
  std::vector<msg::Message> to_scheduler;
  std::vector<Transmit> transmits;
  std::vector<Receive> receives;
  std::vector<Pull> pulls;
  std::vector<Disarm> disarms;
  std::vector<Store> stores;
  std::vector<Vacated> vacated;
  std::vector<TierIo> ios;
  std::vector<Relocate> relocations;
  std::vector<AddSlab> slabs;
  std::vector<ProbeReceive> probe_receives;
  std::vector<ProbeSend> probe_sends;
  std::vector<msg::Done>
      given_back;  // for clients' offers of foreign slabs, theirs or ours by now: nothing reads them
  std::vector<msg::PeerInfo> joined;  // connect to these
  std::vector<WorkerId> lost;         // and forget these
  bool leave = false;                 // drained: this process is to end, well
  std::optional<Error>
      broken;  // nothing more can come of it: this process is to end, and another one to begin afresh
  std::vector<msg::TracedStep> notes;  // transfers and waits that have ended, to be remembered for people
  void clear();
};

struct Counters {  // for tests, status and the simulator
  std::int64_t launches = 0, tasks_done = 0, tasks_failed = 0, copies_live = 0, tasks_live = 0, ops_known = 0,
               parked = 0, stale = 0, donated = 0, kept = 0, evicted = 0, eager = 0, spilled = 0,
               returned = 0, dropped = 0, pulled = 0, sent_from_below = 0, moved = 0, impatient = 0;
  // Requests for memory put off for a session that has less; blocks that left for one (byte_shares.h).
  std::int64_t put_off = 0, gave_way = 0;
  // Of blocks that are passed on: sent for their owners; offers to do so that were declined, or could not be kept.
  std::int64_t relayed = 0, declined = 0, missing = 0;
  std::int64_t held_up = 0;                // blocks that had to wait until others were here (window.h)
  std::int64_t in_flight_high = 0;         // the most bytes that were on their way
  std::int64_t not_sent = 0;               // transmits that failed, of which their receivers were told
  std::int64_t detours = 0;                // blocks asked for elsewhere, since the owner's way had failed
  std::int64_t demoted = 0;                // blocks that went from pinned memory to disk
  std::int64_t lodged = 0, dismissed = 0;  // to neighbours' memory; from there to a tier below
  std::int64_t relocated = 0;              // blocks that moved within their device's memory
  std::int64_t adopted = 0;                // blocks that stayed in a client's memory
  std::int64_t made_in_part = 0;           // tasks made again of whose results some were here
  std::int64_t taken_back = 0;   // tasks that were expanded and are not any more: others may make them
  std::int64_t given_away = 0;   // points that others make
  std::int64_t relays = 0;       // copies that others may get from here, now
  std::int64_t below_bytes = 0;  // in use, of all tiers below
  std::int64_t probing = 0;      // links being measured from here, now
  std::int64_t in_flight_bytes = 0, wait_their_turn = 0;  // on their way, and blocks that wait for that, now
  std::int64_t queues_looked_at = 0;                      // to see whether they have something to do
};

class Core {
 public:
  explicit Core(Options options);
  ~Core();

  // Applies events in order, then advances everything that can be. Clears and fills `actions`.
  void step(std::vector<Event>& events, TimeNs now, Actions& actions);
  TimeNs next_deadline() const;

  Counters counters() const;
  bool has_tasks() const;  // expanded and unfinished
  // It is about to leave: it runs nothing and takes nothing in, so nothing of others is being read.
  bool is_still() const;
  // Names of the families of ops seen so far, by number.
  const std::vector<std::string>& families() const;
  std::vector<msg::DeviceStats> device_stats() const;
  // Waits that have not ended, until now.
  std::vector<msg::TracedStep> waits(TimeNs until) const;
  // What there is here of these blocks; `worker` and `of` are left to others.
  msg::BlocksReply blocks(const msg::BlocksRequest& request) const;
  // Inlining small blocks into offers needs their bytes: the shell looks them up here when it sends a batch. True when
  // the block is at most limits::kMaxInlineBytes and on a host device.
  static bool inlinable(const msg::Offer& offer) {
    return offer.bytes <= static_cast<std::int64_t>(limits::kMaxInlineBytes);
  }

  void check_invariants() const;
  std::uint64_t digest() const;
  // Every live task and copy, one line each, for people who ask why nothing moves.
  std::string describe() const;
  // For the simulator's oracle: a block that this worker holds sealed, owned, and where.
  bool holds(msg::BlockRef block) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewise::worker
