// A plain struct per message: what processes say to each other, without how it is encoded. Field order and meaning are
// mirrored in proto/codec's schema.
//
// Every joined process, worker or client, gets a WorkerId (its incarnation, never reused) and one DeviceId per device;
// a client's data endpoint is one device that runs nothing.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/ir/constants.h>
#include <tilewise/ir/op.h>
#include <tilewise/ir/placement.h>
#include <tilewise/msg/account.h>
#include <tilewise/msg/announce.h>
#include <tilewise/msg/blocks.h>
#include <tilewise/msg/joining.h>
#include <tilewise/msg/keep.h>
#include <tilewise/msg/lane.h>
#include <tilewise/msg/log.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tilewise::msg {

constexpr std::uint16_t kProtocolVersion = 1;

// ---- worker -> scheduler -------------------------------------------------------------------------------------------

struct OpProgress {  // cumulative, so duplicates and reordering do no harm
  OpId op;
  DeviceId device;
  std::int64_t completed = 0;  // points finished, failed ones included
  std::int64_t failed = 0;
  friend bool operator==(const OpProgress&, const OpProgress&) = default;
};
struct OpMeasured {  // when a device's share of an op is complete
  OpId op;
  DeviceId device;
  std::int64_t busy_ns = 0;      // of its steps
  std::int64_t bytes_moved = 0;  // of its inputs, copied there from other devices
  friend bool operator==(const OpMeasured&, const OpMeasured&) = default;
};
struct DeviceStats {  // cumulative or current
  DeviceId device;
  std::int64_t bytes_used = 0, bytes_peak = 0, bytes_resident = 0;
  std::int64_t steps_run = 0;
  std::int64_t busy_ns = 0;
  std::int64_t spilled_bytes = 0;                         // of blocks that are on disk only, now
  std::int64_t disk_written = 0, disk_read = 0;           // bytes so far
  std::int64_t blocks_written = 0, blocks_read_back = 0;  // so far
  std::int64_t bytes_high = 0;                            // most bytes at once since the last report
  std::int64_t pinned_bytes = 0;                     // of blocks that are in pinned host memory only, now
  std::int64_t pinned_written = 0, pinned_read = 0;  // bytes so far
  std::int64_t lodged_bytes = 0;                     // of blocks that are in neighbours' memory only, now
  std::int64_t lodged_written = 0, lodged_read = 0;  // bytes so far
  std::int64_t guest_bytes = 0;                      // of bytes_used: neighbours' blocks
  std::int64_t relocated = 0;   // bytes so far, of blocks that moved within memory to make room in one piece
  std::int64_t disk_taken = 0;  // an equal share of what its worker's spill file takes on the disk, now
  friend bool operator==(const DeviceStats&, const DeviceStats&) = default;
};
struct LaneStats {
  Lane lane = Lane::kSameDevice;
  std::int64_t transfers = 0, bytes = 0;
  std::int64_t failed = 0;  // and were tried again, or given up
  friend bool operator==(const LaneStats&, const LaneStats&) = default;
};
// Cumulative: what one device took in from another, by lane; what is read in place included.
struct PairStats {
  DeviceId from, to;
  Lane lane = Lane::kSameDevice;
  std::int64_t transfers = 0, bytes = 0;
  std::int64_t busy_ns = 0;  // summed over transfers, from grant to arrival; 0 for what is read in place
  friend bool operator==(const PairStats&, const PairStats&) = default;
};
// Sizes of blocks that say something about a link: the small ones its latency, the large ones its throughput.
constexpr std::uint8_t kSizeClasses = 3;
constexpr std::uint8_t size_class_of(std::int64_t bytes) {
  return bytes < (64 << 10) ? 0 : bytes < (4 << 20) ? 1 : 2;
}
struct LinkStats {  // cumulative: blocks of one class that were copied from one peer to the reporter
  WorkerId from;
  std::uint8_t size_class = 0;
  std::int64_t transfers = 0, bytes = 0;
  std::int64_t busy_ns = 0;  // with at least one of them under way, from grant to arrival
  friend bool operator==(const LinkStats&, const LinkStats&) = default;
};
// Measuring a link while nobody needs it (docs/design/link-probes.md): asked of the worker that takes bytes in, and answered
// by it, once.
struct LinkProbe {
  std::uint64_t nonce = 0;  // rising
  DeviceId from, to;        // `to` is the worker's own
  friend bool operator==(const LinkProbe&, const LinkProbe&) = default;
};
enum class ProbeEnd : std::uint8_t {
  kMeasured = 0,
  kGivenUp,  // there was work, or it came: so far and no further
  kFailed    // `why`
};
constexpr int kProbeEndCount = 3;
struct ProbedSize {
  std::int64_t bytes = 0;
  std::uint32_t transfers = 0;  // that count: the first of a size does not
  std::int64_t took_ns = 0;     // their median, from asking for the bytes to their arrival
  Lane lane = Lane::kTcp;
  friend bool operator==(const ProbedSize&, const ProbedSize&) = default;
};
struct LinkProbed {
  std::uint64_t nonce = 0;
  ProbeEnd end = ProbeEnd::kMeasured;
  bool mapped = false;            // blocks from there are read in place, unless they are passed on to others
  std::vector<ProbedSize> sizes;  // rising
  std::string why;
  friend bool operator==(const LinkProbed&, const LinkProbed&) = default;
};
struct FamilyStats {  // cumulative: what steps of one family of ops (ir/cost.h) took, beside the plain model
  DeviceId device;
  std::string family;
  std::int64_t steps = 0, busy_ns = 0, model_ns = 0;
  friend bool operator==(const FamilyStats&, const FamilyStats&) = default;
};
struct Progress {
  std::uint64_t log_applied = 0;  // highest contiguous log entry applied
  std::vector<OpProgress> ops;
  std::vector<DeviceStats> devices;
  std::vector<LaneStats> lanes;
  std::vector<FamilyStats> families;  // those that have moved
  std::vector<LinkStats> links;       // likewise
  std::vector<PairStats> pairs;       // likewise
  std::vector<OpMeasured> measured;
  friend bool operator==(const Progress&, const Progress&) = default;
};
struct TaskFailed {
  OpId op;
  DeviceId device;
  std::int64_t point = 0;  // C-order number in the op's space
  Outcome why;
  friend bool operator==(const TaskFailed&, const TaskFailed&) = default;
};
struct Stuck {  // nothing can be spilled, nothing is in flight, and the lowest task does not fit
  GraphId graph;
  OpId op;
  DeviceId device;
  std::int64_t bytes_needed = 0, bytes_available = 0;
  std::int64_t disk_limit = 0, disk_used = 0;      // of the worker
  bool disk_full = false;                          // what could make room found none there
  std::int64_t pinned_limit = 0, pinned_used = 0;  // of the worker, where the device may spill there
  Outcome refused;  // why the system gives the device no more memory, if it does not
  friend bool operator==(const Stuck&, const Stuck&) = default;
};

