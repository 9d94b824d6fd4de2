// What a plan will do, by the scheduler's own reckoning: the answer to Explain. Seconds are those of the cost model, bytes
// are exact where the account was simulated. And what it did, as far as that was measured.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/ir/grid.h>
#include <tilewise/ir/placement.h>
#include <tilewise/msg/lane.h>
#include <tilewise/msg/outcome.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewise::msg {

struct PassAccount {  // the graph after one pass
  std::string name;
  std::uint32_t ops = 0;
  std::string dump;  // a line an op, tapes below; cut short where it is very long
  friend bool operator==(const PassAccount&, const PassAccount&) = default;
};
struct ChoiceAccount {
  std::string policy;     // who proposed it, or "explicit ..."
  std::string placement;  // "4x2 tiles over 8 devices"
  double seconds = 0;     // of the busiest device; 0 where nothing was compared
  friend bool operator==(const ChoiceAccount&, const ChoiceAccount&) = default;
};
struct OpAccount {  // one planned op
  std::string op;   // "op 3 (map 'residual')"
  std::int64_t tasks = 0, steps = 0;
  double flops = 0;
  std::int64_t bytes_written = 0;
  std::int64_t bytes_moved = 0;               // of its inputs, to the devices that run it
  double begin_s = 0, end_s = 0, busy_s = 0;  // busy: summed over devices
  double critical_s = 0;                      // of the critical path
  std::vector<ChoiceAccount> choices;         // the one taken, then the best of those rejected, up to two
  friend bool operator==(const OpAccount&, const OpAccount&) = default;
};
struct DeviceAccount {
  DeviceId device;
  std::int64_t tasks = 0;
  std::int64_t bytes_before = 0, bytes_peak = 0, bytes_after = 0;  // of blocks
  std::int64_t bytes_memory = 0;                                   // its bound; 0: not known
  double busy_s = 0;
  std::int64_t bytes_below = 0;                        // bound of what it may have in the tiers below
  std::int64_t bytes_spilled = 0, bytes_returned = 0;  // that leave its memory for these, and come back
  double spill_s = 0;                                  // with such bytes on their way
  friend bool operator==(const DeviceAccount&, const DeviceAccount&) = default;
};
struct LinkAccount {  // blocks that `to` gets from `from`: their owner, or who passes them on
  DeviceId from, to;
  bool mapped = false;  // read in place
  std::int64_t blocks = 0, bytes = 0;
  double busy_s = 0;
  double bytes_per_s = 0;  // as reckoned
  bool measured = false;   // by transfers; else by topology
  friend bool operator==(const LinkAccount&, const LinkAccount&) = default;
};
struct CriticalAccount {  // a stretch of the critical path, first to last
  std::uint32_t op = 0;   // place in Explanation::ops
  DeviceId device;
  std::string what;  // "runs", or "moves": bytes are on their way to it
  double seconds = 0;
  friend bool operator==(const CriticalAccount&, const CriticalAccount&) = default;
};
struct ArrayAccount {
  std::uint64_t array = 0;  // the session's number
  ir::DType dtype = ir::DType::kFloat64;
  ir::Grid grid;
  ir::Placement placement;
  bool planned = false;  // not submitted yet: where it would be
  friend bool operator==(const ArrayAccount&, const ArrayAccount&) = default;
};

// What has to be there at once, at least, and what there is.
struct NeedAccount {
  std::vector<DeviceId> devices;  // one, or some together
  std::int64_t needed_bytes = 0;
  std::int64_t memory_bytes = 0,
               below_bytes = 0;  // of these devices; on disk and in pinned memory, where that helps
  std::string op;                // whose task needs most; none: it is what clients hold
  // Of `needed_bytes`: what that task reads, writes and works in; and results that clients keep there.
  std::int64_t input_bytes = 0, output_bytes = 0, scratch_bytes = 0, held_bytes = 0;
  friend bool operator==(const NeedAccount&, const NeedAccount&) = default;
};
constexpr std::size_t kMaxNeeds = 64;  // of one answer, and devices named in each

// What was measured of a graph, so far or in the end. Times of ops are those of the reports, some 10 ms apart.
struct MeasuredOp {
  OpId id;
  std::uint32_t op = 0;  // place in Explanation::ops
  std::int64_t tasks = 0, failed = 0;
  std::int64_t bytes_moved = 0;      // of its inputs, to the devices that ran it; of shares that are complete
  double begin_s = -1, end_s = -1;   // first and last news of its tasks, since the graph came; -1: none
  double busy_s = 0, busiest_s = 0;  // of its steps, summed over devices; of the busiest. Of complete shares
  friend bool operator==(const MeasuredOp&, const MeasuredOp&) = default;
};
struct MeasuredDevice {
  DeviceId device;
  std::int64_t tasks = 0;
  std::int64_t bytes_before = 0, bytes_peak = 0;       // while the graph ran, whoever's they were
  std::int64_t bytes_spilled = 0, bytes_returned = 0;  // likewise
  double busy_s = 0;                                   // of this graph's steps
  friend bool operator==(const MeasuredDevice&, const MeasuredDevice&) = default;
};
struct MeasuredLink {  // what `to` took in from `from` while the graph ran, for whomever
  DeviceId from, to;
  Lane lane = Lane::kSameDevice;
  std::int64_t blocks = 0, bytes = 0;
  double busy_s = 0;  // summed over transfers; 0 for what is read in place
  friend bool operator==(const MeasuredLink&, const MeasuredLink&) = default;
};
struct Measured {
  bool known = false;    // false: nothing of this is
  bool running = false;  // so these are figures so far
  bool alone = true;     // no other graph ran meanwhile: what is told of devices and links is its own
  Outcome outcome;       // of one that has ended
  double seconds = 0;    // from its submission to its end, or to now
  double ago_s = 0;      // since its submission
  std::int64_t tasks = 0, tasks_done = 0;
  std::uint32_t forgotten = 0;  // ops of which nothing is known any more
  std::vector<MeasuredOp> ops;  // by place
  std::vector<MeasuredDevice> devices;
  std::vector<MeasuredLink> links;  // most bytes first
  friend bool operator==(const Measured&, const Measured&) = default;
};

}  // namespace tilewise::msg
