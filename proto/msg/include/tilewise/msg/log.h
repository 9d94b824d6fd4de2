// The log: everything the scheduler tells a worker (or a client's data endpoint), numbered from 1.
#pragma once
#include <tilewise/ir/constants.h>
#include <tilewise/ir/op.h>
#include <tilewise/ir/placement.h>
#include <tilewise/msg/joining.h>

#include <initializer_list>
#include <iterator>
#include <memory>
#include <variant>

namespace tilewise::msg {

struct PlannedOp {
  OpId id;
  ir::Op op;                // operands and outputs named by ArrayId::value
  ir::Placement placement;  // of op.space
  bool done = false;  // its blocks exist, nothing is to be run: in a late joiner's snapshot, and in Recover
  OpId of;  // in Recover: the op some of whose blocks this one makes again, or that has them elsewhere now
  bool alone = false;  // its steps run while no other step runs on their worker
  Outcome doomed;      // not ok: its tasks are not run but fail so
  // Predicted, from the beginning of one of its tasks to the end of the longest path of the plan that begins there: of tasks that
  // could run, those whose results the higher level reads go first. 0: not known.
  std::int64_t level_ns = 0;
  friend bool operator==(const PlannedOp&, const PlannedOp&) = default;
};
// A session's share of a device that several sessions use, beside the others'.
constexpr std::uint32_t kDefaultWeight = 100, kMaxWeight = 10'000;

struct Plan {
  GraphId graph;
  std::int32_t priority = 0;   // higher first; total order of tasks: (priority, graph, op order, ordinal)
  std::vector<PlannedOp> ops;  // producers before users
  std::vector<ArrayId> holds;  // arrays of this plan that a client keeps until a Release
  SessionId session;           // whose share of the devices' time it takes
  std::uint32_t weight = kDefaultWeight;  // of that session, from now on
  std::uint64_t keep_as =
      0;  // workers keep it under this number until a ForgetPlans, for Replay; 0: they do not
  friend bool operator==(const Plan&, const Plan&) = default;
};
struct
    Replay {  // a kept plan again, under other names and on other inputs, which have its inputs' dtypes and grids
  std::uint64_t plan = 0;  // Plan::keep_as
  GraphId graph;
  std::int32_t priority = 0;
  OpId first_op;        // of the plan's first op; the others keep their distance from it, as in the plan
  ArrayId first_array;  // what the first output of the first op that has one is called; likewise
  std::vector<ArrayId> inputs;  // what the plan reads and does not make, in the order of first mention
  SessionId session;
  std::uint32_t weight = kDefaultWeight;
  ir::Constants constants = {};  // instead of those that numbered constants of the plan had
  friend bool operator==(const Replay&, const Replay&) = default;
};
struct ForgetPlans {  // kept plans that will not be named again
  std::vector<std::uint64_t> plans;
  friend bool operator==(const ForgetPlans&, const ForgetPlans&) = default;
};
struct Release {  // the client's hold ends; copies go when their other uses are discharged
  std::vector<ArrayId> arrays;
  friend bool operator==(const Release&, const Release&) = default;
};
struct CancelGraph {
  GraphId graph;
  Outcome why;
  friend bool operator==(const CancelGraph&, const CancelGraph&) = default;
};
struct Retire {  // these ops are finished everywhere and their arrays gone: forget them
  std::vector<OpId> ops;
  friend bool operator==(const Retire&, const Retire&) = default;
};
struct PeerJoined {
  PeerInfo peer;
  friend bool operator==(const PeerJoined&, const PeerJoined&) = default;
};
// Of an op's points on a device, those of ordinal `from` and above.
struct Tail {
  OpId op;
  DeviceId device;
  std::int64_t from = 0;
  friend bool operator==(const Tail&, const Tail&) = default;
};
// A lost worker (or none: a survey): `version` numbers the recovery that follows (none: 0). The results of `ops` are pinned, what came from
// the lost worker is waited for, and each worker answers with Held; then comes a Recover of this or a later version. Clients that wait for
// some of it are asked too, in an entry that names nobody, and need not answer.
struct PeerLost {
  WorkerId peer;
  std::uint64_t version = 0;
  std::vector<OpId> ops;
  // Their devices begin nothing of these until the Recover, and take back what they have prepared and not begun.
  std::vector<Tail> holds = {};
  friend bool operator==(const PeerLost&, const PeerLost&) = default;
};

// What is made again, and where blocks are now. Each op writes arrays of an earlier one (`of`), or arrays that were
// forgotten; its placement lists points. What no op names is where it was. Pins of this and earlier versions end; what is
// still waited for from a lost worker fails.
struct Recover {
  std::uint64_t version = 0;
  std::vector<Plan> plans;  // producers before users, so a graph may come several times
  // Of those that were held: their devices never begin them, a layer makes them.
  std::vector<Tail> moved = {};
  friend bool operator==(const Recover&, const Recover&) = default;
};
Plan expand(const Plan& kept,
            const Replay& replay);  // what a Replay stands for (in tests: workers do without)
struct Range {                      // blocks [first, first + count) in C order
  std::int64_t first = 0, count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};
// A worker is to leave without a loss. kStop goes to all workers, kMove and their kGoOn to who is to take blocks, kLeave to the
// worker itself, and to clients when it has gone.
enum class DrainOrder : std::uint8_t {
  kGoOn = 0,  // it stays after all: it begins tasks again, and what was copied for its sake may go
  kStop,      // it begins nothing new, and says Drained when what it has begun is over
  kMove,      // take copies of these blocks, keep them, and say Drained
  kLeave      // nobody needs it any more: its process ends when clients have what is on its way to them
};
constexpr int kDrainOrderCount = 4;
struct Drain {
  struct Keep {
    ArrayId array;
    DeviceId from, to;  // the device that has them, and the one that is to (where copies may be already)
    std::vector<Range> blocks;
    friend bool operator==(const Keep&, const Keep&) = default;
  };
  WorkerId peer;
  DrainOrder order = DrainOrder::kGoOn;
  std::uint64_t round = 0;  // of all but kLeave, to be said again in Drained
  std::vector<Keep> keeps;  // of kMove
  friend bool operator==(const Drain&, const Drain&) = default;
};

// Copied and destroyed in one place (msg.cc), as OpAttrs.
struct LogEntry : std::variant<Plan, Release, CancelGraph, Retire, PeerJoined, PeerLost, Recover, Replay,
                               ForgetPlans, Drain> {
  using variant::variant;
  LogEntry();
  LogEntry(const LogEntry&);
  LogEntry(LogEntry&&) noexcept;
  LogEntry& operator=(const LogEntry&);
  LogEntry& operator=(LogEntry&&) noexcept;
  ~LogEntry();
};
// Entries in their order. Copies share them, which matters where all workers get the same plan: nobody changes one that is here. Who wants
// one for itself takes it. One thread at a time, copies included.
class Entries {
 public:
  using Shared = std::shared_ptr<LogEntry>;
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = LogEntry;
    using difference_type = std::ptrdiff_t;
    using pointer = const LogEntry*;
    using reference = const LogEntry&;
    Iterator() = default;
    explicit Iterator(const Shared* at) : at_(at) {}
    reference operator*() const { return **at_; }
    pointer operator->() const { return at_->get(); }
    Iterator& operator++() { return ++at_, *this; }
    Iterator operator++(int) { return Iterator(at_++); }
    friend bool operator==(Iterator, Iterator) = default;

