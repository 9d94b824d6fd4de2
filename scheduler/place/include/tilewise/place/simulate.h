// Runs a placed plan on paper: every step of every task, every block, every transfer, in the order in which workers would
// take them. Exact in bytes and counts where workers follow the same rules; seconds are those of Speeds and links.
#pragma once
#include <tilewise/ir/geometry.h>
#include <tilewise/ir/placement.h>
#include <tilewise/place/speeds.h>

#include <span>
#include <string>
#include <vector>

namespace tilewise::place {

struct SimArray {
  ir::SourceArray source;
  const ir::Placement* placement = nullptr;
  bool exists = false;  // before the plan begins
  bool held = false;    // stays after its last reader
};
struct SimOp {
  const ir::Op* op = nullptr;  // kKeep: blocks that it reads stay there as long as the array is held
  const ir::Geometry* geometry = nullptr;  // null: nothing runs, its one operand's blocks go to `to` (kFetch)
  const ir::Placement* placement = nullptr;
  std::vector<std::size_t> inputs;  // arrays, one an operand
  std::vector<std::size_t> outputs;
  DeviceId to;
  std::uint32_t graph = 0;  // place in SimOptions::graphs
};
struct SimGraph {  // whose turn it is where several run: worker/core/fair_share.cc
  SessionId session;
  std::uint32_t weight = 100;
  std::int32_t priority = 0;
};
struct SimTier {  // below a device's memory: what it may have there, and how fast bytes go there and back
  std::int64_t bytes = 0;
  double bytes_per_s = 0;
};
struct SimOptions {
  std::int64_t max_steps = 200'000;  // beyond, nothing is simulated
  std::int32_t window = 512;         // tasks a device looks ahead
  std::int64_t tree_bytes = kTreeBytes, parts_bytes = kPartsBytes, chain_bytes = kChainBytes;
  bool by_level = true;              // false: as if no op had a level (place/levels.h)
  double client_bytes_per_s = 5e9;   // results on their way to clients
  std::vector<SimGraph> graphs{{}};  // that run at once
  std::vector<std::vector<SimTier>>
      below;                // by device, the fastest first; of those that are left out: nothing
  std::uint32_t asked = 0;  // everything told is of this one, but for bytes on devices, which are everybody's
};

struct SimDevice {
  DeviceId id;
  std::int64_t tasks = 0;
  std::int64_t bytes_before = 0, bytes_peak = 0, bytes_after = 0;  // of blocks, multiples of 256
  double busy_s = 0;
  std::int64_t bytes_spilled = 0, bytes_returned = 0;  // to the tiers below, and back
  double spill_s = 0;                                  // that these took
};
struct SimNeed {  // a task that found no room, though nothing was left that could make any
  std::size_t op = 0;
  DeviceId device;
  std::int64_t bytes = 0;                          // what it would have taken ...
  std::int64_t input_bytes = 0, output_bytes = 0;  // ... beside what stays: its step's
};
struct SimLink {
  DeviceId from, to;  // from: the owner, or who passes its blocks on
  bool mapped = false;
  std::int64_t blocks = 0, bytes = 0;
  double busy_s = 0;
};
struct SimOpResult {
  std::int64_t tasks = 0, steps = 0, bytes_moved = 0;
  double flops = 0, begin_s = 0, end_s = 0, busy_s = 0, critical_s = 0;
};
struct SimCritical {    // one stretch of the chain that decides the end
  bool moves = false;   // bytes on their way to it; else it runs
  bool spills = false;  // it waits for room in memory, or for what comes back
  std::size_t op = 0;   // of another graph too, where that had to end first
  DeviceId device;
  double seconds = 0;
};
struct Simulation {
  bool complete = false;  // false: more steps than allowed; then only counts are filled in
  std::int64_t tasks = 0, steps = 0;
  double flops = 0;
  double seconds = 0;
  double bound_s = 0;  // all work spread evenly over the devices that are used, or the longest chain of steps
  std::vector<SimDevice> devices;  // those of `devices`, in their order
  std::vector<SimLink> links;      // by (from, to), what is read in place last
  std::vector<SimOpResult> ops;
  std::vector<SimCritical> critical;
  // Where devices have bounds (Device::memory_bytes) that the plan passes, it is run again within them: what is read last leaves for
  // the tiers below. What finds no room even so goes on without it, and is told here.
  bool fits = true;
  std::vector<SimNeed> needs;  // the first of each device
};

// `devices` sorted by id. Ops of a graph in plan order: that and the C order of points is the order of its tasks.
Simulation simulate(std::span<const SimOp> ops, std::span<const SimArray> arrays,
                    std::span<const Device> devices, const Speeds& speeds, const SimOptions& options = {});

}  // namespace tilewise::place
