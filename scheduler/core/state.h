// Everything the scheduler knows. Tables:
//
//   links     one entry per open link                   peers     every joined incarnation that is there, or is still named
//   devices   of those                                  sessions  of those
//   graphs    one per submission with ops left          ops       planned ops, until retired
//   arrays    outputs of those ops
//
// Nothing is kept per task: an op has one counter per device that owns points of it.
#pragma once
#include "by_id.h"
#include "checkpoints.h"
#include "history.h"
#include "past.h"
#include "rebalance.h"
#include "removals.h"
#include "replay.h"
#include "table.h"

#include <tilewise/ir/geometry_cache.h>
#include <tilewise/place/place.h>
#include <tilewise/scheduler/core.h>

#include <array>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace tilewise::scheduler {

constexpr std::size_t kMaxDeaths = 3;     // of workers executing a point: then it fails
constexpr std::size_t kMaxBlamed = 4096;  // points

constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

struct Link {
  WorkerId peer;  // none: not joined yet
  TimeNs heard = 0, pinged = 0;
  TimeNs away_until = 0;  // it broke, and its peer has so long to come back; 0: it did not
};

struct Peer {
  msg::PeerInfo info;  // devices carry their global names
  Conn conn;
  bool alive = true;
  bool left = false;  // not alive: it left as an operator wished, though its link may still be open
  SessionId session;  // clients only
  std::string software_version;
  std::vector<msg::PluginDesc> plugins;
  std::uint64_t black_box = 0;  // of workers with a supervisor: its last words carry this number
  bool last_words = false;      // they have come
  TimeNs lease_ns = 0;          // how long it may stay away
  std::uint64_t log_next = 1;   // number of the next log entry
  std::uint64_t log_applied = 0;
  msg::Entries::Shared introduction;  // what others are told of it; null: nobody has been
  msg::Entries log;                   // not yet sent; after a step: lazy ones
  bool log_urgent = false;            // one of them is not lazy
  std::array<msg::LaneStats, msg::kLaneCount> lanes{};
};

struct Device {
  DeviceId id;
  WorkerId peer;
  bool alive = true;
  std::uint8_t kind = 0;
  std::uint32_t host = 0;
  std::int32_t streams = 1;
  std::int64_t memory_bytes = 0;
  std::int64_t spill_bytes = 0;   // its share of its worker's disk
  std::int64_t pinned_bytes = 0;  // likewise of its pinned memory
  std::int64_t load_bytes = 0;    // of live results placed here
  msg::DeviceStats stats;
  std::map<std::string, msg::FamilyStats> families;  // as reported; plug-ins bring few
  bool draining = false;                             // an operator wants nothing new on it
};

// What was answered to a request, to be said again.
struct Answer {
  std::uint64_t request = 0;
  msg::SubmitReply reply;
  GraphId graph;  // accepted ones
  bool done = false;
  msg::GraphDone graph_done;
  bool due = false;  // of an Announce: not said yet
};

// What a session has us keep, to name it in later submissions.
struct KeptProgram {
  std::uint64_t request = 0;  // that brought it; 0: none
  SessionProgram program;
};

struct Postponed {  // what a session asked for while there was no worker (postponed.cc)
  msg::Message message;
};

struct Session {
  SessionId id;
  WorkerId peer;
  DeviceId device;  // its data endpoint
  bool alive = true;
  std::uint64_t highest_request = 0;
  std::deque<Answer> answers;               // the last ones, rising
  std::map<std::uint64_t, ArrayId> arrays;  // held ones, by the session's numbers
  std::vector<GraphId> running;             // unfinished graphs, rising
  std::array<KeptProgram, msg::kKeptPrograms> programs;
  std::deque<Postponed> postponed;  // in their order
};

// A session that keeps an array, and what it calls it.
struct Holder {
  SessionId session;
  std::uint64_t number = 0;
  friend bool operator==(const Holder&, const Holder&) = default;
};

