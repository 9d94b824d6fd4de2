// What the machine on paper (simulate.cc) knows of blocks, tasks and devices while a plan runs.
#pragma once
#include <tilewise/ir/ready_order.h>
#include <tilewise/place/simulate.h>

#include <map>
#include <vector>

namespace tilewise::place::paper {

using Index = std::int32_t;
constexpr Index kNone = -1;

struct Copy {
  std::size_t array = 0;
  std::int64_t bytes = 0;
  Index device = 0, home = kNone;  // home: the owner's copy; kNone: this is it
  std::int64_t level = 0;          // of the highest op that reads it here
  std::int64_t uses = 0;           // reads here, and at home one for each copy elsewhere
  bool ready = false, requested = false, mapped = false, in_memory = false, keeps = false;
  std::size_t reader = 0;              // the first op that wants it here
  bool asked = false;                  // the graph that is asked about was the first to want it
  Index made_by = kNone;               // record
  Index sender = kNone;                // who passes it on here, if not its home
  double chain_s = 0;                  // longest chain of steps behind it
  Index next = kNone;                  // of the same block
  std::vector<Index> waiters, wanted;  // tasks here; copies elsewhere
};

// Of a block that travels to other hosts: one copy on each of them passes it on there (worker/core/trees.cc).
struct Tree {
  struct Leader {
    std::uint32_t host = 0;
    Index copy = kNone;
  };
  std::vector<Leader> leaders;
  std::size_t hosts = 0;  // that it goes to
};

struct Task {
  std::size_t op = 0;
  Index device = 0;
  std::int64_t point = 0, steps = 1, next = 0;
  bool eager = false;
  double ready_s = 0, chain_s = 0;
  Index ready_by = kNone;  // copy whose arrival made it ready
  std::vector<Index> outputs;
};

struct Record {  // one step that ran
  std::size_t op = 0;
  Index device = 0;
  double start_s = 0, end_s = 0;
  Index cause = kNone;  // record that had to end first
  bool moved = false;   // and whose result had to come from elsewhere
};

struct Event {
  double at = 0;
  std::int64_t number = 0;  // equal times in order of creation
  bool step = false;        // a task's step has ended; else a copy has come
  Index index = 0;
  bool operator<(const Event& other) const { return at != other.at ? at > other.at : number > other.number; }
};

struct Queue {                              // of one graph on one device
  struct Share {                            // of one op, in plan order
    std::size_t op = 0, next = 0, end = 0;  // tasks
  };
  std::vector<Share> shares;
  std::size_t front = 0;  // first share not expanded to its end
  std::int32_t live = 0, eager = 0;
  ir::ReadyOrder ready;
};

struct Place {  // a device while the plan runs
  Device device;
  bool client = false;
  std::int32_t free_streams = 1;
  std::vector<Queue> queues;           // by graph
  std::map<SessionId, double> served;  // seconds by weight
  std::size_t turn = 0;
  Index last_record = kNone;
  std::int64_t bytes = 0;
  double sends_until = 0, receives_until = 0;
};

}  // namespace tilewise::place::paper
