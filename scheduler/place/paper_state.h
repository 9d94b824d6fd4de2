// Private: what a run on paper (simulate.cc) keeps of blocks, tasks and devices, and who has memory there.
#pragma once
#include <tilewise/ir/donation.h>
#include <tilewise/ir/ready_order.h>
#include <tilewise/place/simulate.h>

#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "paper_memory.h"

namespace tilewise::place {

using Index = std::int32_t;
constexpr Index kNone = -1;

inline std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

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
  bool begun = false;                  // its first part is here
  double comes_s = 0;                  // when all of it will be
  double chain_s = 0;                  // longest chain of steps behind it
  Index next = kNone;                  // of the same block
  std::vector<Index> waiters, wanted;  // tasks here; copies elsewhere
  // Within bounds only: tasks that read it, here or elsewhere, rising; those before have ended. Steps and transfers that use it.
  std::vector<Index> readers;
  std::size_t read = 0;
  std::int32_t in_use = 0;
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
  double waited_s = 0;  // before it: for room, and for what came back
};

struct Event {
  double at = 0;
  std::int64_t number = 0;  // equal times in order of creation
  enum What : std::uint8_t { kStepEnds, kPartComes, kCopyComes } what = kCopyComes;
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
  std::optional<PaperMemory> memory;                      // where there are bounds
  std::int64_t reserve = 0;                               // what its largest step takes: for the lowest task
  std::vector<Index> tasks;                               // rising
  std::size_t lowest = 0;                                 // of those the first that has not ended
  std::deque<std::tuple<Index, Index, double>> arriving;  // as transmit() has them, until there is room
  bool stirred = false;                                   // memory has come free
};

class PaperState {
 public:
  // `bounded`: devices' memory is what they have; else it is only counted.
  PaperState(std::span<const SimOp> ops, std::span<const SimArray> arrays, std::span<const Device> devices,
             const Speeds& speeds, const SimOptions& options, bool bounded, Simulation& out);

 protected:
  bool asked(std::size_t op) const { return ops_[op].graph == options_.asked; }
  Queue& queue_of(const Task& task) {
    return places_[static_cast<std::size_t>(task.device)].queues[ops_[task.op].graph];
  }
  Index add_place(const Device& device, bool client);
  Index place(DeviceId id);  // clients' endpoints and devices that left are added as they are met
  // Makes it where there is none.
  Index copy_at(std::size_t array, std::int64_t block, Index device);
  Index add(Copy copy);
  Copy& at_(Index copy) { return copies_[static_cast<std::size_t>(copy)]; }
  Place& owner(Index copy) { return places_[static_cast<std::size_t>(at_(copy).device)]; }
  LinkSpeed link(Index home, Index device);

  // ---- blocks that go from host to host ----

  bool is_far(Index home, Index copy);
  Index place_in_tree(Index home, Index copy);
  double first_part(Index copy);

  // ---- memory ----

  void take(Index copy);
  void let_go(Index copy);
  void discharge(Index copy);

  // ---- memory that is bounded ----

  // What is there when the plan begins. Of what it does not read nobody knows when it is read, if ever.
  void furnish();
  bool is_lowest(Place& here, Index t);
  void note_reader(Index copy, Index task);
  // The next task that reads it, or that reads a copy of it elsewhere.
  std::int64_t next_use(Copy& c) const;
  // It may leave, as long as nobody uses it.
  void rest(Index copy);
  void use_memory(Index copy);
  void end_use(Index copy);
  void note_peak(Index p);
  struct Wants {
    std::int64_t inputs = 0, outputs = 0, missing = 0;
  };
  // Of a step; `missing`: what is not in memory yet.
  Wants wants(const Task& task);
  // Takes the memory that the step needs, and says when it is there. False: not now. `force`: in any case.
  bool enter(Index t, double& at, bool force);
  void leave_step(const Task& task);
  // Memory is granted to blocks on their way beside the reserve.
  bool make_room_for(Index copy);
  void tell_need(std::size_t op, const Place& here, std::int64_t inputs, std::int64_t outputs,
                 std::int64_t missing);
  // Which of `reads_` gives its memory to which output (the worker's rule, worker/core/memory.cc).
  ir::Donors donors_of(const Task& task, const SimOp& op);

  std::span<const SimOp> ops_;
  std::span<const SimArray> arrays_;
  const Speeds& speeds_;
  const SimOptions& options_;
  Simulation& out_;
  const bool bounded_;  // memory is
  double now_ = 0;
  bool for_asked_ = false;     // copies that are added now
  std::size_t added_ = 0;      // op, while tasks are added
  std::vector<Place> places_;  // those given, then clients
  std::map<DeviceId, Index> place_of_;
  std::vector<Copy> copies_;
  boost::unordered_flat_map<Index, Tree> trees_;           // by home; looked up, never walked
  boost::unordered_flat_map<std::uint64_t, Index> first_;  // (array, block) -> home; looked up, never walked
  std::vector<Task> tasks_;                                // by op, device, and order there
  std::vector<ir::Read> reads_;
};

}  // namespace tilewise::place