struct ArrayRecord {
  ArrayId id;
  OpId producer;
  std::uint8_t output = 0;
  ir::SourceArray source;
  SessionId session;            // that had it made
  std::uint64_t number = 0;     // what that one calls it, for people
  std::vector<Holder> holders;  // by session, each once; all of them wait for its graph, or did
  bool held = false;            // by somebody, or for the sake of others (`unnamed`)
  std::int32_t open_users = 0;  // unfinished ops that read it, once each
  std::int32_t readers = 0;     // ops that read it, those kept as lineage included, once each
  bool was_read = false;  // some op of a plan reads it, or did, though nothing is known of that op any more
  std::vector<OpId> fetches;  // open kFetch ops
  // Copies (copies.cc).
  std::uint32_t copies = 1;  // so many workers are to have it while it is held
  std::uint32_t lacking =
      0;  // of those, as of its worst block: there are no such workers, or they have no room
  std::vector<OpId> keeps;  // kKeep ops whose copies count, rising
  bool anchor = false;      // what is made from it is made again from here, no further (lineage.cc)
  bool unnamed = false;     // held for that alone: its sessions have let it go
  std::uint64_t file = 0;   // an anchor that is on disk, or on its way there: which (checkpoints.h)
  msg::Outcome failed;      // not ok: cannot be used any more, and why
};

struct OpShare {  // what one device reported
  DeviceId device;
  std::int64_t owned = 0, completed = 0, failed = 0;
  std::int64_t busy_ns = 0, bytes_moved = 0;  // for people
};

struct OpRecord {
  OpId id;
  GraphId graph;
  std::uint32_t position = 0;  // in the submitted plan, for people
  ir::Op op;
  ir::Placement placement;
  std::int64_t points = 0;
  std::int64_t load_bytes = 0;             // of its outputs, spread over the shares by points
  std::vector<OpShare> shares;             // sorted by device; empty for kFetch and kProvide
  std::int64_t completed = 0, failed = 0;  // sums over shares
  bool finished = false;                   // nothing of it will run any more
  // After a loss. An op and those that make some of its blocks again (its *layers*) stand for each block together: the last
  // one that names an owner of it has it.
  OpId of;                   // of a layer: whose blocks these are
  std::vector<OpId> layers;  // of a planned op: rising
  // Of a layer that stands for some of its tasks' results, while others have the rest: all that these make, those others under
  // names that nobody reads; `op` has its own ones only. Empty: what they make is what `op` says.
  std::vector<ir::OutputSpec> made;
  mutable struct {
    OpId last;
    ir::Placement placement;
  } layered;  // what layered_placement() found, with this last layer
  bool retired =
      false;  // no worker knows it; kept to make its blocks again for those that read them (lineage)
  bool forgotten = false;     // was retired once: its placement says nothing any more
  bool doomed = false;        // of a layer: its tasks are not run but fail
  bool moved = false;         // of a layer: nothing was lost, others had not begun its tasks (rebalance.cc)
  bool moved_failed = false;  // of a planned op: some of its tasks that had been moved have failed
  // What it read is not kept for its sake any more: there are two copies of what it made, or a file.
  bool cut = false;
  std::int64_t level_ns = 0;  // of the plan (place/levels.h)
  // Its past was too long, and it could get no copy and no file: what is made from it is tried when that is as much further on.
  bool tried = false;
  double work_s = 0;  // about what it takes to run it
  PastNote past;
  struct {
    std::string_view why;  // a policy's name, which outlives everything
    double seconds = 0, moved_bytes = 0;
  } decision;
  std::vector<std::uint32_t> inputs;        // for people: positions of the ops of this plan that it reads
  TimeNs began = kNotYet, ended = kNotYet;  // the same: first and last news of its tasks, since the start

  // Of a planned op: some of its blocks never were. (What could not be made again after a loss fails the array.)
  bool has_failed() const { return failed > 0 || moved_failed; }
};

