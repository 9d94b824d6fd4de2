// Tapes out of tapes: each distinct instruction once, for equal operations on equal arguments give equal bits.
#pragma once
#include <tilewise/ir/op.h>

#include <algorithm>
#include <vector>

namespace tilewise::plan {

class TapeWriter {
 public:
  std::uint16_t add(const ir::TapeInstr& instr) {  // they compare by bits: 0.0 is not -0.0
    const auto same = std::find(code_.begin(), code_.end(), instr);
    if (same != code_.end()) return static_cast<std::uint16_t>(same - code_.begin());
    code_.push_back(instr);
    return static_cast<std::uint16_t>(code_.size() - 1);
  }
  std::size_t size() const { return code_.size(); }

  // The tape, with outputs at these instructions.
  ir::Tape finish(const std::vector<std::uint16_t>& outputs) {
    if (outputs.size() > 1) {
      ir::Tape tape{std::move(code_)};
      tape.outputs.assign(outputs.begin(), outputs.end());
      return tape;
    }
    // A single output is the last instruction by definition, so an earlier equal one must not swallow it.
    if (static_cast<std::size_t>(outputs[0]) + 1 != code_.size()) {
      const ir::TapeInstr last = code_[outputs[0]];
      code_.push_back(last);
    }
    return {std::move(code_)};
  }

 private:
  std::vector<ir::TapeInstr> code_;
};

// `at`: where earlier instructions have come to stand.
inline void remap(ir::TapeInstr& instr, const std::vector<std::uint16_t>& at) {
  const int arity = ir::arity_of(instr.op);
  if (arity > 0) instr.a = at[instr.a];
  if (arity > 1) instr.b = at[instr.b];
  if (arity > 2) instr.c = at[instr.c];
}
inline std::vector<std::uint16_t> outputs_at(const ir::Tape& tape, const std::vector<std::uint16_t>& at) {
  std::vector<std::uint16_t> outputs;
  for (std::size_t o = 0; o < tape.output_count(); ++o) outputs.push_back(at[tape.output(o)]);
  return outputs;
}

// The number of an operand among `operands`, at whose end it is put if it is not there yet.
inline std::int64_t operand_number(std::vector<ir::Operand>& operands, const ir::Operand& operand) {
  const auto same = std::find(operands.begin(), operands.end(), operand);
  if (same != operands.end()) return same - operands.begin();
  operands.push_back(operand);
  return static_cast<std::int64_t>(operands.size() - 1);
}

}  // namespace tilewise::plan