// From a supervisor, as a tool: how a worker ended, and what its devices were executing at that moment.
struct LastWords {
  WorkerId worker;
  std::uint64_t black_box = 0;  // as the worker joined
  std::string how;              // "killed by signal 6 (Aborted)"
  struct Running {
    OpId op;
    DeviceId device;
    std::int64_t point = 0;  // C-order number in the op's space
    friend bool operator==(const Running&, const Running&) = default;
  };
  std::vector<Running> running;
  friend bool operator==(const LastWords&, const LastWords&) = default;
};

// What a worker has of the ops that a PeerLost names, at the moment it applies it; what a client has of what it fetches.
struct Held {
  struct Share {  // points of an op that a device of the worker owns
    OpId op;
    DeviceId device;
    std::int64_t next = 0;     // those of this ordinal and above are not begun
    std::vector<Range> begun;  // of those below: not finished yet
    friend bool operator==(const Share&, const Share&) = default;
  };
  struct Blocks {
    ArrayId array;
    DeviceId device;
    std::vector<Range> sealed;  // in the device's memory; pinned
    std::vector<Range>
        wanted;  // expected from a lost or leaving worker; or here, taken again after the owner let it go
    friend bool operator==(const Blocks&, const Blocks&) = default;
  };
  struct Fetch {  // an array that a client's request waits for, and of which it has some blocks
    std::uint64_t request = 0;
    ArrayId array;
    std::vector<Range> missing;  // rising
    friend bool operator==(const Fetch&, const Fetch&) = default;
  };
  std::uint64_t version = 0;
  std::vector<Share> shares;
  std::vector<Blocks> blocks;
  bool cut = false;  // too many ranges to tell: nothing can be concluded
  std::vector<Fetch> fetches =
      {};  // of a client, that has no more to say; what is not in it may be missing as a whole
  friend bool operator==(const Held&, const Held&) = default;
};

