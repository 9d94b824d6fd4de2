#include "minimum.h"

#include <tilewise/base/check.h>

namespace tilewise::sim {

void Minimum::learn(const msg::Plan& plan) {
  for (const msg::PlannedOp& planned : plan.ops) {
    const ir::Op& op = planned.op;
    if (op.kind == ir::OpKind::kFetch) fetches_[plan.graph].insert(op.operands[0].array);
    if (op.kind == ir::OpKind::kKeep) {
      keeps_.emplace(planned.id.value, op.operands[0].array);
      continue;
    }
    if (op.kind == ir::OpKind::kFetch || makes_.contains(planned.id.value)) continue;
    const bool plain = op.outputs.size() == 1 && op.kind != ir::OpKind::kProvide &&
                       ir::volume(op.outputs[0].grid.shape()) > 0;
    can_tell_ = can_tell_ && plain;
    if (!plain) continue;
    const std::uint64_t array = op.outputs[0].array;
    makes_[planned.id.value] = array;
    const std::int64_t blocks = arrays_[array] = op.space.block_count();
    for (std::int64_t b = 0; b < blocks; ++b)
      makers_[{array, b}] = {planned.id, b, planned.placement.owner(ir::unravel(b, op.space.counts())),
                             false};
  }
}

void Minimum::learn(const msg::Recover& recover) {
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& layer : plan.ops) {
      const auto of = makes_.find(layer.of.value);
      if (of == makes_.end() || layer.placement.listed() == nullptr) continue;
      const std::uint64_t array = makes_[layer.id.value] = of->second;
      for (const ir::Run& run : layer.placement.listed()->runs()) {
        for (std::int64_t b = run.first; b < run.first + run.count; ++b)
          makers_[{array, b}] = {layer.id, b, run.device, layer.done}, forgotten_.erase({array, b});
      }
    }
  }
}

void Minimum::learn(const msg::Retire& retire) {
  for (const OpId op : retire.ops) {
    keeps_.erase(op.value);
    const auto made = makes_.find(op.value);
    if (made == makes_.end()) continue;
    for (std::int64_t b = 0; b < arrays_.at(made->second); ++b) forgotten_.emplace(made->second, b);
  }
}

std::set<BlockId> Minimum::made_again(const msg::Recover& recover, const Oracle& oracle) {
  std::set<BlockId> again;
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& layer : plan.ops) {
      if (layer.done || layer.placement.listed() == nullptr) continue;
      for (const ir::Run& run : layer.placement.listed()->runs()) {
        for (std::int64_t b = run.first; b < run.first + run.count; ++b)
          again.emplace(oracle.made(layer.of, 0), b);
      }
    }
  }
  return again;
}

std::set<BlockId> Minimum::needed(const Truth& truth, Oracle& oracle) const {
  std::set<BlockId> again;
  std::vector<BlockId> work = truth.wanted;
  const auto read_from = [&](const Maker& maker, std::int64_t step) {
    for (const std::int64_t steps = oracle.steps(maker.op, maker.point); step < steps; ++step) {
      for (const BlockId& read : oracle.reads(maker.op, maker.point, step)) work.push_back(read);
    }
  };
  const auto ran = [&](const Maker& maker) {
    const auto found = truth.ran.find({maker.op.value, maker.point});
    return maker.over ? Ran{0, true} : found == truth.ran.end() ? Ran{} : found->second;
  };
  for (const auto& [block, maker] : makers_) {
    if (truth.living.contains(maker.device) && !ran(maker).over) read_from(maker, ran(maker).steps);
  }
  while (!work.empty()) {
    const BlockId block = work.back();
    work.pop_back();
    const Maker& maker = makers_.at(block);
    const bool comes = truth.living.contains(maker.device) && !ran(maker).over &&
                       !truth.used_up.contains({maker.op.value, maker.point});
    const bool here = truth.here.contains(block) && !forgotten_.contains(block);
    if (comes || here || !again.insert(block).second) continue;
    read_from(maker, 0);
  }
  return again;
}

}  // namespace tilewise::sim