// A session that asked for something, and under which number.
struct Asker {
  SessionId session;
  std::uint64_t request = 0;
  friend bool operator==(const Asker&, const Asker&) = default;
};

struct GraphRecord {
  GraphId id;
  SessionId session;  // in whose name it runs
  std::uint64_t request = 0;
  std::vector<Asker> others;  // that asked for it too: of an array whose pieces several clients have
  std::int32_t priority = 0;
  std::uint32_t weight = msg::kDefaultWeight;    // of the session when it submitted
  std::vector<OpId> ops;                         // all of the plan; retired ones are unknown to the op table
  std::int32_t ops_left = 0;                     // not yet retired
  std::int32_t ops_open = 0;                     // not yet finished
  std::int32_t fetches_open = 0;                 // those of them that are kFetch
  std::int64_t total = 0, done = 0, failed = 0;  // tasks
  bool running = true;                           // GraphDone not yet sent
  bool own = false;                              // the scheduler's: it writes arrays to disk (checkpoints.cc)
  bool delivered = false;                        // its client has what it fetches, or does not want it
  std::vector<Undo> undo;                        // what is to be removed if it fails
  std::vector<ArrayId> copying;  // while it runs: arrays that are whole, and on several workers, when it ends
  msg::Outcome root_cause;       // of the first failure, or of the cancellation
  std::pair<std::uint32_t, OpId> failed_op{
      UINT32_MAX, {}};                  // place and name of the first in the plan with failed tasks, finished
  std::vector<msg::NeedAccount> needs;  // where that was for want of memory; only until it is told
  bool cancelled = false;
  // A cancelled graph's ops are retired only when these workers have applied the cancellation.
  std::vector<std::pair<WorkerId, std::uint64_t>> unacknowledged;
  bool dirty = false;  // progress not yet told to the client
  std::int64_t told = 0;
  TimeNs told_at = 0;
};

struct Plugin {
  std::string version;
  std::uint64_t hash = 0;
  std::int32_t workers = 0;
};

// A worker that an operator wants to leave. One at a time goes beyond kWaiting.
struct Leaving {
  enum class Step : std::uint8_t {
    kWaiting,   // for its turn, or for `why` to end
    kStopping,  // what it has begun comes to its end
    kReady,     // it is still: to be surveyed
    kAsked,     // a survey is under way
    kMoving,    // `waiting` take copies
    kUndoing    // `waiting` stop doing so; then it goes on
  };
  Step step = Step::kWaiting;
  bool stays = false;  // kUndoing: the wish was taken back
  std::uint64_t round = 0;
  std::map<WorkerId, std::int64_t> waiting;  // for their Drained: blocks left
  TimeNs news_at = 0;                        // of those
  TimeNs again_at = 0;                       // kWaiting: when to try
  std::string why;                           // it cannot leave
};

// Announcements of one array that wait for more of them; or one that failed because somebody was wrong, for those who are still
// to come.
struct Gathering {
  struct Part {
    SessionId session;
    std::uint64_t request = 0;
    std::uint64_t array = 0;  // what the session calls it
    std::uint32_t weight = msg::kDefaultWeight;
    std::vector<ir::Box> pieces;
  };
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;
  std::uint32_t processes = 1;
  TimeNs until = kNever;
  std::vector<Part> parts;  // in the order in which they came; once failed: of those who know, without pieces
  msg::Outcome failed;
};

// Links that are measured while the cluster has nothing to do (probes.cc).
struct LinkProbing {
  enum class Step : std::uint8_t {
    kDue,       // in `due`, once
    kUnderWay,  // in `under_way`, once
    kMeasured,
    kGivenUp  // it failed too often
  };
  struct Known {
    Step step = Step::kDue;
    std::uint32_t tries = 0, failures = 0;
    TimeNs again_at = 0;
    // Of the last answer with figures.
    DeviceId from, to;
    TimeNs at = kNotYet;   // since the start
    msg::LinkProbed last;  // its `why` also of one without
  };
  struct UnderWay {
    place::LinkClass links;
    WorkerId sender, receiver;
    DeviceId from, to;
    TimeNs until = 0;
  };
  std::map<place::LinkClass, Known> classes;  // of links that there are
  std::deque<place::LinkClass> due;
  std::map<std::uint64_t, UnderWay> under_way;  // by nonce
  TimeNs quiet_at = 0;                          // none is begun before
};

