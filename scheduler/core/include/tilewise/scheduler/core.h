// The scheduler as a pure state machine: events in, actions out, one mutator. No threads, sockets, clock or CUDA. The
// daemon, the embedded cluster and the simulator drive the same object.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>
#include <tilewise/scheduler/view.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::scheduler {

// A link to another process, numbered by the shell; never reused.
using Conn = Id<struct ConnTag, std::uint32_t>;

struct Received {
  Conn from;
  msg::Message message;
};
struct Closed {
  Conn conn;
  Error why;
};
// The link of a peer with a lease broke: it may come back, with Returned, until that ends.
struct Broken {
  Conn conn;
};
struct Returned {
  Conn conn;
};
// An operator's wish, which the shell has checked. Nothing happens if there is no such graph or array any more.
struct OperatorCancel {
  GraphId graph;
};
struct OperatorRelease {  // ends the session's hold
  ArrayId array;
};
struct
    OperatorDrain {  // the worker is to leave (or stay after all): nothing new for it, and what it has goes to others
  WorkerId worker;
  bool on = true;
};
using Event =
    std::variant<Received, Closed, Broken, Returned, OperatorCancel, OperatorRelease, OperatorDrain>;

struct Send {
  Conn to;
  msg::Message message;
};
struct Close {
  Conn conn;
  Error why;
};
struct EndProcess {};  // an operator's Shutdown has been passed on to every worker
struct GraphEnded {    // for the log; only where history is kept
  GraphId graph;
  SessionId session;
  std::uint64_t request = 0;
  std::int64_t tasks = 0;
  TimeNs took = 0;
  msg::Outcome cause;  // ok: all of it was done
  OpId failed_op;      // the first in its plan, if one failed
};
using Action = std::variant<Send, Close, EndProcess, GraphEnded>;

// Points of running ops that have not been begun go from devices that are late to others (docs/design/rebalance.md).
struct Rebalance {
  TimeNs every_ns = 0;                     // how often running ops are looked at; 0: never
  TimeNs min_gain_ns = 50 * kMillisecond;  // an op must be over so much earlier for it ...
  double min_gain = 0.2;                   // ... and by so much of what it would still take
  TimeNs again_ns = kSecond;               // at most, until the same op is looked at again
  int max_moves = 16;                      // of one op
  std::int64_t max_points = 32'768;        // of one move ...
  std::int64_t max_reads = 65'536;         // ... and of these and the blocks that they read together
  TimeNs look_ns = 2 * kMicrosecond;       // what a move takes for each of those
  std::uint64_t by_lot = 0;                // tests: who gives what to whom is drawn from this seed
};

struct Options {
  std::uint32_t term = 1;
  std::uint64_t state = 0;  // Welcome::state, for all who outlive their links
  bool durable = false;     // Welcome::durable
  std::uint64_t seed = 1;
  TimeNs ping_every_ns = 2 * kSecond;
  TimeNs silence_ns = 10 * kSecond;               // a link silent this long is closed and its peer lost
  TimeNs progress_every_ns = 100 * kMillisecond;  // GraphProgress to clients, at most this often
  TimeNs lazy_ns = 1 * kMillisecond;              // how long log entries that nobody waits for may stay
  std::size_t max_peers = 4096;
  std::size_t max_graphs = 65'536;  // unfinished ones
  std::size_t max_live_ops = 4'000'000;
  std::size_t max_lineage_ops = 200'000;  // forgotten by workers, kept to make lost blocks again
  // What is held gets a second copy, and its past is cut, where making it again would take longer or more ops than this (docs/
  // design/recovery.md). 0 ns: never.
  TimeNs max_recompute_ns = 30 * kSecond;
  std::size_t max_recompute_ops = 4096;
  std::string
      checkpoint_dir;  // where it goes to disk if no other worker can take it: a folder for this cluster alone; empty: nowhere
  std::size_t max_recovered_blocks = 4'000'000;  // of one recovery
  std::size_t max_recovered_runs = 1'000'000;  // in which they and the blocks that are left lie: ir::kMaxRuns
  TimeNs recovery_wait_ns = 30 * kSecond;      // how long lost blocks wait for a worker when there is none
  TimeNs stuck_again_ns =
      1 * kSecond;  // after a graph was ended for lack of memory: what it freed may let the others go on
  TimeNs last_words_ns = 1 * kSecond;  // how long they wait for a supervisor's word on its dead worker
  TimeNs client_answer_ns =
      1 * kSecond;               // how long for clients to say which blocks they have got of what they fetch
  std::string software_version;  // what joiners must run; empty: what the oldest joined peer runs
  std::vector<std::string> passes_off;  // planning passes to leave out, by name (tilewise/plan)
  bool pieces_always = false;           // tests: place::CutOptions::always
  bool link_probes = false;             // workers answer LinkProbe: have links measured while nothing runs
  std::size_t history_graphs = 0;       // how many that ended are remembered, for people (view)
  Rebalance rebalance;
  bool check_replays = false;  // tests: plan again what is replayed, and stop where the two differ
};

