#include "map/chain.h"

#include <algorithm>
#include <array>

#include "map/program.h"

namespace tilewise::kernels::map {
namespace {

using Kind = ProgramInstr::Kind;
using What = ChainStep::What;
using ir::DType;
using ir::TapeOp;
using Values = boost::container::static_vector<std::uint16_t, kMaxChainMembers>;

bool holds(std::span<const std::uint16_t> values, std::uint16_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

class Joining {
 public:
  Joining(Program& program, std::span<const TapeOp> ops) : program_(program), ops_(ops) {
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      const ProgramInstr& in = program_.code[i];
      dtype_[i] = in.dtype;
      for (int k = 0; k < in.arity; ++k) {
        ++uses_[in.args[k]];
        if (dtype_[i] == DType::kBool) dtype_[i] = dtype_[in.args[k]];
      }
    }
    for (const std::uint16_t at : program.results) ++uses_[at];
  }

  void run() {
    for (std::size_t i = program_.code.size(); i-- > 0;)
      if (!gone_[i] && can_join(i, dtype_[i])) grow(static_cast<std::uint16_t>(i));
    close_ranks();
  }

 private:
  // An instruction as a step of chains of this dtype; without `fn` where it cannot be one.
  ChainStep step_of(std::size_t i, DType dtype) const {
    ChainStep step{.op = ops_[i]};
    const ProgramInstr& in = program_.code[i];
    if (in.kind != Kind::kLane || step.op == TapeOp::kLoad || in.arity > 3) return step;
    const auto reads_only = [&](DType t, int first = 0) {
      return std::all_of(in.args + first, in.args + in.arity,
                         [&](std::uint16_t at) { return program_.code[at].dtype == t; });
    };
    const bool makes_mask = in.dtype == DType::kBool;
    if (!makes_mask && in.dtype != dtype) return step;
    if (step.op == TapeOp::kWhere) {
      if (program_.code[in.args[0]].dtype != DType::kBool || !reads_only(in.dtype, 1)) return step;
    } else if (reads_only(DType::kBool)) {
      const bool from_mask = step.op == TapeOp::kCast && !makes_mask;
      const bool of_masks = ir::is_bitwise(step.op) || step.op == TapeOp::kNot || step.op == TapeOp::kInvert;
      if (from_mask)
        step.what = What::kFromMask;
      else if (!makes_mask || !of_masks)
        return step;
    } else if (!reads_only(dtype)) {
      return step;  // magnitudes of complex numbers, comparisons of others
    } else if (step.op == TapeOp::kCast) {
      if (!makes_mask) return step;
      step.what = What::kToMask;
    } else if (find_chain_step(step, dtype) == nullptr) {
      if (in.arity != 1 || makes_mask) return step;
      step.what = What::kCall, step.lane = in.lane;
    }
    step.fn = find_chain_step(step, dtype);
    return step;
  }
  bool can_join(std::size_t i, DType dtype) const { return step_of(i, dtype).fn != nullptr; }

  // The chain that ends with `root`: all before it that can join and are read by the chain alone, latest first.
  void grow(std::uint16_t root) {
    const DType dtype = dtype_[root];
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
      if (inside[i] == 0 || inside[i] != uses_[i] || gone_[i] || !can_join(i, dtype)) continue;
      const auto before = arguments;
      arguments.erase(std::find(arguments.begin(), arguments.end(), i));
      members.push_back(i);
      read(i);
      if (arguments.size() <= kMaxLaneArgs) continue;
      members.pop_back();
      arguments = before;
      for (int k = 0; k < program_.code[i].arity; ++k) --inside[program_.code[i].args[k]];
    }
    const auto has_floats = [&](std::uint16_t member) {
      const ProgramInstr& in = program_.code[member];
      return in.dtype == dtype || std::any_of(in.args, in.args + in.arity, [&](std::uint16_t at) {
               return program_.code[at].dtype == dtype;
             });
    };
    // Booleans alone are better off as bytes.
    if (members.size() < 2 || std::none_of(members.begin(), members.end(), has_floats)) return;
    std::reverse(members.begin(), members.end());
    for (const std::uint16_t member : members) gone_[member] = member != root;
    ProgramInstr& in = program_.code[root];
    in.first_step = static_cast<std::uint16_t>(program_.steps.size());
    Layout(*this, dtype, members, {arguments.data(), arguments.size()}).run();
    in.lane = find_chain_lane(dtype);
    in.step_count = static_cast<std::uint16_t>(program_.steps.size() - in.first_step);
    in.arity = static_cast<std::uint8_t>(arguments.size());
    std::copy(arguments.begin(), arguments.end(), in.args);
  }

