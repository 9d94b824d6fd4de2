// Elementwise fusion: a producer's tape is inlined where its result would have been loaded.
//
// The value of every element is computed by the same operations in the same order and rounded to the same dtypes as
// when it passed through memory, so fused equals unfused bit for bit. What depends on the element's position (iota) is
// rewritten for the reader's coordinates; what counts positions (random numbers) is inlined only where they agree.
#include "passes.h"
#include "sources.h"
#include "tape_writer.h"

#include <tilewise/ir/verify.h>

#include <algorithm>
#include <optional>

namespace tilewise::plan {
namespace {

using ir::TapeInstr;
using ir::TapeOp;

bool is_random(TapeOp op) {
  return op == TapeOp::kUniform || op == TapeOp::kNormal || op == TapeOp::kRandomInt ||
         op == TapeOp::kRandomBelow;
}

std::uint16_t add_int(TapeWriter& tape, std::int64_t value) {
  TapeInstr instr;
  instr.op = TapeOp::kConst;
  instr.dtype = ir::DType::kInt64;
  instr.imm_i = value;
  return tape.add(instr);
}

// start + step * iota(dim) of the reader, for the producer's iota of one dimension seen through `view`.
std::uint16_t add_iota(TapeWriter& tape, const TapeInstr& iota, const ir::View& view) {
  const ir::SourceDim& at = view.source[static_cast<std::size_t>(iota.imm_i)];
  if (at.dim < 0) return add_int(tape, at.start);
  TapeInstr index = iota;
  index.imm_i = at.dim;
  std::uint16_t value = tape.add(index);
  const auto binary = [&](TapeOp op, std::uint16_t b) {
    TapeInstr instr;
    instr.op = op;
    instr.dtype = ir::DType::kInt64;
    instr.a = value, instr.b = b;
    value = tape.add(instr);
  };
  if (at.step != 1) binary(TapeOp::kMul, add_int(tape, at.step));
  if (at.start != 0) binary(TapeOp::kAdd, add_int(tape, at.start));
  return value;
}

class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph), sources_(graph), uses_(graph.ops.size(), 0) {
    for (const ir::Op& op : graph.ops) count_uses(op, 1);
  }

  void run() {
    std::vector<bool> gone(graph_.ops.size(), false);
    for (std::size_t c = 0; c < graph_.ops.size(); ++c) {
      const ir::OpKind kind = graph_.ops[c].kind;
      if (kind != ir::OpKind::kMap && kind != ir::OpKind::kReduce) continue;
      // Producers come before, so each has already taken in its own. Every success takes one edge out of the graph.
      for (std::size_t i = 0; i < graph_.ops[c].operands.size();) {
        const auto* producer = sources_.producer(graph_.ops[c].operands[i].array);
        std::optional<ir::Op> fused;
        if (producer != nullptr && may_inline(producer->op, c)) {
          fused = inline_into(graph_.ops[producer->op], graph_.ops[c], i);
        }
        if (!fused) {
          ++i;
          continue;
        }
        const std::size_t p = producer->op;
        count_uses(graph_.ops[c], -1);
        graph_.ops[c] = std::move(*fused);
        count_uses(graph_.ops[c], 1);
        if (uses_[p] == 0 && !held(graph_.ops[p])) {
          gone[p] = true;
          count_uses(graph_.ops[p], -1);
        }
        i = 0;  // the operands were renumbered
      }
    }
    erase_ops(graph_, gone);
  }

