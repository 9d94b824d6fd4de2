// Chains: instructions of one float dtype whose values only they read, as one loop. Between its steps there is one value, in
// registers; what is read again later is kept in a block that stays in the first-level cache.
#pragma once
#include "map/lanes.h"

#include <span>

namespace tilewise::kernels::map {

struct Program;

using ChainFn = void (*)();  // what it is depends on instruction set and dtype: for the chain's own loop only

struct ChainStep {
  enum class What : std::uint8_t { kLoad, kOp, kCall, kSave } what = What::kOp;
  enum class Side : std::uint8_t { kNone, kLeft, kRight } side = Side::kNone;  // of a binary op: where its operand stands;
                                                                               // kNone: both are the value
  ir::TapeOp op = ir::TapeOp::kAdd;
  std::uint8_t operand = 0;  // an argument of the loop; from kMaxLaneArgs on, a kept value
  LaneFn lane = nullptr;     // kCall: a unary loop over one block, through memory
  ChainFn fn = nullptr;
};

constexpr int kMaxChainMembers = 32, kMaxChainSteps = 3 * kMaxChainMembers;

// Makes chains of a program's instructions, where two or more can be; `ops[i]` is what code[i] came from.
void join_chains(Program& program, std::span<const ir::TapeOp> ops);

// The loop of all chains of a dtype, and what one step of a chain is in it. Null where a chain has no such step.
LaneFn find_chain_lane(ir::DType t);
ChainFn find_chain_step(const ChainStep& step, ir::DType t);

}  // namespace tilewise::kernels::map
