// Plans made before, for programs that come again on other arrays: a loop of small steps is planned and placed once.
//
// A program is the ops of a submission as the client sent them, with every array named by its place in it: what the
// program makes by its order, what it reads from outside by the order of first mention, and every constant of a tape by its
// number (ir/constants.h). Two submissions are the same program if nothing else differs: kinds, attributes, views, grids, hints, labels,
// what is held. A plan is replayed if besides
// its inputs are cut and placed as they were and the workers' devices are the same; then passes and placement would say
// what they said before, but for what placement learned meanwhile (speeds). So a plan is made anew after 1, 2, 4 ... kMostReplays
// replays. One whose places follow from what devices had in memory is not kept at all; the others are replayed where devices
// have ample room for what the plan needs.
//
// A program is kept when it comes for the second time: most come once. Everything is counted and bounded; what is
// looked at least recently goes first.
//
// Workers keep the plan too, from the same moment on and under a number: who has it is told the number, new names, inputs and
// constants (msg::Replay) instead of the plan. Workers forget a plan when the log says so, and so no one is ever asked for what it has
// not: the cache notes the last worker that had joined when the plan was told, since that went to all.
#pragma once
#include "cutting.h"

#include <tilewise/base/digest.h>
#include <tilewise/ir/placement.h>
#include <tilewise/msg/program.h>
#include <tilewise/place/place.h>
#include <tilewise/plan/plan.h>

#include <deque>
#include <optional>
#include <vector>

namespace tilewise::scheduler {

struct Draft;
struct GraphRecord;
struct Session;
struct State;

// A program that a session keeps, and what follows from it alone. Fetches and provisions name the session's endpoint.
struct SessionProgram {
  msg::SharedOps ops;  // by place, as msg::Program has them
  std::uint64_t outputs = 0, inputs = 0;
  std::vector<ir::DType> constants;     // by number
  Digest digest;                        // of the ops
  std::vector<std::uint64_t> fetched;   // operands of kFetch, by place
  std::vector<std::uint64_t> provided;  // outputs of kProvide, by place
  std::vector<DeviceId> hinted;         // that its ops are to run on, each once
  static SessionProgram of(msg::Program program, DeviceId endpoint);
};

// What a draft knows of its program between planning and its acceptance.
struct Program {
  std::uint64_t digest = 0;
  std::uint64_t first =
      0;  // the first ArrayId that the draft could give; those up to its next_array are its own
  std::vector<std::uint64_t> externals;  // ArrayIds, in the order of first mention
  ir::Constants constants;
  msg::SharedOps ops;  // by place, without constants, where the program is to be kept
  bool replayed = false;
  std::optional<std::size_t> plan;  // which, if it was, or is kept now
};

class PlanCache {
 public:
  static constexpr std::size_t kMaxPlans = 64;
  static constexpr std::size_t kMaxOps = 65'536;      // of all plans together, programs included
  static constexpr std::size_t kMaxBytes = 64 << 20;  // likewise, roughly
  static constexpr std::size_t kRemembered = 256;     // programs that came once
  static constexpr std::uint32_t kMostReplays = 256;

  // A translated draft, not planned yet: planned and placed as its program was before. False: it is as it was.
  bool replay(const State& s, Draft& draft, bool dump) const;
  // A draft of a program that its session keeps. There are draft.graph.holds and draft.program.externals, but no ops.
  bool replay(const State& s, const SessionProgram& kept, Draft& draft, bool dump) const;
  // The draft, planned and placed, becomes a graph. `next_number`: of plans that workers keep.
  void accepted(const State& s, Draft& draft, std::uint64_t& next_number);

  // How workers are told of the draft: `replay` to those that joined no later than `known`, to others the plan with replay.plan
  // as its number (0: not to be kept).
  struct Told {
    msg::Replay replay;
    WorkerId known;
  };
  Told told(const Draft& draft, const GraphRecord& graph) const;
  // Everybody up to this worker has been.
  void told_to(const Draft& draft, WorkerId last);
  // Numbers that will not be named any more, each once.
  std::vector<std::uint64_t> take_gone() { return std::exchange(gone_, {}); }
  void forget_all();

  std::uint64_t replays() const { return replays_; }
  std::size_t size() const { return plans_.size(); }
  std::size_t ops() const;
  std::size_t bytes() const;
  void mix_into(Digest& digest) const;

 private:
  struct Plan {
    std::uint64_t digest = 0;
    msg::SharedOps program;
    std::vector<std::uint64_t> holds;
    std::vector<ir::SourceArray> sources;  // of the externals, and where they are
    std::vector<ir::Placement> inputs;
    std::vector<DeviceId> devices;  // of all workers
    std::uint64_t names = 0;        // that the draft gave
    std::vector<ir::Op> ops;        // like those of the program
    std::vector<ir::Placement> placements;
    std::vector<place::Decision> decisions;
    std::vector<std::int64_t> levels_ns;
    std::vector<std::pair<DeviceId, std::int64_t>> needs;
    Cuts cuts;  // those among the ops
    std::uint32_t replays = 0, patience = 1;
    std::uint64_t used = 0;
    std::size_t bytes = 0;
    std::uint64_t number = 0;         // by which workers keep it
    WorkerId known;                   // the last one that does
    std::uint64_t first = 0;          // place of the first output
    std::vector<std::uint64_t> read;  // which externals the ops read, in the order of first mention
  };
  using Ops = std::vector<ir::Op>;
  std::optional<std::size_t> find(const State& s, const Draft& draft, const Ops& ops) const;
  bool comes_again(std::uint64_t digest) const;
  void take(std::size_t plan, const State& s, Draft& draft, bool dump) const;
  std::optional<std::size_t> keep(Plan plan);
  void drop(std::size_t plan);

  std::vector<Plan> plans_;
  std::deque<std::uint64_t> once_;  // digests
  std::vector<std::uint64_t> gone_;
  std::uint64_t clock_ = 0, replays_ = 0;
};

}  // namespace tilewise::scheduler