 private:
  void count_uses(const ir::Op& op, int by) {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const auto end = op.operands.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::find(op.operands.begin(), end, op.operands[i]) != end) continue;
      if (const auto* producer = sources_.producer(op.operands[i].array)) uses_[producer->op] += by;
    }
  }

  bool held(const ir::Op& op) const {
    return std::binary_search(graph_.holds.begin(), graph_.holds.end(), op.outputs[0].array);
  }

  bool may_inline(std::size_t p, std::size_t c) const {
    const ir::Op& producer = graph_.ops[p];
    const ir::Op& consumer = graph_.ops[c];
    if (producer.kind != ir::OpKind::kMap || producer.outputs.size() != 1) return false;
    // Two explicit placements stay two ops: both wishes are kept.
    if (!producer.hint.devices.empty() && !consumer.hint.devices.empty() && producer.hint != consumer.hint)
      return false;
    if (uses_[p] == 1 && !held(producer)) return true;
    // A source without operands costs less to make again than to load, random numbers excepted.
    if (!producer.operands.empty() || !producer.hint.devices.empty()) return false;
    const auto& code = producer.get<ir::MapAttrs>().tape.code;
    return std::none_of(code.begin(), code.end(), [](const TapeInstr& i) { return is_random(i.op); });
  }

  // The consumer with the producer's tape in place of operand `slot`; nothing where that would not be the same.
  std::optional<ir::Op> inline_into(const ir::Op& producer, const ir::Op& consumer, std::size_t slot) const {
    const ir::View& view = consumer.operands[slot].view;
    const ir::Tape& inner = *tape_of(producer);
    const ir::Tape& outer = *tape_of(consumer);
    const bool same_positions =
        view.is_identity(producer.space.shape()) && producer.space.shape() == consumer.space.shape();
    for (const TapeInstr& instr : inner.code) {
      if (is_random(instr.op) && !same_positions) return std::nullopt;
    }
    ir::Op fused = consumer;
    fused.operands.clear();
    TapeWriter tape;
    std::vector<std::uint16_t> outer_at(outer.code.size());
    std::optional<std::uint16_t> inlined;
    const auto inline_producer = [&]() -> std::uint16_t {
      if (inlined) return *inlined;
      std::vector<std::uint16_t> at(inner.code.size());
      for (std::size_t i = 0; i < inner.code.size(); ++i) {
        TapeInstr instr = inner.code[i];
        if (instr.op == TapeOp::kIota) {
          at[i] = add_iota(tape, instr, view);
          continue;
        }
        if (instr.op == TapeOp::kLoad) {
          const ir::Operand& operand = producer.operands[static_cast<std::size_t>(instr.imm_i)];
          instr.imm_i = operand_number(fused.operands, {operand.array, ir::compose(view, operand.view)});
        }
        remap(instr, at);
        at[i] = tape.add(instr);
      }
      inlined = at.back();
      return at.back();
    };
    for (std::size_t i = 0; i < outer.code.size(); ++i) {
      TapeInstr instr = outer.code[i];
      if (instr.op == TapeOp::kLoad) {
        const auto operand = static_cast<std::size_t>(instr.imm_i);
        if (consumer.operands[operand] == consumer.operands[slot]) {
          if (instr.dtype != inner.result()) return std::nullopt;
          outer_at[i] = inline_producer();
          continue;
        }
        instr.imm_i = operand_number(fused.operands, consumer.operands[operand]);
      }
      remap(instr, outer_at);
      outer_at[i] = tape.add(instr);
      if (tape.size() > static_cast<std::size_t>(limits::kMaxTapeInstructions)) return std::nullopt;
    }
    *tape_of(fused) = tape.finish(outputs_at(outer, outer_at));
    if (fused.hint.devices.empty()) fused.hint = producer.hint;
    if (fused.label.empty()) fused.label = producer.label;
    return acceptable(fused, consumer) ? std::optional(std::move(fused)) : std::nullopt;
  }

  // Within limits, verified, and no operand that must now be gathered which had not to be before.
  bool acceptable(const ir::Op& fused, const ir::Op& consumer) const {
    if (fused.operands.size() > static_cast<std::size_t>(limits::kMaxTapeLoads)) return false;
    if (tape_of(fused)->code.size() > static_cast<std::size_t>(limits::kMaxTapeInstructions)) return false;
    auto of = sources_.of(fused);
    if (!of) return false;
    for (std::size_t i = 0; i < fused.operands.size(); ++i) {
      const ir::Operand& operand = fused.operands[i];
      const bool old =
          std::find(consumer.operands.begin(), consumer.operands.end(), operand) != consumer.operands.end();
      if (!old && !ir::aligned(operand.view, (*of)[i].grid, fused.space)) return false;
    }
    return static_cast<bool>(ir::verify(fused, *of));
  }

  Graph& graph_;
  Sources sources_;
  std::vector<std::int64_t> uses_;  // distinct operands that read an op's results
};

}  // namespace

void fuse_elementwise(Graph& graph) { Fuser(graph).run(); }

}  // namespace tilewise::plan
