#include "minimum.h"

#include <algorithm>

namespace tilewise::sim {

void Minimum::learn(const msg::Plan& plan) {
  for (const msg::PlannedOp& planned : plan.ops) {
    const ir::Op& op = planned.op;
    if (op.kind == ir::OpKind::kFetch) {
      fetches_[plan.graph].insert(op.operands[0].array);
    } else if (op.kind == ir::OpKind::kKeep) {
      keeps_.emplace(planned.id.value, op.operands[0].array);
    } else if (op.kind == ir::OpKind::kProvide) {
      if (!makes_.contains(planned.id.value))  // else a newcomer is told of what there is
        uploads_.emplace(op.outputs[0].array, plan.graph);
    } else if (!makes_.contains(planned.id.value)) {
      can_tell_ = can_tell_ && !op.outputs.empty() &&
                  std::ranges::all_of(op.outputs, [](const ir::OutputSpec& output) {
                    return ir::volume(output.grid.shape()) > 0;
                  });
      if (!can_tell_) return;
      const std::uint64_t first = makes_[planned.id.value] = op.outputs[0].array;
      const std::int64_t points = op.space.block_count();
      for (const ir::OutputSpec& output : op.outputs) {
        results_[first].push_back(output.array);
        first_[output.array] = first, arrays_[output.array] = points;
        for (std::int64_t p = 0; p < points; ++p)
          makers_[{output.array, p}] = {
              planned.id, p, planned.placement.owner(ir::unravel(p, op.space.counts())), false, false};
      }
    }
  }
}

// Calls visit(block, device) for what the layer has or makes; but for results that others have, which it makes for nobody.
template <class F> void Minimum::each_block(const msg::PlannedOp& layer, F&& visit) const {
  for (const ir::OutputSpec& output : layer.op.outputs) {
    if (!arrays_.contains(output.array)) continue;
    for (const ir::Run& run : layer.placement.listed()->runs()) {
      for (std::int64_t p = run.first; p < run.first + run.count; ++p)
        visit(BlockId{output.array, p}, run.device);
    }
  }
}

void Minimum::learn(const msg::Recover& recover) {
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& layer : plan.ops) {
      const auto of = makes_.find(layer.of.value);
      if (of == makes_.end() || layer.placement.listed() == nullptr) continue;
      makes_[layer.id.value] = of->second;
      each_block(layer, [&](const BlockId& block, DeviceId device) {
        makers_[block] = {layer.id, block.second, device, layer.done, !layer.done};
        forgotten_.erase(block);
      });
    }
  }
}

void Minimum::learn(const msg::Retire& retire) {
  for (const OpId op : retire.ops) {
    keeps_.erase(op.value);
    const auto made = makes_.find(op.value);
    if (made == makes_.end()) continue;
    for (const std::uint64_t array : results_.at(made->second))
      for (std::int64_t p = 0; p < arrays_.at(array); ++p) forgotten_.emplace(array, p);
  }
}

std::set<BlockId> Minimum::made_again(const msg::Recover& recover) const {
  std::set<BlockId> again;
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& layer : plan.ops) {
      if (layer.done || layer.placement.listed() == nullptr) continue;
      each_block(layer, [&](const BlockId& block, DeviceId) { again.insert(block); });
    }
  }
  return again;
}

std::map<TaskId, std::vector<BlockId>> Minimum::again_on(const std::vector<DeviceId>& devices) const {
  std::map<TaskId, std::vector<BlockId>> out;
  for (const auto& [block, maker] : makers_) {
    if (maker.again && std::ranges::find(devices, maker.device) != devices.end())
      out[{maker.op.value, maker.point}].push_back(block);
  }
  return out;
}

Ran Minimum::ran(const Maker& maker, const Truth& truth) {
  const auto found = truth.ran.find({maker.op.value, maker.point});
  return maker.over ? Ran{.over = true} : found == truth.ran.end() ? Ran{} : found->second;
}

bool Minimum::missing(const BlockId& block, const Truth& truth, Bound bound) const {
  if (bound == Bound::kMost && forgotten_.contains(block)) return true;
  const Maker& maker = makers_.at(block);
  const Ran done = ran(maker, truth);
  if (truth.living.contains(maker.device) && !done.over && !truth.used_up.contains(block) &&
      !(done.spared && bound == Bound::kMost))
    return false;
  const auto here = truth.here.find(block);
  return here == truth.here.end() || std::ranges::none_of(here->second, [&](DeviceId device) {
           return truth.living.contains(device) || truth.left.contains(device);
         });
}

Minimum::Need Minimum::needed(const Truth& truth, Bound bound, Oracle& oracle) const {
  Need need;
  std::vector<BlockId> work = truth.wanted;
  const auto read_from = [&](const Maker& maker, std::int64_t step, std::vector<BlockId>& reads) {
    for (const std::int64_t steps = oracle.steps(maker.op, maker.point); step < steps; ++step) {
      for (const BlockId& read : oracle.reads(maker.op, maker.point, step)) reads.push_back(read);
    }
  };
  for (const auto& [made, maker] : makers_) {
    const Ran done = ran(maker, truth);
    const bool over = done.over || (done.spared && bound == Bound::kLeast);
    if (truth.living.contains(maker.device) && !over) read_from(maker, done.steps, work);
  }
  while (!work.empty()) {
    const BlockId block = work.back();
    work.pop_back();
    if (uploads_.contains(block.first)) continue;
    const BlockId task = task_of(block);
    if (!need.wanted[task].insert(block).second || !missing(block, truth, bound)) continue;
    need.missing.insert(block);
    if (!need.again.insert(task).second) continue;
    std::vector<BlockId> reads;
    read_from(makers_.at(block), 0, reads);
    for (const BlockId& read : reads) {
      const auto upload = uploads_.find(read.first);
      if (upload != uploads_.end())
        (truth.ended.contains(upload->second) ? need.lost : need.asked).insert(read);
    }
    work.insert(work.end(), reads.begin(), reads.end());
  }
  return need;
}

}  // namespace tilewise::sim
