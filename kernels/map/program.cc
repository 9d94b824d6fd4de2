#include "map/program.h"

#include <tilewise/ir/element_types.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tilewise::kernels::map {
namespace {

using ir::DType;
using Kind = ProgramInstr::Kind;
using ir::TapeOp;

// Results that lie in the narrow dtype's range whenever the arguments do.
bool keeps_fitting(TapeOp op) {
  switch (op) {
    case TapeOp::kSign:
    case TapeOp::kFloor:
    case TapeOp::kCeil:
    case TapeOp::kTrunc:
    case TapeOp::kRound:
    case TapeOp::kMinimum:
    case TapeOp::kMaximum:
    case TapeOp::kAnd:
    case TapeOp::kOr:
    case TapeOp::kXor:
    case TapeOp::kWhere:
    case TapeOp::kCopysign:
    case TapeOp::kNextafter: return true;
    default: return false;
  }
}

// Appends to a program what instructions of a tape become.
class Lowering {
 public:
  explicit Lowering(Program& program) : program_(program) {}

  Status add(const ir::Tape& tape, const ir::TapeInstr& in) {
    const DType wide = ir::compute_dtype(in.dtype);
    ProgramInstr out;
    out.dtype = in.dtype;
    out.imm_i = in.imm_i;
    out.imm_f = in.imm_f;
    switch (in.op) {
      case TapeOp::kLoad:
        out.kind = Kind::kLoad;
        source(out);
        if (wide != in.dtype) lane(find_widen(in.dtype), wide, {last()});
        break;
      case TapeOp::kConst:
        out.kind = Kind::kConst;
        out.dtype = wide;
        if (in.dtype == DType::kFloat16) out.imm_f = ir::Float16(in.imm_f);
        if (in.dtype == DType::kBFloat16) out.imm_f = ir::BFloat16(in.imm_f);
        push(out, TapeOp::kConst);
        break;
      case TapeOp::kIota:
        if (in.dtype != DType::kInt64) return refuse(in);
        out.kind = Kind::kIota;
        source(out);
        break;
      case TapeOp::kUniform:
      case TapeOp::kNormal:
      case TapeOp::kRandomInt:
      case TapeOp::kRandomBelow:
        out.kind = in.op == TapeOp::kRandomBelow ? Kind::kRandomBelow : Kind::kRandom;
        out.random = find_random(in.op, in.dtype);
        if (out.random == nullptr) return refuse(in);
        if (in.op == TapeOp::kRandomBelow) {
          out.arity = 1;
          out.args[0] = value_[in.a];
        }
        source(out);
        break;
      case TapeOp::kCast: {
        if (narrow_truth(tape, in)) break;
        TW_ASSIGN(const std::uint16_t at, cast(value_[in.a], tape.code[in.a].dtype, in.dtype));
        value_.push_back(at);
        return {};
      }
      default: TW_TRY(operation(tape, in));
    }
    value_.push_back(last());
    return {};
  }

  // To another dtype, as it is in the tile; an alias where nothing changes.
  Result<std::uint16_t> cast(std::uint16_t at, DType from, DType to) {
    if (from == to) return at;
    const DType wide = ir::compute_dtype(to);
    DType now = ir::compute_dtype(from);
    if (ir::is_complex(wide) && !ir::is_complex(now) && now != ir::real_dtype(wide)) {
      if (!lane(find_lane(TapeOp::kCast, ir::real_dtype(wide), now), ir::real_dtype(wide), {at}))
        return refused(TapeOp::kCast, to);
      now = ir::real_dtype(wide);
      at = last();
    }
    if (const LaneFn once = find_round(to, now); once != nullptr) {
      lane(once, wide, {at});
      return last();
    }
    if (now != wide && !same_bits(now, wide)) {
      if (!lane(find_lane(TapeOp::kCast, wide, now), wide, {at}, TapeOp::kCast))
        return refused(TapeOp::kCast, to);
      at = last();
    }
    if (to != wide) {
      lane(find_fit(to), wide, {at});
      at = last();
    }
    return at;
  }

  // The output that instruction `of` of a tape gives, as memory of dtype `to` holds it.
  Status finish(std::uint16_t of, DType from, DType to) {
    TW_ASSIGN(std::uint16_t at, cast(value_[of], from, to));
    if (ir::is_narrow(to)) {
      if (program_.code[at].lane == find_fit(to)) at = program_.code[at].args[0];  // narrowing makes it fit
      lane(find_narrow(to), to, {at});
      at = last();
    }
    // What is another output too, an operand (whose memory another output may take) or no loop's is copied; a last instruction
    // that fills its slot is not.
    const Kind kind = program_.code[at].kind;
    const bool taken =
        std::find(program_.results.begin(), program_.results.end(), at) != program_.results.end();
    if (taken || kind == Kind::kLoad || (kind != Kind::kLane && at != last())) {
      const DType t = program_.code[at].dtype;
      lane(find_lane(TapeOp::kCast, t, t), t, {at});
      if (program_.code.back().lane == nullptr) return refused(TapeOp::kCast, t);
      at = last();
    }
    program_.results.push_back(at);
    return {};
  }

  // What no output comes of: widened operands of which only the truth is wanted, say.
  void drop_dead() {
    std::vector<bool> lives(program_.code.size(), false);
    for (const std::uint16_t at : program_.results) lives[at] = true;
    for (std::size_t i = program_.code.size(); i-- > 0;) {
      const ProgramInstr& in = program_.code[i];
      if (in.kind != Kind::kLane) lives[i] = true;  // sources are numbered
      for (int k = 0; lives[i] && k < in.arity; ++k) lives[in.args[k]] = true;
    }
    std::vector<std::uint16_t> place(program_.code.size());
    std::uint16_t next = 0;
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      place[i] = next;
      if (!lives[i]) continue;
      ProgramInstr in = program_.code[i];
      for (int k = 0; k < in.arity; ++k) in.args[k] = place[in.args[k]];
      ops_[next] = ops_[i];
      program_.code[next++] = in;
    }
    program_.code.resize(next);
    ops_.resize(next);
    for (std::uint16_t& at : program_.results) at = place[at];
  }

