// A tape made ready to run: every instruction knows its vector loop and where its tile of results goes.
#pragma once
#include <tilewise/ir/tape.h>

#include <boost/container/small_vector.hpp>

#include "map/chain.h"
#include "map/lanes.h"

#include <optional>
#include <span>

namespace tilewise::kernels::map {

struct ProgramInstr {
  enum class Kind : std::uint8_t { kLoad, kConst, kIota, kRandom, kRandomBelow, kLane } kind = Kind::kConst;
  ir::DType dtype = ir::DType::kFloat64;  // of the elements in the tile
  std::uint8_t arity = 0;
  std::uint16_t args[kMaxLaneArgs] = {};
  std::uint16_t slot = 0;    // tile buffer of the result, shared by instructions whose lives do not overlap
  std::uint16_t source = 0;  // kLoad, kIota, kRandom*: which of the program's sources
  std::uint16_t first_step = 0, step_count = 0;  // of a chain: those of the program's steps that it takes
  LaneFn lane = nullptr;
  RandomFn random = nullptr;
  std::int64_t imm_i = 0;
  double imm_f = 0;
};

// SSA results live from their instruction to their last use; slots are reused as soon as that has passed, hot ones
// first, so that a long tape stays within the first-level cache.
//
// Narrow dtypes exist in memory only: a load widens them, an operation on them is that of ir::compute_dtype followed by one
// that makes the result fit, and the last instruction of each output narrows.
struct Program {
  static constexpr int kMaxCode = 3 * limits::kMaxTapeInstructions + 4 * limits::kMaxOutputs;
  boost::container::small_vector<ProgramInstr, 32> code;
  boost::container::small_vector<ChainStep, 32> steps;  // of chains
  int slots = 0;
  int sources = 0;
  std::int64_t width = 8;  // bytes of the widest element
  // The instructions that give the outputs, as memory holds them: each another. Their slots are nobody else's afterwards.
  boost::container::static_vector<std::uint16_t, limits::kMaxOutputs> results;

  ir::DType result(std::size_t i = 0) const { return code[results[i]].dtype; }
  std::span<const ChainStep> steps_of(const ProgramInstr& in) const {
    return std::span(steps.data(), steps.size()).subspan(in.first_step, in.step_count);
  }
  bool is_one_load() const { return code.size() == 1 && code[0].kind == ProgramInstr::Kind::kLoad; }

  // `as`: converts the result of a tape of one output to this dtype. kUnsupported names the instruction and its dtypes.
  // Expects what ir::Tape::verify has checked.
  static Result<Program> make(const ir::Tape& tape, std::optional<ir::DType> as = std::nullopt);
};

}  // namespace tilewise::kernels::map