struct Trace {          // being collected
  bool blocks = false;  // it is not a trace but where blocks are
  Conn to;
  std::uint64_t nonce = 0;  // the asker's
  std::uint32_t of = 0;
  std::set<WorkerId> waiting;
};

// A worker died while it was executing a certain point of an op.
struct Death {
  WorkerId worker;
  std::string how;
};

// Points of a running op, or of its layers, that are to go to other devices (replace.cc).
struct Move {
  OpId head;                                          // none: nothing is being moved
  std::vector<msg::Tail> from;                        // shares that give
  std::vector<std::pair<DeviceId, std::int64_t>> to;  // who takes, rising, and how many points at most
};

// What has been seen of an op that runs, on one device: rates come from here (rebalance.cc).
struct Seen {
  TimeNs first_at = 0, last_at = 0;
  std::int64_t done = 0;  // points, since first_at
};
struct Watched {
  TimeNs since = 0;    // its first news
  TimeNs look_at = 0;  // not before
  std::int32_t moves = 0;
  ToAndFro to_and_fro;
  std::map<DeviceId, Seen> seen;
};
constexpr std::size_t kMaxWatched = 64;

// From the loss of a worker until every other one has said what it has.
struct Recovery {
  std::uint64_t version = 0;   // rises with each loss
  std::uint64_t settled = 0;   // of the last Recover
  bool pending = false;        // a PeerLost of `version` is not answered by a Recover yet
  TimeNs give_up_at = 0;       // without any worker
  std::set<WorkerId> lost;     // since the last Recover
  WorkerId leaver;             // of a survey: nobody was lost, this one might leave
  Move move;                   // likewise: nobody was lost, these points are to go elsewhere
  std::set<OpId> asked;        // ops whose blocks are pinned
  std::set<WorkerId> waiting;  // for their Held
  std::set<WorkerId> clients;  // for theirs, of blocks that they may have got; not for long
  TimeNs clients_until = 0;
  std::set<WorkerId> unheard;      // dead ones, for the last words that their supervisors have for them ...
  TimeNs words_until = 0;          // ... but not for longer
  std::vector<msg::Held> answers;  // of this version
  std::int64_t recovered = 0, kept = 0,
               unrecoverable = 0;  // blocks made again, found elsewhere; ops given up
  std::int64_t moved = 0;          // points that others made than the plan said, though nobody was lost

  // What it had is to be looked for. What those had who were lost before has layers where it was wanted, and nothing more of it
  // is wanted since, unless to make something else again: results are held from the start, and who reads them later must hold them.
  bool concerns(WorkerId worker) const { return worker == leaver || lost.contains(worker); }
};

struct State {
  Options options;
  place::Placer placer;
  place::Speeds speeds;
  PlanCache plans;
  mutable ir::GeometryCache geometries;  // a cache: nothing is decided by what it has
  Pasts pasts;                           // likewise
  bool started = false;
  TimeNs start = 0, now = 0;

  std::map<Conn, Link> links;
  std::set<Conn> closed;  // the last closed links, whose messages may still arrive
  ById<WorkerId, Peer> peers;
  std::vector<WorkerId> live;  // rising
  ById<DeviceId, Device> devices;
  ById<SessionId, Session> sessions;
  std::vector<WorkerId> departed;     // tools and clients that are gone and still have records (departed.cc)
  std::uint64_t departed_credit = 0;  // so many records may be gone through for that
  Table<ArrayId, ArrayRecord> arrays;
  Table<OpId, OpRecord> ops;
  Table<GraphId, GraphRecord> graphs;
  std::map<std::string, Plugin> plugins;       // of live workers
  std::map<std::string, std::uint32_t> hosts;  // host_id -> number
  std::uint32_t next_peer = 1, next_device = 1, next_session = 1;
  std::uint64_t next_array = 1, next_op = 1, next_graph = 1, next_nonce = 1, next_kept_plan = 1;

