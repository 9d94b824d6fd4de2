#include "oracle.h"

#include <tilewise/base/check.h>
#include <tilewise/base/digest.h>

namespace tilewise::sim {

void Oracle::learn(const msg::Replay& replay) { learn(msg::expand(kept_.at(replay.plan), replay)); }

void Oracle::learn(const msg::Plan& plan) {
  if (plan.keep_as != 0) kept_.emplace(plan.keep_as, plan);
  for (const msg::PlannedOp& planned : plan.ops) {
    if (ops_.contains(planned.id.value)) continue;
    std::vector<ir::SourceArray> sources;
    for (const ir::Operand& operand : planned.op.operands) {
      readers_[operand.array].insert(plan.graph);
      const auto& [op, output] = producer_.at(operand.array);
      const ir::OutputSpec& spec = ops_.at(op).op.outputs[static_cast<std::size_t>(output)];
      sources.push_back({spec.dtype, spec.grid});
    }
    auto geometry = ir::Geometry::make(planned.op, std::move(sources));
    TW_CHECK(geometry.has_value(),
             "the scheduler planned an op without a geometry: " + geometry.error().message);
    for (std::size_t i = 0; i < planned.op.outputs.size(); ++i) {
      producer_[planned.op.outputs[i].array] = {planned.id.value, static_cast<int>(i)};
    }
    ops_.emplace(planned.id.value, Known{planned.id, planned.op, std::move(*geometry)});
  }
}

void Oracle::learn(const msg::Recover& recover) {
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& planned : plan.ops) {
      const auto original = ops_.find(planned.of.value);
      TW_CHECK(original != ops_.end(), "a recovery of an op that was never planned");
      const Known known = original->second;
      TW_CHECK(planned.done || !planned.doomed.ok() || planned.op == known.op,
               "a recovery makes a block otherwise");
      ops_.emplace(planned.id.value, known);
    }
  }
}

std::vector<std::pair<std::uint64_t, std::int64_t>> Oracle::reads(OpId op, std::int64_t point,
                                                                  std::int64_t step) {
  const Known& known = ops_.at(op.value);
  std::vector<ir::Read> reads;
  known.geometry.reads(known.geometry.point(point), step, reads);
  std::vector<std::pair<std::uint64_t, std::int64_t>> out;
  for (const ir::Read& read : reads) out.emplace_back(known.op.operands[read.operand].array, read.block);
  return out;
}

std::int64_t Oracle::bytes(std::uint64_t array, std::int64_t block) const {
  const auto& [op, output] = producer_.at(array);
  const ir::OutputSpec& spec = ops_.at(op).op.outputs[static_cast<std::size_t>(output)];
  return spec.grid.box(ir::unravel(block, spec.grid.counts())).volume() *
         static_cast<std::int64_t>(ir::size_of(spec.dtype));
}

std::int64_t Oracle::blocks(std::uint64_t array) const {
  const auto& [op, output] = producer_.at(array);
  return ops_.at(op).op.outputs[static_cast<std::size_t>(output)].grid.block_count();
}

std::uint64_t Oracle::value(std::uint64_t array, std::int64_t block) {
  if (const auto it = values_.find({array, block}); it != values_.end()) return it->second;
  const auto [op, output] = producer_.at(array);
  const Known& known = ops_.at(op);
  const ir::Index point = known.geometry.point(block);
  Digest h;
  h.mix(op);
  h.mix(static_cast<std::uint64_t>(output));
  h.mix(static_cast<std::uint64_t>(block));
  for (std::int64_t step = 0; step < known.geometry.steps(point); ++step) {
    for (const auto& [a, b] : reads(known.id, block, step)) h.mix(value(a, b));
  }
  return values_[{array, block}] = h.value();
}

}  // namespace tilewise::sim
