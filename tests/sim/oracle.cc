#include "oracle.h"

#include <tilewise/base/check.h>
#include <tilewise/base/digest.h>
#include <tilewise/ir/checkpoint.h>

namespace tilewise::sim {
namespace {

bool is_restore(const ir::Op& op) {
  return op.kind == ir::OpKind::kCall && op.get<ir::CallAttrs>().kernel == ir::checkpoint::kRestore;
}

}  // namespace

bool Oracle::restores(OpId op) const { return is_restore(ops_.at(op.value).op); }

void Oracle::learn(const msg::Replay& replay) { learn(plan_of(replay)); }

void Oracle::learn(const msg::Plan& plan) {
  if (plan.keep_as != 0) kept_.emplace(plan.keep_as, plan);
  if (const auto [known, fresh] = planned_.try_emplace(plan.graph); fresh) {
    for (const msg::PlannedOp& planned : plan.ops) known->second.push_back(planned.id);
  }
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
    ops_.emplace(planned.id.value, Known{planned.id, planned.op, std::move(*geometry), {}});
  }
}

void Oracle::learn(const msg::Recover& recover) {
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& planned : plan.ops) {
      const auto original = ops_.find(planned.of.value);
      TW_CHECK(original != ops_.end(), "a recovery of an op that was never planned");
      Known known = original->second;
      known.spare.clear();
      if (is_restore(planned.op)) {  // it reads a file; what it makes is the same
        // Its space is the array's own grid; a reduction's is over what that reads, with as many points.
        TW_CHECK(
            planned.op.outputs == known.op.outputs && planned.op.space.counts() == known.op.space.counts(),
            "a checkpoint is of another array");
        auto geometry = ir::Geometry::make(planned.op, {});
        TW_CHECK(geometry.has_value(), "a checkpoint is read by an op without a geometry");
        known.op = planned.op;
        known.geometry = std::move(*geometry);
      }
      if (!planned.done && planned.doomed.ok()) {
        // What others have is made under a name that nobody knows.
        ir::Op op = planned.op;
        TW_CHECK(op.outputs.size() == known.op.outputs.size(), "a recovery makes too little");
        for (std::size_t i = 0; i < op.outputs.size(); ++i) {
          known.spare.push_back(!producer_.contains(op.outputs[i].array));
          if (known.spare[i]) op.outputs[i].array = known.op.outputs[i].array;
        }
        TW_CHECK(op == known.op, "a recovery makes a block otherwise");
      }
      ops_.emplace(planned.id.value, known);
    }
  }
}

std::vector<std::pair<std::uint64_t, std::int64_t>> Oracle::reads(OpId op, std::int64_t point,
                                                                  std::int64_t step) {
  const Known& known = ops_.at(op.value);
  if (known.op.kind == ir::OpKind::kCall && !known.op.get<ir::CallAttrs>().explicit_maps.empty())
    return listed(known.op, point);
  std::vector<ir::Read> reads;
  known.geometry.reads(known.geometry.point(point), step, reads);
  std::vector<std::pair<std::uint64_t, std::int64_t>> out;
  for (const ir::Read& read : reads) out.emplace_back(known.op.operands[read.operand].array, read.block);
  return out;
}

std::optional<OpId> Oracle::planned(GraphId graph, std::size_t position) const {
  const auto known = planned_.find(graph);
  if (known == planned_.end() || position >= known->second.size()) return {};
  return known->second[position];
}

bool Oracle::depends(OpId op, std::int64_t point, std::uint64_t array, std::int64_t block) {
  const std::pair maker(producer_.at(array).first, block);
  std::set<std::pair<std::uint64_t, std::int64_t>> seen;
  std::vector<std::pair<std::uint64_t, std::int64_t>> work{{ops_.at(op.value).id.value, point}};
  while (!work.empty()) {
    const auto task = work.back();
    work.pop_back();
    if (task == maker) return true;
    if (!seen.insert(task).second) continue;
    const OpId id{task.first};
    for (std::int64_t step = 0; step < steps(id, task.second); ++step) {
      for (const auto& [read, b] : reads(id, task.second, step))
        work.emplace_back(producer_.at(read).first, b);
    }
  }
  return false;
}

// What the lists say, in the words of the user who wrote them.
std::vector<std::pair<std::uint64_t, std::int64_t>> Oracle::listed(const ir::Op& op, std::int64_t point) {
  const auto& maps = op.get<ir::CallAttrs>().explicit_maps;
  std::vector<std::pair<std::uint64_t, std::int64_t>> out;
  for (std::size_t o = 0; o < maps.size(); ++o) {
    const auto p = static_cast<std::size_t>(point);
    for (std::size_t k = maps[o].offsets.at(p); k < maps[o].offsets.at(p + 1); ++k)
      out.emplace_back(op.operands.at(o).array, maps[o].blocks.at(k));
  }
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