  Recovery recovery;
  std::map<WorkerId, Leaving> leaving;
  std::map<OpId, Watched> watched;  // planned ops that run: at most kMaxWatched
  TimeNs rebalance_at = kNever;     // when to look at them
  // By planned op and point: the deaths of those that executed it. At most kMaxBlamed.
  std::map<std::pair<OpId, std::int64_t>, std::vector<Death>> blame;
  std::set<OpId> lineage;    // retired ops that are kept
  std::set<ArrayId> copied;  // held arrays of several copies
  bool copies_due = false;   // those that are lacking are to be looked at
  Checkpoints checkpoints;
  std::vector<GraphId> owing;                   // running ones that are `copying` something
  std::map<GraphId, Removal> removals;          // of graphs that have ended
  std::map<std::uint64_t, Trace> traces;        // by our nonce
  std::map<std::string, Gathering> gatherings;  // by the name that clients gave
  std::set<SessionId> postponing;               // those with something postponed
  TimeNs workless_until = 0;  // when the last worker was lost, and for how long another one is waited for
  LinkProbing probing;
  std::vector<GraphId> dirty;            // with progress to tell
  std::vector<GraphId> cancelling;       // with unacknowledged cancellations
  std::map<DeviceId, msg::Stuck> stuck;  // latest report per device
  TimeNs stuck_at = 0;                   // when to act on them
  std::vector<WorkerId> with_log;  // peers with entries not yet sent, each once, in the order of their first
  bool log_urgent = false;         // some peer's is, or was of one that has been lost
  TimeNs lazy_at = kNever;         // when to send the lazy entries that are left
  TimeNs liveness_at = 0;          // when to look at silent links again
  std::int64_t graphs_done = 0, graphs_failed = 0, tasks_done = 0, running = 0;

  History history;
  std::set<std::string> texts;  // names of policies in restored records
  std::map<std::tuple<DeviceId, DeviceId, msg::Lane>, msg::PairStats> pairs;  // for people, as reported

  Counters counts;

  // Only during a step.
  std::vector<Action>* out = nullptr;
  std::vector<OpId> retire_candidates;
  std::vector<OpId> retired;
  std::vector<ArrayId> let_go;  // anchors that nothing is made from any more

  Peer& peer(WorkerId id) { return peers.at(id); }
  const Peer& peer(WorkerId id) const { return peers.at(id); }
  // Of an id that somebody sent: null if there is no such worker, dead or alive.
  Peer* find_worker(WorkerId id) {
    Peer* peer = peers.find(id);
    return peer != nullptr && peer->info.role == msg::Role::kWorker ? peer : nullptr;
  }
  Device* device(DeviceId id) { return devices.find(id); }
  const Device* device(DeviceId id) const { return devices.find(id); }
  Session& session(SessionId id) { return sessions.at(id); }
  const Session& session(SessionId id) const { return sessions.at(id); }
  bool is_worker(WorkerId id) const { return peer(id).info.role == msg::Role::kWorker; }
};

inline place::Device place_device(const Device& d) {
  return {.id = d.id,
          .kind = d.kind,
          .host = d.host,
          .load_bytes = d.load_bytes,
          .worker = d.peer,
          .streams = d.streams,
          .memory_bytes = d.memory_bytes,
          .spills = d.spill_bytes > 0 || d.pinned_bytes > 0};
}
inline msg::Outcome outcome_of(const Error& e) { return {e.code, e.message}; }

}  // namespace tilewise::scheduler