  const std::vector<TapeOp>& ops() const { return ops_; }

 private:
  static bool same_bits(DType a, DType b) {
    return (a == DType::kInt64 && b == DType::kUInt64) || (a == DType::kUInt64 && b == DType::kInt64);
  }
  std::uint16_t last() const { return static_cast<std::uint16_t>(program_.code.size() - 1); }
  void push(ProgramInstr in, TapeOp op) {
    program_.width = std::max(program_.width, static_cast<std::int64_t>(ir::size_of(in.dtype)));
    program_.code.push_back(in);
    ops_.push_back(op);
  }
  void source(ProgramInstr in) {
    in.source = static_cast<std::uint16_t>(program_.sources++);
    push(in, TapeOp::kLoad);
  }
  bool lane(LaneFn fn, DType dtype, std::initializer_list<std::uint16_t> args, TapeOp op = TapeOp::kLoad) {
    ProgramInstr in;
    in.kind = Kind::kLane;
    in.dtype = dtype;
    in.lane = fn;
    for (const std::uint16_t a : args) in.args[in.arity++] = a;
    push(in, op);
    return fn != nullptr;
  }
  static Error refused(TapeOp op, DType t) {
    return error(Errc::kUnsupported, "tape instruction " + std::string(ir::name_of(op)) + " with result " +
                                         std::string(ir::name_of(t)) + " on the host");
  }
  static Error refuse(const ir::TapeInstr& in) { return refused(in.op, in.dtype); }

  // Whether elements differ from zero, of an operand of a narrow dtype: seen without widening it.
  bool narrow_truth(const ir::Tape& tape, const ir::TapeInstr& in) {
    const ir::TapeInstr& of = tape.code[in.a];
    if (of.op != TapeOp::kLoad || find_truth(of.dtype) == nullptr) return false;
    if (in.op == TapeOp::kNe) {
      const ir::TapeInstr& zero = tape.code[in.b];
      if (zero.op != TapeOp::kConst || (ir::is_floating(zero.dtype) ? zero.imm_f != 0 : zero.imm_i != 0))
        return false;
    } else if (in.op != TapeOp::kCast || in.dtype != DType::kBool) {
      return false;
    }
    return lane(find_truth(of.dtype), DType::kBool, {program_.code[value_[in.a]].args[0]});
  }

  Status operation(const ir::Tape& tape, const ir::TapeInstr& in) {
    if (narrow_truth(tape, in)) return {};
    const DType wide = ir::compute_dtype(in.dtype);
    const DType argument = tape.code[in.op == TapeOp::kWhere ? in.b : in.a].dtype;
    const LaneFn fn = in.op == TapeOp::kNextafter && ir::is_half(in.dtype)
                          ? find_nextafter(in.dtype)
                          : find_lane(in.op, wide, ir::compute_dtype(argument));
    if (fn == nullptr) return refuse(in);
    switch (ir::arity_of(in.op)) {
      case 1: lane(fn, wide, {value_[in.a]}, in.op); break;
      case 2: lane(fn, wide, {value_[in.a], value_[in.b]}, in.op); break;
      default: lane(fn, wide, {value_[in.a], value_[in.b], value_[in.c]}, in.op);
    }
    if (wide != in.dtype && !keeps_fitting(in.op)) lane(find_fit(in.dtype), wide, {last()});
    return {};
  }

  Program& program_;
  std::vector<std::uint16_t> value_;  // of the tape's instructions: where they are in the program
  std::vector<TapeOp> ops_;           // of the program's instructions; kLoad: none that joins a chain
};

void allocate_slots(Program& program) {
  const std::size_t n = program.code.size();
  std::array<std::uint16_t, Program::kMaxCode> last{};  // index of the last reader
  for (std::size_t i = 0; i < n; ++i) {
    last[i] = static_cast<std::uint16_t>(i);
    for (int k = 0; k < program.code[i].arity; ++k)
      last[program.code[i].args[k]] = static_cast<std::uint16_t>(i);
  }
  for (const std::uint16_t at : program.results) last[at] = Program::kMaxCode;  // read by the caller
  boost::container::small_vector<std::uint16_t, 64> free;
  for (std::size_t i = 0; i < n; ++i) {
    ProgramInstr& in = program.code[i];
    boost::container::static_vector<std::uint16_t, kMaxLaneArgs + 1> later;
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
  if (tape.code.size() == 1 && tape.output_count() == 1 && tape.code[0].op == TapeOp::kLoad &&
      as.value_or(tape.result()) == tape.result()) {
    ProgramInstr load;  // passed on as it is
    load.kind = Kind::kLoad;
    load.dtype = tape.result();
    load.imm_i = tape.code[0].imm_i;
    program.width = std::max<std::int64_t>(8, static_cast<std::int64_t>(ir::size_of(load.dtype)));
    program.code.push_back(load);
    program.results.push_back(0);
    program.sources = program.slots = 1;
    return program;
  }
  Lowering lowering(program);
  for (const ir::TapeInstr& in : tape.code) TW_TRY(lowering.add(tape, in));
  for (std::size_t i = 0; i < tape.output_count(); ++i)
    TW_TRY(lowering.finish(tape.output(i), tape.result(i), as.value_or(tape.result(i))));
  lowering.drop_dead();
  join_chains(program, lowering.ops());
  allocate_slots(program);
  return program;
}

}  // namespace tilewise::kernels::map
