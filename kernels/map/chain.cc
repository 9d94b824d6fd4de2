#include "map/chain.h"

#include <algorithm>
#include <array>

#include "map/program.h"

namespace tilewise::kernels::map {
namespace {

using Kind = ProgramInstr::Kind;
using ir::TapeOp;
using Values = boost::container::static_vector<std::uint16_t, kMaxChainMembers>;

bool holds(std::span<const std::uint16_t> values, std::uint16_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

class Joining {
 public:
  Joining(Program& program, std::span<const TapeOp> ops) : program_(program), ops_(ops) {
    for (const ProgramInstr& in : program.code)
      for (int k = 0; k < in.arity; ++k) ++uses_[in.args[k]];
    for (const std::uint16_t at : program.results) ++uses_[at];
  }

  void run() {
    for (std::size_t i = program_.code.size(); i-- > 0;)
      if (!gone_[i] && can_join(i)) grow(static_cast<std::uint16_t>(i));
    close_ranks();
  }

 private:
  ChainStep step_of(std::size_t i) const {
    ChainStep step{.op = ops_[i]};
    const ProgramInstr& in = program_.code[i];
    for (int k = 0; k < in.arity; ++k)
      if (program_.code[in.args[k]].dtype != in.dtype)
        return step;  // comparisons, magnitudes of complex numbers
    if (find_chain_step(step, in.dtype) == nullptr && in.arity == 1)
      step.what = ChainStep::What::kCall, step.lane = in.lane;
    step.fn = find_chain_step(step, in.dtype);
    return step;
  }
  bool can_join(std::size_t i) const {
    const ProgramInstr& in = program_.code[i];
    return in.kind == Kind::kLane && in.arity <= 2 && ops_[i] != TapeOp::kLoad && step_of(i).fn != nullptr;
  }

  // The chain that ends with `root`: all before it that can join and are read by the chain alone, latest first.
  void grow(std::uint16_t root) {
    const ir::DType dtype = program_.code[root].dtype;
    Values members{root};  // descending
    boost::container::small_vector<std::uint16_t, 16> arguments;
    std::array<std::uint8_t, Program::kMaxCode> inside{};  // uses by members
    const auto read = [&](std::uint16_t member) {
      const ProgramInstr& in = program_.code[member];
      for (int k = 0; k < in.arity; ++k) {
        ++inside[in.args[k]];
        if (!holds(arguments, in.args[k])) arguments.push_back(in.args[k]);
      }
    };
    read(root);
    for (std::uint16_t i = root; i-- > 0 && members.size() < members.capacity();) {
      if (inside[i] == 0 || inside[i] != uses_[i] || gone_[i] || program_.code[i].dtype != dtype ||
          !can_join(i))
        continue;
      const auto before = arguments;
      arguments.erase(std::find(arguments.begin(), arguments.end(), i));
      members.push_back(i);
      read(i);
      if (arguments.size() <= kMaxLaneArgs) continue;
      members.pop_back();
      arguments = before;
      for (int k = 0; k < program_.code[i].arity; ++k) --inside[program_.code[i].args[k]];
    }
    if (members.size() < 2) return;
    std::reverse(members.begin(), members.end());
    lay_out(members, {arguments.data(), arguments.size()});
  }

  void lay_out(const Values& members, std::span<const std::uint16_t> arguments) {
    const std::uint16_t root = members.back();
    ProgramInstr& lane = program_.code[root];
    lane.first_step = static_cast<std::uint16_t>(program_.steps.size());
    const auto step = [&](ChainStep it) {
      it.fn = find_chain_step(it, lane.dtype);
      program_.steps.push_back(it);
    };
    constexpr std::uint16_t kNobody = 0xffff;
    std::array<std::uint16_t, kMaxChainMembers> kept;
    kept.fill(kNobody);
    const auto keep = [&](std::uint16_t value, std::uint16_t instead) {
      const auto at = std::find(kept.begin(), kept.end(), instead);
      *at = value;
      return static_cast<std::uint8_t>(kMaxLaneArgs + (at - kept.begin()));
    };
    const auto where = [&](std::uint16_t value) {
      const auto argument = std::find(arguments.begin(), arguments.end(), value);
      if (argument != arguments.end()) return static_cast<std::uint8_t>(argument - arguments.begin());
      return static_cast<std::uint8_t>(kMaxLaneArgs +
                                       (std::find(kept.begin(), kept.end(), value) - kept.begin()));
    };
    const auto reads = [&](std::uint16_t member, std::uint16_t value) {
      const ProgramInstr& in = program_.code[member];
      return holds({in.args, in.arity}, value);
    };
    std::uint16_t now = kNobody;  // whose value is in registers
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::uint16_t at = members[m];
      const ProgramInstr in = program_.code[at];
      const std::uint16_t a = in.args[0], b = in.args[in.arity - 1];
      const bool has_b = a != b && now == b;
      if (now != a && !has_b) step({.what = ChainStep::What::kLoad, .operand = where(a)});
      if (a == b)
        program_.steps.push_back(step_of(at));
      else if (has_b)
        step({.side = ChainStep::Side::kLeft, .op = ops_[at], .operand = where(a)});
      else
        step({.side = ChainStep::Side::kRight, .op = ops_[at], .operand = where(b)});
      now = at;
      const std::span<const std::uint16_t> later(members.data() + m + 1, members.size() - m - 1);
      const auto wanted = [&](std::uint16_t value, std::span<const std::uint16_t> by) {
        return std::any_of(by.begin(), by.end(), [&](std::uint16_t member) { return reads(member, value); });
      };
      for (const std::uint16_t value : {a, b})
        if (holds({kept.data(), kept.size()}, value) && !wanted(value, later)) keep(kNobody, value);
      if (later.empty()) break;
      if (!reads(later[0], at) || wanted(at, later.subspan(1)))
        step({.what = ChainStep::What::kSave, .operand = keep(at, kNobody)});
      gone_[at] = true;
    }
    lane.lane = find_chain_lane(lane.dtype);
    lane.step_count = static_cast<std::uint16_t>(program_.steps.size() - lane.first_step);
    lane.arity = static_cast<std::uint8_t>(arguments.size());
    std::copy(arguments.begin(), arguments.end(), lane.args);
  }

  void close_ranks() {
    std::array<std::uint16_t, Program::kMaxCode> moved{};
    std::uint16_t kept = 0;
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      moved[i] = kept;
      if (gone_[i]) continue;
      ProgramInstr in = program_.code[i];
      for (int k = 0; k < in.arity; ++k) in.args[k] = moved[in.args[k]];
      program_.code[kept++] = in;
    }
    program_.code.resize(kept);
    for (std::uint16_t& at : program_.results) at = moved[at];
  }

  Program& program_;
  std::span<const TapeOp> ops_;
  std::array<std::uint16_t, Program::kMaxCode> uses_{};
  std::array<bool, Program::kMaxCode> gone_{};
};

}  // namespace

void join_chains(Program& program, std::span<const TapeOp> ops) { Joining(program, ops).run(); }

}  // namespace tilewise::kernels::map