  // The steps of one chain: which value is in registers, and which are kept.
  class Layout {
   public:
    Layout(Joining& joining, DType dtype, std::span<const std::uint16_t> members,
           std::span<const std::uint16_t> arguments)
        : joining_(joining), dtype_(dtype), arguments_(arguments) {
      for (const std::uint16_t at : arguments)
        if (code(at).dtype == DType::kBool) order_.push_back(at);  // become masks first
      masks_ = order_.size();
      order_.insert(order_.end(), members.begin(), members.end());
      kept_.fill(kNobody);
    }
    void run() {
      for (std::size_t m = 0; m < order_.size(); ++m) {
        const std::uint16_t at = order_[m];
        later_ = std::span(order_).subspan(m + 1);
        if (m < masks_)
          step({.what = What::kLoadBytes, .operand = argument(at)});
        else
          perform(at);
        now_ = at;
        if (!later_.empty() && !only_next_reads(at)) step({.what = What::kSave, .operand = keep(at)});
      }
      if (code(now_).dtype == DType::kBool) step({.what = What::kEndBytes});
    }

   private:
    static constexpr std::uint16_t kNobody = 0xffff;
    const ProgramInstr& code(std::uint16_t at) const { return joining_.program_.code[at]; }
    std::span<const std::uint16_t> args_of(std::uint16_t at) const { return {code(at).args, code(at).arity}; }

    void step(ChainStep it) {
      it.fn = find_chain_step(it, dtype_);
      joining_.program_.steps.push_back(it);
    }
    // The steps of a member, whose arguments are in registers, kept, or the chain's.
    void perform(std::uint16_t at) {
      const auto args = args_of(at);
      auto it = joining_.step_of(at, dtype_);
      auto value = std::find(args.begin(), args.end(), now_);
      if (value == args.end()) {
        step({.what = What::kLoad, .operand = where(args[0])});
        value = args.begin();
      }
      const auto position = static_cast<std::uint8_t>(value - args.begin());
      const bool all = std::all_of(args.begin(), args.end(), [&](std::uint16_t a) { return a == *value; });
      if (args.size() < 3 && all) {
        joining_.program_.steps.push_back(it);
      } else {
        it.value =
            static_cast<ChainStep::Value>(static_cast<std::uint8_t>(ChainStep::Value::kFirst) + position);
        for (std::uint8_t k = 0; k < args.size(); ++k) {
          if (k == position) continue;
          it.operand = where(args[k]);
          step(it);
          it = {.what = What::kOther};
        }
      }
      for (const std::uint16_t a : args)
        if (is_kept(a) &&
            !std::any_of(later_.begin(), later_.end(), [&](std::uint16_t m) { return reads(m, a); }))
          *std::find(kept_.begin(), kept_.end(), a) = kNobody;
    }
    bool reads(std::uint16_t member, std::uint16_t value) const {
      return is_member(member) && holds(args_of(member), value);
    }
    // Then it need not be kept: it is in registers. Not where a ternary op reads it twice.
    bool only_next_reads(std::uint16_t value) const {
      const std::uint16_t next = later_[0];
      if (!reads(next, value)) return false;
      const auto args = args_of(next);
      if (args.size() == 3 && std::count(args.begin(), args.end(), value) > 1) return false;
      return std::none_of(later_.begin() + 1, later_.end(), [&](std::uint16_t m) { return reads(m, value); });
    }
    // What comes before the members is masks to be loaded.
    bool is_member(std::uint16_t at) const { return !holds(arguments_, at); }
    bool is_kept(std::uint16_t value) const {
      return std::find(kept_.begin(), kept_.end(), value) != kept_.end();
    }
    std::uint8_t keep(std::uint16_t value) {
      const auto at = std::find(kept_.begin(), kept_.end(), kNobody);
      *at = value;
      return static_cast<std::uint8_t>(kMaxLaneArgs + (at - kept_.begin()));
    }
    std::uint8_t argument(std::uint16_t value) const {
      return static_cast<std::uint8_t>(std::find(arguments_.begin(), arguments_.end(), value) -
                                       arguments_.begin());
    }
    std::uint8_t where(std::uint16_t value) const {
      const auto at = std::find(kept_.begin(), kept_.end(), value);
      return at == kept_.end() ? argument(value)
                               : static_cast<std::uint8_t>(kMaxLaneArgs + (at - kept_.begin()));
    }

    Joining& joining_;
    DType dtype_;
    std::span<const std::uint16_t> arguments_;
    boost::container::static_vector<std::uint16_t, kMaxChainKept> order_;  // masks to be loaded, then members
    std::size_t masks_ = 0;
    std::span<const std::uint16_t> later_;
    std::array<std::uint16_t, kMaxChainKept> kept_;
    std::uint16_t now_ = kNobody;  // whose value is in registers
  };

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
  std::array<DType, Program::kMaxCode>
      dtype_{};  // of the chains where an instruction is; of booleans, what they come of
  std::array<bool, Program::kMaxCode> gone_{};
};

}  // namespace

void join_chains(Program& program, std::span<const TapeOp> ops) { Joining(program, ops).run(); }

}  // namespace tilewise::kernels::map