// How far the worker is with what Drain `round` asks of it, about the worker `peer` that is to leave.
struct Drained {
  WorkerId peer;
  std::uint64_t round = 0;
  std::int64_t left = 0;  // blocks that are still to come
  friend bool operator==(const Drained&, const Drained&) = default;
};

// ---- client <-> scheduler ------------------------------------------------------------------------------------------

// Arrays are named by the session's own numbers; the scheduler answers with ArrayIds.
struct Submit {
  std::uint64_t request = 0;  // rising per session; a repeat is answered again, not executed again
  std::int32_t priority = 0;
  std::vector<ir::Op> ops;  // user-level kinds; producers before users; operands may name earlier submits'
  std::vector<std::uint64_t> holds;       // outputs the session keeps until it releases them
  std::uint32_t weight = kDefaultWeight;  // of the session: its share of contended devices, 1 to kMaxWeight
  std::vector<Keep> keeps;                // of `holds`, or of arrays held before
  // Programs that the session sent before need not be sent again (program.h).
  std::uint32_t keep_as =
      0;  // 1 to kKeptPrograms: `ops` take that place, whatever becomes of them here; 0: no
  std::uint64_t program = 0;  // not 0: the ops are those that this request kept, called anew; `ops` is empty
  std::uint64_t first_output = 0;  // with `program`: number of its first output; the others follow in a row
  std::vector<std::uint64_t> inputs;  // with `program`: what it reads and does not make, by first mention
  ir::Constants constants;            // with `program`: of its tapes, by number (ir/constants.h)
  bool account =
      false;  // what is predicted of it now is wanted later, beside what was measured (Explain::account)
  friend bool operator==(const Submit&, const Submit&) = default;
};
struct SubmitReply {
  std::uint64_t request = 0;
  Outcome outcome;  // refused: nothing of it was executed
  GraphId graph;
  // Operands of kFetch and outputs of kProvide; of an Announce: its array, and the id under which its pieces are asked for.
  std::vector<std::pair<std::uint64_t, ArrayId>> arrays;
  ir::Grid grid;                        // of an Announce: how the pieces of all processes cut the array
  std::vector<NeedAccount> needs = {};  // where it was refused for want of memory
  OpId last_op = {};  // offers that name a later one are for requests that are not answered yet
  friend bool operator==(const SubmitReply&, const SubmitReply&) = default;
};
struct GraphProgress {
  std::uint64_t request = 0;
  std::int64_t done = 0, total = 0;  // tasks
  friend bool operator==(const GraphProgress&, const GraphProgress&) = default;
};
struct GraphDone {
  std::uint64_t request = 0;
  Outcome outcome;  // root cause of the first failure
  std::int64_t tasks = 0;
  std::vector<NeedAccount> needs = {};  // where it ended for want of memory
  friend bool operator==(const GraphDone&, const GraphDone&) = default;
};

// ---- explaining --------------------------------------------------------------------------------------------------------

// What would be done about these ops, and where arrays are or would be. Changes nothing.
struct Explain {
  Submit submit;                      // its request numbers the answer only
  std::vector<std::uint64_t> arrays;  // by the session's numbers: of earlier submits, or made here
  GraphId graph;                      // given: its unfinished ops, as if they began now, instead of `submit`
  bool account =
      false;  // with `graph`, which may have ended: all of it, as predicted when it was submitted, and measured
  friend bool operator==(const Explain&, const Explain&) = default;
};
struct Explanation {
  std::uint64_t request = 0;
  Outcome outcome;         // why it would be refused; then nothing else is told
  bool simulated = false;  // too many steps otherwise: seconds, peaks and links are missing
  std::int64_t tasks = 0, steps = 0;
  double flops = 0;
  double seconds = 0;  // from the first task to the end
  double bound_s = 0;  // no schedule is shorter: all work spread evenly, or the longest chain of steps
  std::vector<PassAccount> passes;
  std::uint32_t op_count = 0;  // planned; of very many only the last are in `ops`
  std::vector<OpAccount> ops;
  std::vector<DeviceAccount> devices;
  std::vector<LinkAccount> links;
  std::vector<CriticalAccount> critical;
  std::vector<ArrayAccount> arrays;
  bool fits = true;  // as simulated: memory, with what lies below it, has room for all of it at any time
  std::vector<NeedAccount> needs = {};  // what does not fit, of what is refused or simulated
  std::string unpredicted =
      {};                  // of an account: why nothing is predicted, where that is not for its many steps
  Measured measured = {};  // of an account
  friend bool operator==(const Explanation&, const Explanation&) = default;
};

