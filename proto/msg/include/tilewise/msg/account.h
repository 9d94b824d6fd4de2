// What a plan will do, by the scheduler's own reckoning: the answer to Explain. Seconds are those of the cost model, bytes
// are exact where the account was simulated.
#pragma once
#include <tilewise/ir/grid.h>
#include <tilewise/ir/placement.h>

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

}  // namespace tilewise::msg
