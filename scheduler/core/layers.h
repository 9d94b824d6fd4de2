// Layers: ops that make some blocks of an earlier op's arrays, or say where they are now (docs/design/recovery.md).
#pragma once
#include "state.h"

#include <bitset>
#include <string>
#include <vector>

namespace tilewise::scheduler {

enum class Form {
  kAgain,     // what was lost is made again
  kAlone,     // the same, while nothing else runs on the worker
  kDoomed,    // it fails instead of running
  kKept,      // it is elsewhere
  kProvided,  // a client's array is to be known again
  kMoved      // what has not been begun is made by others
};

// Of an op's results, by their places.
using Results = std::bitset<limits::kMaxOutputs>;

// Puts a layer on the head and at the end of `plans`. `runs`: of all forms but kProvided. `priority`: at least that. `results`: of which
// it says who has or makes them; none: all.
void add_layer(State& s, std::vector<msg::Plan>& plans, OpRecord& head, std::vector<ir::Run> runs, Form form,
               std::int32_t priority = INT32_MIN, const Results& results = {});
// The op as a worker runs it.
ir::Op op_to_run(const OpRecord& record);

// The last record that says of any of the task's results who has or makes it, or none.
const OpRecord* maker_of(const State& s, const OpRecord& head, const ir::Index& point);
// That says who has or makes the task's block of that result.
const OpRecord* holder_of(const State& s, const OpRecord& head, ArrayId result, const ir::Index& point);
// Some result of the task is this record's, the head's or a layer's, to have or to make (all, if it has none).
bool stands_for(const State& s, const OpRecord& head, const OpRecord& record, const ir::Index& point);

// Who has or makes each block now, in closed form: the head's own rule with what its layers say in its place, about (99 of 100 blocks)
// where that makes the rule shorter. As planned where there are no layers, the array is replicated or has more than kMaxOverlaid blocks,
// or no short rule says it better. Worked out once for each set of layers; valid until the head gets another one.
// `budget`: blocks that may be looked at, less those that were; without enough of it, and not known yet: as planned.
constexpr std::int64_t kMaxOverlaid = 65'536;
const ir::Placement& layered_placement(const State& s, const OpRecord& head, std::int64_t* budget = nullptr);

// The same with lost devices replaced by others, for placing what reads the blocks.
ir::Placement without_lost(const State& s, const ir::Placement& placement);

// They make the same bits: their kind is one, and their numeric class.
bool same_class(const State& s, DeviceId a, DeviceId b);
// Devices of living workers that make the same bits of the op's results as `like`, rising: those of its class whose workers
// have the op's plug-in. Of what is read from a checkpoint, any.
std::vector<DeviceId> devices_like(const State& s, const OpRecord& head, DeviceId like);

}  // namespace tilewise::scheduler
