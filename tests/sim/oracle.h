// What every block must be, computed from the plan alone: no copies, no transfers, no order of events.
#pragma once
#include <tilewise/ir/geometry.h>
#include <tilewise/msg/msg.h>

#include <map>
#include <optional>
#include <set>

namespace tilewise::sim {

class Oracle {
 public:
  void learn(const msg::Plan& plan);
  void learn(const msg::Replay& replay);
  void learn(const msg::Recover& recover);  // the same blocks, made by ops of other names
  bool knows(std::uint64_t array) const { return producer_.contains(array); }
  // The value of a block: a hash of the op and of everything its task reads, in the order it reads it.
  std::uint64_t value(std::uint64_t array, std::int64_t block);
  // The (array, block) pairs that a step reads, in order.
  std::vector<std::pair<std::uint64_t, std::int64_t>> reads(OpId op, std::int64_t point, std::int64_t step);
  std::int64_t steps(OpId op, std::int64_t point) const {
    const Known& known = ops_.at(op.value);
    return known.geometry.steps(known.geometry.point(point));
  }
  msg::Plan plan_of(const msg::Replay& replay) const { return msg::expand(kept_.at(replay.plan), replay); }
  // The array that an output of the op is a part of: a launch does not know its name.
  std::uint64_t made(OpId op, std::size_t output) const {
    return ops_.at(op.value).op.outputs.at(output).array;
  }
  bool is_spare(OpId op, std::size_t output) const {  // what it makes of that is nobody's
    const std::vector<bool>& spare = ops_.at(op.value).spare;
    return output < spare.size() && spare[output];
  }
  std::size_t results(OpId op) const { return ops_.at(op.value).op.outputs.size(); }
  // The op at this position of a graph as it was planned; none: there is no such.
  std::optional<OpId> planned(GraphId graph, std::size_t position) const;
  bool restores(OpId op) const;                              // from a checkpoint
  OpId head(OpId op) const { return ops_.at(op.value).id; }  // as it was planned
  const ir::OpAttrs& attrs(OpId op) const { return ops_.at(op.value).op.attrs; }
  ir::OpKind kind(OpId op) const { return ops_.at(op.value).op.kind; }
  std::int64_t points(OpId op) const { return ops_.at(op.value).op.space.block_count(); }
  // Whether the task is the one that makes the block, or reads it or what was made from it.
  bool depends(OpId op, std::int64_t point, std::uint64_t array, std::int64_t block);
  std::int64_t bytes(std::uint64_t array, std::int64_t block) const;
  std::int64_t blocks(std::uint64_t array) const;
  // Made by workers, not by a client.
  bool computed(std::uint64_t array) const {
    return ops_.at(producer_.at(array).first).op.kind != ir::OpKind::kProvide;
  }
  std::int64_t graphs_reading(std::uint64_t array) const {
    const auto it = readers_.find(array);
    return it == readers_.end() ? 0 : static_cast<std::int64_t>(it->second.size());
  }

 private:
  struct Known {
    OpId id;  // of the op as it was planned
    ir::Op op;
    ir::Geometry geometry;
    std::vector<bool> spare;  // of a layer: results that others have
  };
  static std::vector<std::pair<std::uint64_t, std::int64_t>> listed(const ir::Op& op, std::int64_t point);

  std::map<std::uint64_t, msg::Plan> kept_;  // by Plan::keep_as
  std::map<std::uint64_t, Known> ops_;       // by OpId
  std::map<std::uint64_t, std::set<GraphId>> readers_;
  std::map<GraphId, std::vector<OpId>> planned_;                     // in the order of the plan
  std::map<std::uint64_t, std::pair<std::uint64_t, int>> producer_;  // array -> (op, output)
  std::map<std::pair<std::uint64_t, std::int64_t>, std::uint64_t> values_;
};

}  // namespace tilewise::sim
