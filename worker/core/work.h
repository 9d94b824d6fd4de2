// What the worker core's tables (state.h) hold of ops, tasks and those that they come from and go to.
#pragma once
#include "copy.h"
#include "queue_list.h"
#include "shared.h"

#include <tilewise/base/block_deque.h>
#include <tilewise/ir/ready_order.h>
#include <tilewise/worker/core.h>

#include <array>
#include <boost/container/small_vector.hpp>
#include <vector>

namespace tilewise::worker {

struct ShareState {  // an op's share on one local device
  // Of those, from the end: what a Recover has given to others (replace.cc) is not owned any more.
  std::int64_t owned = 0, next = 0, completed = 0, failed = 0;
  std::int64_t held = INT64_MAX;  // nothing from here on is begun until the next Recover
  std::int64_t moved = 0;         // bytes of its inputs that were copied here
  std::int64_t busy_ns = 0;       // what its steps took: written by whoever runs them (OpRun)
  bool dirty = false;
  bool queued = false;   // in its queue's list of ops
  bool usable = false;   // in its queue's list of ops to look at
  bool shrunk = false;   // it once owned more
  bool rewound = false;  // tasks were taken back: those that come again belong before what is behind them
  bool open() const { return next < owned && next < held; }
};

struct OpState {
  const SharedEntry* entry = nullptr;  // entries[shared]
  Slot shared = kNone;
  OpRun run;
  boost::container::small_vector<Slot, 4> operands;      // arrays; kNone: forgotten, and read to the end
  boost::container::small_vector<Slot, 2> outputs;       // arrays
  boost::container::small_vector<ShareState, 1> shares;  // one per local device; stays where it is
  std::int64_t live_tasks = 0;
  std::int64_t open_uses = 0;  // uses naming this op
  bool done = false;           // snapshot: blocks exist, nothing to run
  std::uint64_t version = 0;   // of the Recover that brought it; 0: planned
  OpId order;                  // its place in the plan: its own id, or of the op whose blocks it makes again
  bool retired = false;
  bool to_forget = false;     // in the list of those to look at
  Slot cancelled = kNone;     // outcome
  Slot doomed = kNone;        // outcome: its tasks fail so instead of running
  std::int64_t level_ns = 0;  // of the plan (msg::PlannedOp)
  std::int64_t grows = -1;    // bytes by which each task makes the memory in use grow; not known yet
  bool alone = false;         // its steps run while nothing else runs here
  bool rewound = false;       // some share once was
  bool keeps() const { return entry->op.kind == ir::OpKind::kKeep; }
  bool runs() const { return entry->op.kind != ir::OpKind::kFetch && entry->op.kind != ir::OpKind::kProvide; }
};

// What ops of one plan have in common.
struct Standing {
  GraphId graph;
  std::int32_t priority = 0;
  SessionId session;
  std::uint32_t weight = msg::kDefaultWeight;
  template <class PlanOrReplay> static Standing of(const PlanOrReplay& plan) {
    return {plan.graph, plan.priority, plan.session, plan.weight};
  }
};

enum class TaskState : std::uint8_t {
  kReady,
  kWaiting,
  kBlocked /* on memory */,
  kRunning /* all enqueued */
};

struct Task {
  Slot op = kNone;
  Slot queue = kNone;
  std::uint16_t device = 0;
  std::uint8_t stream = 0;
  TaskState state = TaskState::kReady;
  bool admitted = false;  // outputs have memory, stream chosen
  bool finished = false;  // tombstone in the queue's order
  bool eager = false;     // in the queue's eager list, at `eager_at`
  std::uint32_t eager_at = 0;
  std::int64_t ordinal = 0;  // in its op's share here
  std::int64_t point = 0;
  std::int64_t steps = 1, next = 0;
  std::int64_t in_flight = 0;
  std::int64_t weight = 1;
  std::array<Slot, limits::kMaxOutputs> outputs{};  // kNone: it has gone, or an earlier task makes it
  std::uint64_t last_sequence = 0;
  Slot outcome = kNone;    // failed
  Slot waits_for = kNone;  // kWaiting: the copy
  Slot next_waiter = kNone;
};

struct Queue {  // one device's part of one graph
  QueuePlace place;
  SessionId session;
  std::uint16_t device = 0;
  // Which lists of its device's (queues.cc) it is in; of the worker's.
  bool to_expand = false, has_ready = false, has_blocked = false, ending = false;
  BlockDeque<Slot> ops;  // not fully expanded, in plan order
  std::int64_t live = 0, weight = 0, eager_weight = 0;
  BlockDeque<Slot> order;  // expanded, lowest first; finished ones linger until they reach the front
  std::size_t made_again =
      0;  // where in `order` the last task of a recovery was put: the next one of its op goes behind it
  // Tasks of later ops, expanded because all they read is here: they run before more is made, so that what is made is used
  // and freed. When their op's turn comes they move to `order`.
  std::vector<Slot> eager;
  std::vector<Slot> usable;  // ops that may have such tasks: something they read has just come
  ir::ReadyOrder ready;
  std::vector<Slot> blocked;  // on memory
};

struct PeerState {
  msg::PeerInfo info;
  bool mapped = false;
  bool ready = false;  // its link is up
};
struct RemoteDevice {
  WorkerId worker;
  std::uint8_t kind = 0;
  bool client = false, lost = false;
  std::uint32_t host = 0;  // 0: this one (trees.cc)
};

}  // namespace tilewise::worker
