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
      results_[first] = op.outputs.size();
      for (const ir::OutputSpec& output : op.outputs)
        first_[output.array] = first, arrays_[output.array] = points;
      for (std::int64_t p = 0; p < points; ++p)
        makers_[{first, p}] = {planned.id, p, planned.placement.owner(ir::unravel(p, op.space.counts())),
                               false, false};
    }
  }
}

void Minimum::learn(const msg::Recover& recover) {
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& layer : plan.ops) {
      const auto of = makes_.find(layer.of.value);
      if (of == makes_.end() || layer.placement.listed() == nullptr) continue;
      const std::uint64_t first = makes_[layer.id.value] = of->second;
      for (const ir::Run& run : layer.placement.listed()->runs()) {
        for (std::int64_t p = run.first; p < run.first + run.count; ++p)
          makers_[{first, p}] = {layer.id, p, run.device, layer.done, !layer.done},
                          forgotten_.erase({first, p});
      }
    }
  }
}

void Minimum::learn(const msg::Retire& retire) {
  for (const OpId op : retire.ops) {
    keeps_.erase(op.value);
    const auto made = makes_.find(op.value);
    if (made == makes_.end()) continue;
    for (std::int64_t p = 0; p < arrays_.at(made->second); ++p) forgotten_.emplace(made->second, p);
  }
}

std::set<BlockId> Minimum::made_again(const msg::Recover& recover) const {
  std::set<BlockId> again;
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& layer : plan.ops) {
      if (layer.done || layer.placement.listed() == nullptr) continue;
      for (const ir::Run& run : layer.placement.listed()->runs()) {
        for (std::int64_t p = run.first; p < run.first + run.count; ++p)
          again.emplace(makes_.at(layer.of.value), p);
      }
    }
  }
  return again;
}

std::vector<std::pair<TaskId, BlockId>> Minimum::again_on(const std::vector<DeviceId>& devices) const {
  std::vector<std::pair<TaskId, BlockId>> out;
  for (const auto& [task, maker] : makers_) {
    if (maker.again && std::ranges::find(devices, maker.device) != devices.end())
      out.push_back({{maker.op.value, maker.point}, task});
  }
  return out;
}

Ran Minimum::ran(const Maker& maker, const Truth& truth) {
  const auto found = truth.ran.find({maker.op.value, maker.point});
  return maker.over ? Ran{.over = true} : found == truth.ran.end() ? Ran{} : found->second;
}

// Of these results of the task.
bool Minimum::missing(const BlockId& task, const std::set<BlockId>& wanted, const Truth& truth,
                      Bound bound) const {
  // Retired: it is over, and what is left of its results is on its way out, or has been found there once more.
  if (bound == Bound::kMost && forgotten_.contains(task)) return true;
  const Maker& maker = makers_.at(task);
  const bool lives = truth.living.contains(maker.device);
  const auto is_on = [&](const BlockId& block, DeviceId device) {
    const Ran done = ran(maker, truth);
    const bool comes = lives && device == maker.device && !done.over && !truth.used_up.contains(block) &&
                       !(done.spared && bound == Bound::kMost);
    const auto here = truth.here.find(block);
    return comes || (here != truth.here.end() && here->second.contains(device));
  };
  const auto any_device = [&](auto&& what) {
    return std::ranges::any_of(truth.living, what) || std::ranges::any_of(truth.left, what);
  };
  const auto all_on = [&](DeviceId device) {
    return std::ranges::all_of(wanted, [&](const BlockId& block) { return is_on(block, device); });
  };
  if (bound == Bound::kMost && results_of(task) > 1)
    return lives ? !all_on(maker.device) : !any_device(all_on);
  return !std::ranges::all_of(wanted, [&](const BlockId& block) {
    return any_device([&](DeviceId device) { return is_on(block, device); });
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
  for (const auto& [task, maker] : makers_) {
    const Ran done = ran(maker, truth);
    const bool over = done.over || (done.spared && bound == Bound::kLeast);
    if (truth.living.contains(maker.device) && !over) read_from(maker, done.steps, work);
  }
  while (!work.empty()) {
    const BlockId block = work.back();
    work.pop_back();
    if (uploads_.contains(block.first)) continue;
    const BlockId task = task_of(block);
    std::set<BlockId>& wanted = need.wanted[task];
    if (!wanted.insert(block).second || need.again.contains(task) || !missing(task, wanted, truth, bound))
      continue;
    need.again.insert(task);
    std::vector<BlockId> reads;
    read_from(makers_.at(task), 0, reads);
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