// How ops travel in a snapshot: as messages, whose encoding is not the core's business.
struct SnapshotCodec {
  std::function<Result<std::string>(const msg::Message&)> encode;
  std::function<Result<msg::Message>(std::string_view)> decode;
};

// Branches that are seldom taken: how often, in this object's life (they are in no snapshot and no digest). For tests.
struct Counters {
  // Peers declared lost: silent on a link that was up; not back within their lease. How often we were late ourselves.
  std::int64_t silent = 0, overdue = 0, deaf = 0;
  // Losses before the one before was answered, or while a worker was asked whether it could leave or give points away.
  std::int64_t losses_on_losses = 0, surveys_overtaken = 0;
  std::int64_t newcomers_asked = 0;  // workers that joined while a loss was not answered
  std::int64_t late_answers = 0;     // Held of an earlier loss, or a second one
  std::int64_t lost_points = 0;      // looked at: were they wanted
  std::int64_t cut_answers = 0;      // Held that could not tell everything
  std::int64_t passes_given_up = 0;  // what was to be made again was worked out anew without what cannot be
  std::int64_t given_up = 0;         // recoveries for which no worker was left
  std::int64_t postponed = 0;        // messages of clients that waited for a worker
  std::int64_t words_missed = 0;     // recoveries that did not wait any longer for a supervisor
  std::int64_t clients_missed = 0;   // likewise for a client
  std::int64_t past_walked =
      0;  // ops looked at to find out how long the pasts of others are: not seldom, but not too often
};

// So many of each are kept: those that are there, and those that are gone and still named.
struct Records {
  std::size_t peers = 0, devices = 0, sessions = 0;
  friend bool operator==(const Records&, const Records&) = default;
};

class Core {
 public:
  explicit Core(Options options);
  ~Core();

  // Applies events in order, then time. Appends what must be done, in order. Never fails: a bad message is answered.
  void step(std::vector<Event>& events, TimeNs now, std::vector<Action>& actions);

  // When to step again though nothing arrives (pings, silence).
  TimeNs next_deadline() const;

  // ---- outliving the process. The state is a function of the events and times of all steps; so whoever keeps those has it.

  // Before a snapshot: forgets what it leaves out (plans to be replayed) and sends what is still held back. To be repeated
  // with the steps.
  void settle(TimeNs now, std::vector<Action>& actions);
  // All that later steps depend on; right after settle() or begin_life(). Errors: the codec's.
  Result<std::string> snapshot(const SnapshotCodec& codec) const;
  // Of a fresh core: what snapshot() gave, in the options of then; of those of now only history_graphs and check_replays
  // stay. kCorruptData: it is none; the core is then of no use.
  Status restore(std::string_view bytes, const SnapshotCodec& codec);
  // After restore() and the steps since: the next life, in other options and a higher term. Links are given their time
  // anew to say something.
  void begin_life(Options options, TimeNs now, std::vector<Action>& actions);
  TimeNs now() const;  // of the last step
  std::uint32_t term() const;
  GraphId graph_of(OpId op) const;  // 0: it is not known (any more)

  // For people (tilewise/scheduler/view.h). Error: kNotFound.
  View view(const ViewRequest& request, TimeNs now) const;

  Counters counters() const;
  Records records() const;
  // Checks every index against every other (tests). Stops the process with the story on a violation.
  void check_invariants() const;
  // Submissions that took a plan made before.
  std::uint64_t replays() const;
  // Order-sensitive digest of the whole state: two runs of one seed agree.
  std::uint64_t digest() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewise::scheduler
