// What people may see of a scheduler: plain values, made when somebody asks. Making them changes nothing; what it costs is
// bounded by the limits below, whatever the size of the cluster and its graphs. Times are since the scheduler's start.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tilewise::scheduler {

struct ViewLimits {
  static constexpr std::size_t kGraphs = 256;  // running ones, the latest; ended ones are bounded by History
  static constexpr std::size_t kScannedOps = 16'384;  // of running graphs, for the counts by kind
  static constexpr std::size_t kOpGroups = 12;        // a graph
  static constexpr std::size_t kOps = 16'384;         // of one GraphView
  static constexpr std::size_t kSessions = 1024;
  static constexpr std::size_t kArrays = 2'000;
  static constexpr std::size_t kScannedArrays = 65'536;
  static constexpr std::size_t kShares = 64;  // devices of one op or array
  static constexpr std::size_t kPairs = 4'096;
  static constexpr std::size_t kHolders = 4;  // named of one array
};

constexpr TimeNs kNotYet = -1;

// Ops of one kind and label, in one graph.
struct OpGroup {
  ir::OpKind kind = ir::OpKind::kMap;
  std::string label;
  std::uint32_t ops = 0, ops_done = 0;
  std::int64_t tasks = 0, done = 0, failed = 0;
};

struct GraphSummary {
  GraphId id;
  SessionId session;
  std::string client;
  std::uint64_t request = 0;
  std::int32_t priority = 0;
  bool running = true, cancelled = false;
  std::int64_t tasks = 0, done = 0, failed = 0;
  std::uint32_t ops = 0, ops_open = 0;
  TimeNs submitted = 0, ended = kNotYet;
  msg::Outcome cause;                 // of the first failure, or of the cancellation
  std::vector<std::string> affected;  // planned ops that did not complete because of it, the first few
  std::uint32_t affected_count = 0;
  std::vector<OpGroup> groups;  // by number of tasks, largest first
};

struct SessionView {
  SessionId id;
  WorkerId peer;
  std::string client;
  std::int64_t held_arrays = 0, held_bytes = 0;
  bool counted = true;  // false: too many arrays to add up their bytes
  std::uint32_t running = 0;
};

struct LostPeer {
  WorkerId id;
  msg::Role role = msg::Role::kWorker;
  std::string name;
  TimeNs at = 0;
  bool drained = false;    // it left as an operator wished
  bool stopped = false;    // it said that it goes, and was not waited for
  std::int64_t bytes = 0;  // that its devices had by its last report
};

struct Overview {
  TimeNs now = 0;
  msg::StatusReply status;  // without its `graphs`
  std::int64_t running = 0;
  std::vector<GraphSummary> graphs;  // running ones by id, then those that ended, latest first
  std::vector<SessionView> sessions;
  std::vector<msg::Stuck> stuck;
  std::vector<LostPeer> lost;             // latest first
  std::vector<msg::DrainReply> draining;  // workers that are to leave
  std::int64_t recovered = 0;             // blocks made again after losses
  std::int64_t anchors = 0;               // arrays from which others are made again, no further
  std::int64_t lineage = 0;               // ops that are kept to make others' results again
  std::int64_t lineage_limit = 0;         // beyond which the oldest go
  std::int64_t checkpoints = 0;           // of the anchors, those that are on disk
  std::int64_t checkpoints_failed = 0;    // that could not be written, so far
  std::string checkpoint_trouble;         // why not, lately
  std::int64_t lacking = 0;               // arrays with fewer copies than were asked for
};

struct ShareView {
  DeviceId device;
  std::int64_t owned = 0, completed = 0;
};

// Where an op might have been placed, too.
struct RejectedView {
  std::string_view why;  // the policy that proposed it
  std::string placement;
  double seconds = 0;  // of the busiest device
};

struct OpView {
  OpId id;
  std::uint32_t position = 0;  // in the plan
  ir::OpKind kind = ir::OpKind::kMap;
  std::string label;
  std::uint32_t fused = 0;            // instructions of its tape; 0: it has none
  std::vector<std::uint32_t> inputs;  // positions of the ops of this plan that it reads
  bool reads_earlier = false;         // perhaps arrays of earlier graphs too
  std::int64_t tasks = 0, done = 0, failed = 0, bytes = 0;
  bool finished = false;
  TimeNs began = kNotYet, ended = kNotYet;  // when the scheduler first and last heard of its tasks
  double predicted_s = 0;                   // of the busiest device, when it was placed; 0: not estimated
  std::string_view why;                     // the policy that placed it
  std::vector<RejectedView> rejected;       // the best of them, up to two; of the first ops of a graph
  double busy_s = 0;                        // of its steps, measured, summed over devices
  double busiest_s = 0;           // likewise, of the busiest device: to be compared with predicted_s
  std::int64_t bytes_moved = 0;   // of its inputs, copied from other devices
  std::vector<ShareView> shares;  // the first few devices; none once it is forgotten by the core
};