   private:
    const Shared* at_ = nullptr;
  };

  Entries() = default;
  Entries(std::initializer_list<LogEntry> entries) : Entries(std::vector<LogEntry>(entries)) {}
  Entries(std::vector<LogEntry> entries);
  Entries(const Entries& all, std::size_t first, std::size_t count);

  std::size_t size() const { return all_.size(); }
  bool empty() const { return all_.empty(); }
  Iterator begin() const { return Iterator(all_.data()); }
  Iterator end() const { return Iterator(all_.data() + all_.size()); }
  const LogEntry& operator[](std::size_t i) const { return *all_[i]; }
  const LogEntry& at(std::size_t i) const { return *all_.at(i); }

  static Shared share(LogEntry entry);
  void push_back(LogEntry entry) { push_back(share(std::move(entry))); }
  void push_back(Shared entry) { all_.push_back(std::move(entry)); }
  void clear() { all_.clear(); }
  // Moved from here, which is empty there afterwards: as it is shared, or the entry itself, copied where others have it too.
  Shared give(std::size_t i) { return std::move(all_[i]); }
  LogEntry take(std::size_t i);

  // The same objects, not only equal ones.
  bool are(const Entries& others) const { return all_ == others.all_; }
  friend bool operator==(const Entries& a, const Entries& b);

 private:
  std::vector<Shared> all_;
};
struct Log {
  std::uint32_t term = 0;
  std::uint64_t first = 1;  // number of entries[0]
  Entries entries;
  friend bool operator==(const Log&, const Log&) = default;
};

}  // namespace tilewise::msg