// ---- tracing -----------------------------------------------------------------------------------------------------------

// What workers remember of what their devices did last. From a client or a tool to the scheduler, which asks every worker
// and passes on each answer. A range is told in ages, since hosts' clocks differ.
struct TraceRequest {
  std::uint64_t nonce = 0;
  GraphId graph;                  // given: of this one only
  std::uint32_t max_steps = 0;    // the newest so many of a worker; filled in by the scheduler
  std::int64_t from_age_ns = 0;   // given: what ended at most so long ago ...
  std::int64_t until_age_ns = 0;  // ... and began at least so long ago
  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};
enum class TraceKind : std::uint8_t {
  kStep = 0,  // of a kernel
  kTransfer,  // of a block, by the device that took it in; of no length where it is read in place
  kNoWork,    // the device had nothing to do
  kNoInputs,  // its lowest task waited for blocks
  kNoMemory,  // its lowest task waited for memory
  kSpill,     // a block left the device's memory for another tier, or for a neighbour's (`peer`)
  kUnspill    // and came back
};
constexpr int kTraceKindCount = 7;
std::string_view name_of(TraceKind kind);

// One record. Of a transfer, a spill and back: `op` and `point` name the block by who makes it. Of a wait: the task that
// waits, if there is one.
struct TracedStep {
  OpId op;
  GraphId graph;
  std::int64_t point = 0;
  std::uint32_t family = 0;  // place in TraceReply::families
  DeviceId device;
  std::uint8_t stream = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // monotonic clock of that host: not to be compared with another's
  TraceKind kind = TraceKind::kStep;
  Lane lane = Lane::kSameDevice;  // of transfers, as are the next three
  DeviceId peer;                  // from whom
  std::int64_t bytes = 0;
  OpId user;  // who wanted it
  friend bool operator==(const TracedStep&, const TracedStep&) = default;
};
struct TraceReply {  // one a worker
  std::uint64_t nonce = 0;
  WorkerId worker;
  std::uint32_t of = 0;    // replies to expect; filled in by the scheduler. 0: there is no worker
  std::uint64_t lost = 0;  // older records that were overwritten, of whatever range and graph
  std::vector<std::string> families;
  std::vector<TracedStep> steps;  // oldest first
  Outcome refused;                // by the scheduler; nothing else is told
  std::int64_t now_ns = 0;        // of that host, when it answered
  std::int64_t since_ns = 0;      // of what ended from here on nothing was overwritten; 0: nothing at all
  std::uint64_t cut = 0;  // records of the range that were left out, the oldest, because there are too many
  friend bool operator==(const TraceReply&, const TraceReply&) = default;
};

// Shifts the records of each host (by worker) so that the moments at which its workers answered fall together with the
// other hosts', at zero: as well as can be without comparing clocks, which is as well as messages travel evenly.
void align_clocks(std::vector<TraceReply>& replies, const std::map<WorkerId, std::string>& hosts);

// Where blocks of an array are, as each worker knows it. Asked and answered like a trace.
struct BlocksRequest {
  std::uint64_t nonce = 0;
  ArrayId array;
  std::int64_t first = 0, count = 0;  // at most kMaxBlocksAsked
  friend bool operator==(const BlocksRequest&, const BlocksRequest&) = default;
};
constexpr std::int64_t kMaxBlocksAsked = 4096;

enum class BlockState : std::uint8_t {
  kExpected = 0,  // its task has not run, or its owner has not offered it
  kWaiting,       // for memory here
  kReceiving,     // on its way
  kHere,          // complete
  kBorrowed,      // read in place, at its owner
  kFailed,
  kSpilled  // in another tier
};
constexpr int kBlockStateCount = 7;
std::string_view name_of(BlockState state);

