#include "map/program.h"

#include <array>

namespace tilewise::kernels::map {
namespace {

using Kind = ProgramInstr::Kind;
using ir::TapeOp;

Result<ProgramInstr> lower(const ir::Tape& tape, const ir::TapeInstr& in) {
  ProgramInstr out;
  out.dtype = in.dtype;
  out.imm_i = in.imm_i;
  out.imm_f = in.imm_f;
  out.arity = static_cast<std::uint8_t>(ir::arity_of(in.op));
  const std::uint16_t args[3] = {in.a, in.b, in.c};
  for (int k = 0; k < out.arity; ++k) out.args[k] = args[k];
  const auto arg_type = [&] { return tape.code[in.op == TapeOp::kWhere ? in.b : in.a].dtype; };
  bool found = true;
  switch (in.op) {
    case TapeOp::kLoad: out.kind = Kind::kLoad; break;
    case TapeOp::kConst: out.kind = Kind::kConst; break;
    case TapeOp::kIota:
      out.kind = Kind::kIota;
      found = in.dtype == ir::DType::kInt64;
      break;
    case TapeOp::kUniform:
    case TapeOp::kNormal:
    case TapeOp::kRandomInt:
    case TapeOp::kRandomBelow:
      out.kind = in.op == TapeOp::kRandomBelow ? Kind::kRandomBelow : Kind::kRandom;
      out.random = find_random(in.op, in.dtype);
      found = out.random != nullptr;
      break;
    default:
      out.kind = Kind::kLane;
      out.lane = find_lane(in.op, in.dtype, arg_type());
      found = out.lane != nullptr;
  }
  if (!found) {
    return error(Errc::kUnsupported, "tape instruction " + std::string(ir::name_of(in.op)) + " with result " +
                                         std::string(ir::name_of(in.dtype)) + " on the host");
  }
  return out;
}

// Joins an instruction with the only reader of its result where one loop does both: loads, stores and dispatch of what
// lies between are saved. `ops[i]` is what code[i] came from.
void fuse_pairs(Program& program, const std::array<TapeOp, Program::kMaxCode>& ops) {
  const std::size_t n = program.code.size();
  std::array<std::uint16_t, Program::kMaxCode> uses{}, moved{};
  for (const ProgramInstr& in : program.code) {
    for (int k = 0; k < in.arity; ++k) ++uses[in.args[k]];
  }
  ++uses[n - 1];
  std::array<bool, Program::kMaxCode> joined{}, gone{};
  for (std::size_t i = 0; i < n; ++i) {
    ProgramInstr& outer = program.code[i];
    if (outer.kind != Kind::kLane || outer.arity > 2) continue;
    for (int k = 0; k < outer.arity; ++k) {
      const std::uint16_t at = outer.args[k];
      const ProgramInstr& inner = program.code[at];
      if (inner.kind != Kind::kLane || uses[at] != 1 || joined[at] || inner.dtype != outer.dtype) continue;
      const LaneFn lane = find_fused(ops[i], ops[at], k == 0, outer.dtype);
      if (lane == nullptr) continue;
      const std::uint16_t other = outer.args[1 - k];
      outer.lane = lane;
      for (int a = 0; a < inner.arity; ++a) outer.args[a] = inner.args[a];
      if (outer.arity == 2) outer.args[inner.arity] = other;
      outer.arity = static_cast<std::uint8_t>(outer.arity - 1 + inner.arity);
      joined[i] = gone[at] = true;
      break;
    }
  }
  std::uint16_t kept = 0;
  for (std::size_t i = 0; i < n; ++i) {
    moved[i] = kept;
    if (gone[i]) continue;
    ProgramInstr in = program.code[i];
    for (int k = 0; k < in.arity; ++k) in.args[k] = moved[in.args[k]];
    program.code[kept++] = in;
  }
  program.code.resize(kept);
}

void allocate_slots(Program& program) {
  const std::size_t n = program.code.size();
  std::array<std::uint16_t, Program::kMaxCode> last{};  // index of the last reader
  for (std::size_t i = 0; i < n; ++i) {
    last[i] = static_cast<std::uint16_t>(i);
    for (int k = 0; k < program.code[i].arity; ++k)
      last[program.code[i].args[k]] = static_cast<std::uint16_t>(i);
  }
  last[n - 1] = Program::kMaxCode;  // read by the caller
  boost::container::static_vector<std::uint16_t, Program::kMaxCode> free;
  for (std::size_t i = 0; i < n; ++i) {
    ProgramInstr& in = program.code[i];
    boost::container::static_vector<std::uint16_t, 3> later;
    for (int k = 0; k < in.arity; ++k) {
      const std::uint16_t a = in.args[k];
      bool seen = last[a] != i;
      for (int j = 0; j < k; ++j) seen = seen || in.args[j] == a;
      if (seen) continue;
      // In place only between elements of one size: a wider result would overtake its argument.
      const bool same = ir::size_of(program.code[a].dtype) == ir::size_of(in.dtype);
      if (same)
        free.push_back(program.code[a].slot);
      else
        later.push_back(program.code[a].slot);
    }
    if (free.empty()) {
      in.slot = static_cast<std::uint16_t>(program.slots++);
    } else {
      in.slot = free.back();
      free.pop_back();
    }
    if (last[i] == i) later.push_back(in.slot);  // dead code
    for (const std::uint16_t slot : later) free.push_back(slot);
  }
}

}  // namespace

Result<Program> Program::make(const ir::Tape& tape, std::optional<ir::DType> as) {
  if (tape.code.empty() || tape.code.size() > static_cast<std::size_t>(limits::kMaxTapeInstructions)) {
    return error(Errc::kInvalidArgument, "a tape of " + std::to_string(tape.code.size()) + " instructions");
  }
  Program program;
  std::array<TapeOp, Program::kMaxCode> ops{};
  for (const ir::TapeInstr& in : tape.code) {
    ops[program.code.size()] = in.op;
    TW_ASSIGN(ProgramInstr out, lower(tape, in));
    if (out.kind != Kind::kConst && out.kind != Kind::kLane) {
      out.source = static_cast<std::uint16_t>(program.sources++);
    }
    program.code.push_back(out);
  }
  if (as && *as != tape.result()) {
    ProgramInstr cast;
    ops[program.code.size()] = TapeOp::kCast;
    cast.kind = Kind::kLane;
    cast.dtype = *as;
    cast.arity = 1;
    cast.args[0] = static_cast<std::uint16_t>(program.code.size() - 1);
    cast.lane = find_lane(TapeOp::kCast, *as, tape.result());
    program.code.push_back(cast);
  }
  fuse_pairs(program, ops);
  allocate_slots(program);
  return program;
}

}  // namespace tilewise::kernels::map