// As the client wrote it, before any pass.
struct SourceOp {
  ir::OpKind kind = ir::OpKind::kMap;
  std::string label;
  std::vector<std::uint32_t> inputs;  // positions among the source ops
};
struct PassCount {
  std::string_view name;
  std::uint32_t ops = 0;  // after it
};

struct DevicePeak {
  DeviceId device;
  std::int64_t bytes = 0;
  std::int64_t before = 0;                 // of it, what was there when the graph began
  std::int64_t spilled = 0, returned = 0;  // bytes that left its memory for a tier below, and came back
};

struct GraphView {
  GraphSummary summary;
  TimeNs now = 0;
  std::vector<SourceOp> source;
  std::uint32_t source_count = 0;
  std::vector<PassCount> passes;
  std::vector<OpView> ops;        // by position; those that changed since GraphRequest::since
  std::uint32_t forgotten = 0;    // ops of which nothing is known any more
  std::vector<DevicePeak> peaks;  // most bytes on each device while it ran, whoever's they were
  bool alone = true;              // no other graph ran meanwhile: but for `before` they are its own
};

struct ArrayView {
  ArrayId id;
  SessionId session;
  std::string client;        // who holds it, or had it made
  std::uint64_t number = 0;  // what the session that had it made calls it
  bool held = false;
  ir::DType dtype = ir::DType::kFloat64;
  ir::Grid grid;
  std::int64_t bytes = 0, blocks = 0, made = 0;  // made: blocks that are complete
  std::int32_t open_users = 0;
  GraphId graph;
  OpId producer;
  std::uint32_t position = 0;
  ir::OpKind kind = ir::OpKind::kMap;
  std::string label;
  std::string placement;     // "4x2 tiles over 8 devices"
  std::int32_t copies = 1;   // of each block, as asked for or as placed
  std::int32_t lacking = 0;  // of those: no other worker can take them, or they are being made
  std::vector<ShareView> shares;
  msg::Outcome failed;
};
struct ArrayList {
  std::int64_t live = 0, listed_of = 0;  // all; those looked at
  std::vector<ArrayView> arrays;         // held ones first, then the largest
};
struct ArrayDetail {
  ArrayView array;
  ir::Placement placement;  // of its blocks
  OpView producer;
  std::string program;          // the op that makes it, as planned
  std::vector<OpView> readers;  // of the ops looked at, those that read it
};

// What one device took in from another, beside what the cost model reckons with.
struct LinkView {
  msg::PairStats stats;
  double limit_bytes_per_s = 0, latency_s = 0;  // 0: of what is read in place, or not known
};
// Links that are alike, of which one is probed for all (docs/design/link-probes.md).
struct LinkClassView {
  std::string_view state;      // "due", "under way", "measured", "given up"
  std::string from, to;        // ids of the hosts
  std::uint8_t from_kind = 0;  // device::Kind
  std::uint8_t to_kind = 0;
  bool inside = false;  // of one process
  // Of the last probe with figures; without one, what was said of the last, if anything, is in `last.why`.
  DeviceId from_device, to_device;
  TimeNs at = kNotYet;
  msg::LinkProbed last;
  // What placement reckons with for the two devices now; 0: not known.
  double bytes_per_s = 0, latency_s = 0;
};
struct LinkList {
  std::vector<LinkView> links;  // most bytes first
  std::size_t count = 0;        // all there are
  std::vector<LinkClassView> classes;
  std::size_t class_count = 0;  // likewise
};

struct OverviewRequest {};
struct GraphRequest {
  GraphId graph;
  TimeNs since = kNotYet;   // only ops that changed later
  std::uint32_t first = 0;  // position of the first op to tell
};
struct ArraysRequest {
  SessionId session;  // of this one only, if given
};
struct ArrayRequest {
  ArrayId array;
};
struct LinksRequest {};
using ViewRequest = std::variant<OverviewRequest, GraphRequest, ArraysRequest, ArrayRequest, LinksRequest>;
using View = std::variant<Error, Overview, GraphView, ArrayList, ArrayDetail, LinkList>;

}  // namespace tilewise::scheduler
