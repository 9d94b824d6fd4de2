// What ops have in common: the entry of an op and of its replays, plans that may be replayed, and tables of what small ops
// read and who uses it.
#pragma once
#include "pool.h"

#include <tilewise/worker/core.h>

#include <boost/container/small_vector.hpp>
#include <memory>
#include <span>
#include <vector>

namespace tilewise::worker {

struct BlockRead {
  std::uint8_t operand = 0;
  std::int64_t block = 0;
};

// What a geometry and a placement say of an op whose tasks are few and have one step: written out once for all ops that have
// both in common, as the turns of a loop do, and looked up instead of being worked out for each task three times.
class TaskTable {
 public:
  struct Use {
    DeviceId device;
    std::int64_t reads = 0;  // of all its points together
    std::int64_t ahead =
        0;  // the highest ordinal of those that come first in a box of points (Geometry::users)
  };

  // None if there is too much to write out. `local`: this worker's devices.
  static std::unique_ptr<const TaskTable> of(const ir::Geometry& geometry, const ir::Placement& placement,
                                             const std::vector<ir::SourceArray>& sources,
                                             const std::vector<DeviceId>& local);

  // Of the task with this ordinal on the local device `d`.
  std::int64_t point(std::uint16_t d, std::int64_t ordinal) const { return row(d, ordinal).point; }
  std::span<const BlockRead> reads(std::uint16_t d, std::int64_t ordinal) const {
    const Row& r = row(d, ordinal);
    return {reads_.data() + r.first, r.count};
  }
  // Devices with points that read the block, each once, in order of first appearance.
  std::span<const Use> uses(int operand, std::int64_t block) const {
    const std::size_t at = first_block_[static_cast<std::size_t>(operand)] + static_cast<std::size_t>(block);
    return {uses_.data() + first_use_[at], first_use_[at + 1] - first_use_[at]};
  }

 private:
  static constexpr std::int64_t kMaxPoints = 256;
  static constexpr std::size_t kMaxEntries = 4096;  // reads, blocks, uses
  struct Row {
    std::int64_t point = 0;
    std::uint32_t first = 0, count = 0;
  };
  const Row& row(std::uint16_t d, std::int64_t ordinal) const {
    return rows_[first_row_[d] + static_cast<std::size_t>(ordinal)];
  }
  std::vector<Row> rows_;
  std::vector<std::size_t> first_row_;  // by local device
  std::vector<BlockRead> reads_;
  std::vector<Use> uses_;
  std::vector<std::size_t> first_block_;  // by operand
  std::vector<std::uint32_t> first_use_;  // by block
};

struct SharedEntry;

// Those in use. Not thread-safe.
class TaskTables {
 public:
  // Gives the entry the table of ops with its geometry and placement, from the second one on. let_go() before the entry goes.
  void give(SharedEntry& entry, const std::vector<DeviceId>& local);
  void let_go(const SharedEntry& entry);

 private:
  static constexpr std::size_t kTables = 64;  // nothing beyond these is kept, whatever entries there are
  struct Known {
    ir::SharedGeometry geometry;
    ir::Placement placement;
    bool made = false;
    std::unique_ptr<const TaskTable> table;
    std::int64_t users = 0;  // entries
  };
  std::vector<Known> known_;
  std::size_t oldest_ = 0;
};

// Shared by the ops of a plan and of its replays.
struct SharedEntry : OpEntry {
  std::int64_t users = 0;            // ops and kept plans
  const TaskTable* table = nullptr;  // tables[in_tables]
  std::size_t in_tables = 0;
};

// A plan that the scheduler may name again (msg::Replay).
struct KeptPlan {
  struct KeptOp {
    Slot shared = kNone;  // its entry
    OpId id;
    std::int64_t level_ns = 0;
    boost::container::small_vector<std::int32_t, 4>
        inputs;  // by operand: place in Replay::inputs, or -1: made by the plan
  };
  std::vector<KeptOp> ops;
  std::vector<std::uint64_t> holds;
  std::uint64_t first_array = 0;
  std::vector<ir::SourceArray> inputs;
  std::size_t constants = 0;  // the highest number of one
};

constexpr std::size_t kMaxKeptPlans = 1024;  // the scheduler keeps fewer, and says which go

}  // namespace tilewise::worker