struct BlockCopy {
  std::int64_t block = 0;
  DeviceId device;
  BlockState state = BlockState::kExpected;
  bool owned = false;  // made there, or its home; else a copy for readers
  std::int64_t bytes = 0;
  DeviceId from;  // of copies
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};
struct BlocksReply {  // one a worker
  std::uint64_t nonce = 0;
  WorkerId worker;
  std::uint32_t of = 0;  // replies to expect; filled in by the scheduler. 0: there is no worker
  Outcome refused;
  std::vector<BlockCopy> copies;  // by device, then block
  friend bool operator==(const BlocksReply&, const BlocksReply&) = default;
};

// ---- status and control --------------------------------------------------------------------------------------------

struct StatusRequest {
  friend bool operator==(const StatusRequest&, const StatusRequest&) = default;
};
struct GraphStatus {
  GraphId graph;
  SessionId session;
  std::int64_t done = 0, total = 0;
  std::int32_t ops = 0;
  bool failed = false;
  friend bool operator==(const GraphStatus&, const GraphStatus&) = default;
};
struct StatusReply {
  std::uint32_t term = 0;
  std::int64_t uptime_ns = 0;
  std::vector<PeerInfo> peers;
  std::vector<DeviceStats> devices;
  std::vector<std::pair<WorkerId, LaneStats>> lanes;
  std::vector<GraphStatus> graphs;  // running ones
  std::int64_t graphs_done = 0, graphs_failed = 0, tasks_done = 0, arrays_live = 0;
  std::vector<FamilyStats> families;
  friend bool operator==(const StatusReply&, const StatusReply&) = default;
};
// From a client or a tool: that a worker leave, or stay after all, or only how far that is.
enum class DrainWish : std::uint8_t { kAsk = 0, kLeave, kStay };
constexpr int kDrainWishCount = 3;
struct DrainRequest {
  std::string worker;  // "w3", "3" or its name
  DrainWish wish = DrainWish::kAsk;
  friend bool operator==(const DrainRequest&, const DrainRequest&) = default;
};
enum class DrainState : std::uint8_t {
  kStays = 0,  // nobody wants it to leave
  kWaiting,    // it cannot leave for now (`why`), and works on what it has
  kStopping,   // what it has begun comes to its end
  kMoving,     // what others need of its blocks is copied to them
  kGone,       // it has left as asked
  kLost        // it died before
};
constexpr int kDrainStateCount = 6;
std::string_view name_of(DrainState state);
struct DrainReply {
  Outcome outcome;  // kNotFound: there is no such worker
  WorkerId worker;
  std::string name;
  DrainState state = DrainState::kStays;
  std::string why;               // of kWaiting
  std::int64_t tasks_left = 0;   // given to it and not finished
  std::int64_t blocks_left = 0;  // of kMoving: still to be copied
  std::int64_t bytes = 0;        // of blocks that it holds
  friend bool operator==(const DrainReply&, const DrainReply&) = default;
};
struct Shutdown {
  friend bool operator==(const Shutdown&, const Shutdown&) = default;
};  // ends scheduler and workers
struct Ping {
  std::uint64_t nonce = 0;
  friend bool operator==(const Ping&, const Ping&) = default;
};
struct Pong {
  std::uint64_t nonce = 0;
  friend bool operator==(const Pong&, const Pong&) = default;
};
struct Refusal {  // a message that could not be taken; the link stays unless it says otherwise
  Outcome why;
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

// The wire tag of a message is its index here: append only.
// Copied and destroyed in one place (msg.cc), as OpAttrs.
struct Message
    : std::variant<Join, Welcome, Log, Progress, TaskFailed, Stuck, Submit, SubmitReply, GraphProgress,
                   GraphDone, ReleaseArrays, CancelRequest, StatusRequest, StatusReply, Shutdown, Ping, Pong,
                   Refusal, PeerHello, ArenaMap, PeerBatch, Explain, Explanation, TraceRequest, TraceReply,
                   Held, Resume, Resumed, Ack, BlocksRequest, BlocksReply, Drained, DrainRequest, DrainReply,
                   LastWords, Leave, Announce, LinkProbe, LinkProbed> {
  using variant::variant;
  Message();
  Message(const Message&);
  Message(Message&&) noexcept;
  Message& operator=(const Message&);
  Message& operator=(Message&&) noexcept;
  ~Message();
};
std::string_view name_of(const Message& message);

}  // namespace tilewise::msg
