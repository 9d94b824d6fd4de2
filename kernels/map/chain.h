// Chains: instructions of one float dtype whose values only they read, as one loop. Between its steps there is one value, in
// registers; what is read again later is kept in a block that stays in the first-level cache.
//
// Booleans that come of comparing such floats, or choose among them, belong to the chain. Within it they are masks: elements of
// the float's size, all of whose bits are set or none. In memory they are bytes as everywhere.
#pragma once
#include "map/lanes.h"

#include <span>

namespace tilewise::kernels::map {

struct Program;

using ChainFn = void (*)();  // what it is depends on instruction set and dtype: for the chain's own loop only

struct ChainStep {
  enum class What : std::uint8_t {
    kLoad,
    kLoadBytes,  // an argument of booleans, as a mask
    kOp,
    kOther,     // the other operand of the ternary op before it: no step of its own
    kToMask,    // numbers as booleans
    kFromMask,  // booleans as numbers
    kCall,
    kSave,
    kEndBytes,  // a mask is the result; it is stored as bytes. (What else a chain ends with needs no step.)
  } what = What::kOp;
  // Of a binary or ternary op: which of its arguments the value in registers is. The others are operands.
  enum class Value : std::uint8_t { kAll, kFirst, kSecond, kThird } value = Value::kAll;
  ir::TapeOp op = ir::TapeOp::kAdd;
  static constexpr std::uint8_t kNone = 0xff;
  std::uint8_t operand = kNone;  // an argument of the loop; from kMaxLaneArgs on, a kept value
  LaneFn lane = nullptr;         // kCall: a unary loop over one block, through memory
  ChainFn fn = nullptr;
};

constexpr int kMaxChainMembers = 32, kMaxChainKept = kMaxChainMembers + kMaxLaneArgs,
              kMaxChainSteps = 4 * kMaxChainMembers + 2 * kMaxLaneArgs + 1;

// Makes chains of a program's instructions, where two or more can be; `ops[i]` is what code[i] came from.
void join_chains(Program& program, std::span<const ir::TapeOp> ops);

// The loop of all chains of a float dtype, and what one step of a chain is in it. Null where a chain has no such step.
LaneFn find_chain_lane(ir::DType t);
ChainFn find_chain_step(const ChainStep& step, ir::DType t);

}  // namespace tilewise::kernels::map
