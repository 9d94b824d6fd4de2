// Maps over the same elements become one op with an output for each: what both read is read once, and what the earlier one makes
// for the later is on hand. Fusion has inlined before what nobody else wants; here are producers whose arrays have to exist, being
// held or read elsewhere too, and maps that read an operand in common.
//
// The joint op takes the later one's place. It does the same operations on the same elements, so bits stay. It is never worse:
//   * No op between the two reads what the earlier one makes. So no reader comes to stand before its producer, and no path leads
//     from the one to the other through a third op.
//   * Neither waits for an op that the other did not wait for, but for maps. So readers of the one wait in addition for the other's
//     share of a step only.
//   * Unless they are neighbours, arrays that only the earlier one still kept are no larger than what it makes, in place of which
//     they now live until the later one's turn. Within the joint step each output may take the memory of an operand, as before.
//   * The same device wish, the same cuts, and a step that is not large.
#include "passes.h"
#include "sources.h"
#include "tape_writer.h"

#include <tilewise/ir/verify.h>

#include <algorithm>
#include <optional>

namespace tilewise::plan {
namespace {

constexpr double kMaxStepBytes = 1 << 30;   // of a joint step: a device may not hold more at once
constexpr std::size_t kMaxLooked = 64;      // ops looked at for what a map waits for
constexpr std::size_t kMaxAncestors = 256;  // of the other one, nearest first

class Joiner {
 public:
  explicit Joiner(Graph& graph) : graph_(graph), sources_(graph), gone_(graph.ops.size(), false) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i) note_reads(i);
  }

  void run() {
    for (std::size_t c = 0; c < graph_.ops.size(); ++c) {
      if (graph_.ops[c].kind != ir::OpKind::kMap) continue;
      for (std::optional<std::size_t> p = partner(c); p; p = partner(c)) {
        gone_[*p] = true;
        for (std::size_t o = 0; o < graph_.ops[c].outputs.size(); ++o)
          sources_.move(graph_.ops[c].outputs[o].array, {c, o});
        note_reads(c);
      }
      for (const ir::Operand& operand : graph_.ops[c].operands) last_map_[operand.array] = c;
    }
    erase_ops(graph_, gone_);
  }

 private:
  void note_reads(std::size_t op) {
    for (const ir::Operand& operand : graph_.ops[op].operands) {
      std::vector<std::size_t>& readers = readers_[operand.array];
      if (readers.empty() || readers.back() != op) readers.push_back(op);
    }
  }

  // The earlier map that has been joined to this one, the makers of what it reads before others.
  std::optional<std::size_t> partner(std::size_t c) {
    const ir::Op& op = graph_.ops[c];
    std::vector<std::size_t> candidates;
    for (const ir::Operand& operand : op.operands)
      if (const auto* maker = sources_.producer(operand.array)) candidates.push_back(maker->op);
    for (const ir::Operand& operand : op.operands) {
      const auto other = last_map_.find(operand.array);
      if (other != last_map_.end() && shares(graph_.ops[other->second], op, operand))
        candidates.push_back(other->second);
    }
    for (const std::size_t p : candidates) {
      if (gone_[p] || graph_.ops[p].kind != ir::OpKind::kMap || !may_join(p, c)) continue;
      std::optional<ir::Op> joint = join(p, c);
      if (!joint) continue;
      graph_.ops[c] = std::move(*joint);
      return p;
    }
    return std::nullopt;
  }

  // Both read it alike, an element of its own for each of theirs.
  static bool shares(const ir::Op& a, const ir::Op& b, const ir::Operand& operand) {
    const ir::Shape& shape = b.space.shape();
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (shape[d] > 1 && !operand.view.source_of(static_cast<int>(d))) return false;
    return std::find(a.operands.begin(), a.operands.end(), operand) != a.operands.end();
  }

  bool may_join(std::size_t p, std::size_t c) {
    const ir::Op &a = graph_.ops[p], &b = graph_.ops[c];
    if (a.space != b.space || a.hint != b.hint) return false;
    for (const ir::OutputSpec& output : a.outputs)
      for (const std::size_t reader : readers_[output.array])
        if (!gone_[reader] && reader > p && reader < c) return false;
    return waits_for_no_more(c, p) && waits_for_no_more(p, c) && keeps_no_more(p, c);
  }

  // Whatever `a` waits for but maps, `b` waits for too.
  bool waits_for_no_more(std::size_t a, std::size_t b) {
    std::vector<std::size_t> others, maps{a}, looked_at;
    const auto is_read_by_b = [&](std::size_t op) {
      return op == b || std::any_of(graph_.ops[b].operands.begin(), graph_.ops[b].operands.end(),
                                    [&](const ir::Operand& operand) {
                                      const auto* maker = sources_.producer(operand.array);
                                      return maker != nullptr && maker->op == op;
                                    });
    };
    for (std::size_t at = 0; at < maps.size(); ++at) {
      for (const ir::Operand& operand : graph_.ops[maps[at]].operands) {
        const auto* maker = sources_.producer(operand.array);
        if (maker == nullptr || is_read_by_b(maker->op)) continue;
        if (std::find(looked_at.begin(), looked_at.end(), maker->op) != looked_at.end()) continue;
        if (looked_at.size() == kMaxLooked) return false;
        looked_at.push_back(maker->op);
        (graph_.ops[maker->op].kind == ir::OpKind::kMap ? maps : others).push_back(maker->op);
      }
    }
    std::vector<std::size_t> ancestors{b};
    for (std::size_t at = 0; !others.empty() && at < ancestors.size(); ++at) {
      for (const ir::Operand& operand : graph_.ops[ancestors[at]].operands) {
        const auto* maker = sources_.producer(operand.array);
        if (maker == nullptr || std::find(ancestors.begin(), ancestors.end(), maker->op) != ancestors.end())
          continue;
        if (ancestors.size() == kMaxAncestors) return false;
        ancestors.push_back(maker->op);
        std::erase(others, maker->op);
      }
    }
    return others.empty();
  }

  // Moving `p` to where `c` stands lets no more live in between.
  bool keeps_no_more(std::size_t p, std::size_t c) const {
    std::size_t before = c - 1;
    while (before > p && gone_[before]) --before;
    if (before == p) return true;
    const ir::Op& op = graph_.ops[p];
    double kept = 0, made = 0;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const std::uint64_t array = op.operands[i].array;
      const auto is_it = [&](const ir::Operand& other) { return other.array == array; };
      const bool counted =
          std::any_of(op.operands.begin(), op.operands.begin() + static_cast<std::ptrdiff_t>(i), is_it);
      if (counted || std::binary_search(graph_.holds.begin(), graph_.holds.end(), array)) continue;
      const std::vector<std::size_t>& readers = readers_.at(array);
      const bool read_later = std::any_of(readers.rbegin(), readers.rend(),
                                          [&](std::size_t reader) { return reader > p && !gone_[reader]; });
      ir::SourceArray source;
      if (!read_later && sources_.find(array, source)) kept += bytes_of(source.dtype, source.grid);
    }
    for (const ir::OutputSpec& output : op.outputs) made += bytes_of(output.dtype, output.grid);
    return kept <= made;
  }
  static double bytes_of(ir::DType dtype, const ir::Grid& grid) {
    double bytes = static_cast<double>(ir::size_of(dtype));
    for (const std::int64_t extent : grid.shape()) bytes *= static_cast<double>(extent);
    return bytes;
  }

  // Held, or read by another op than these. An op that has been joined may have read what it makes itself now.
  bool is_needed(std::uint64_t array, std::size_t p, std::size_t c) const {
    if (std::binary_search(graph_.holds.begin(), graph_.holds.end(), array)) return true;
    const auto readers = readers_.find(array);
    return readers != readers_.end() &&
           std::any_of(readers->second.begin(), readers->second.end(),
                       [&](std::size_t reader) { return reader != p && reader != c && !gone_[reader]; });
  }

  // Nothing where the later one reads the earlier one's results otherwise than element by element, or limits are passed.
  std::optional<ir::Op> join(std::size_t p, std::size_t c) const {
    const ir::Op &a = graph_.ops[p], &b = graph_.ops[c];
    ir::Op joint = b;
    joint.operands.clear();
    joint.outputs.clear();
    TapeWriter tape;
    std::vector<std::uint16_t> made_at, outputs;  // of the earlier one's results; those of the joint op
    for (const ir::Op* op : {&a, &b}) {
      const ir::Tape& code = *tape_of(*op);
      std::vector<std::uint16_t> at(code.code.size());
      for (std::size_t i = 0; i < code.code.size(); ++i) {
        ir::TapeInstr instr = code.code[i];
        if (instr.op == ir::TapeOp::kLoad) {
          const ir::Operand& operand = op->operands[static_cast<std::size_t>(instr.imm_i)];
          const auto made =
              std::find_if(a.outputs.begin(), a.outputs.end(),
                           [&](const ir::OutputSpec& output) { return output.array == operand.array; });
          if (made != a.outputs.end()) {
            if (!operand.view.is_identity(a.space.shape())) return std::nullopt;
            at[i] = made_at[static_cast<std::size_t>(made - a.outputs.begin())];
            continue;
          }
          instr.imm_i = operand_number(joint.operands, operand);
        }
        remap(instr, at);
        at[i] = tape.add(instr);
        if (tape.size() > static_cast<std::size_t>(limits::kMaxTapeInstructions)) return std::nullopt;
      }
      const std::vector<std::uint16_t> all = outputs_at(code, at);
      for (std::size_t o = 0; o < all.size(); ++o) {
        if (op == &a && !is_needed(a.outputs[o].array, p, c)) continue;
        outputs.push_back(all[o]);
        joint.outputs.push_back(op->outputs[o]);
      }
      if (op == &a) made_at = all;
    }
    if (outputs.size() > static_cast<std::size_t>(limits::kMaxOutputs)) return std::nullopt;
    *tape_of(joint) = tape.finish(outputs);
    joint.label = label_of(a, b);
    const auto sources = sources_.of(joint);
    if (!sources || !ir::verify(joint, *sources) || step_bytes(joint, *sources) > kMaxStepBytes)
      return std::nullopt;
    return joint;
  }
  // Of what one step reads and writes, were all operands of the shape that is shown.
  static double step_bytes(const ir::Op& op, const std::vector<ir::SourceArray>& sources) {
    double element = 0, elements = 1;
    for (const ir::SourceArray& source : sources) element += static_cast<double>(ir::size_of(source.dtype));
    for (const ir::OutputSpec& output : op.outputs) element += static_cast<double>(ir::size_of(output.dtype));
    for (const std::int64_t extent : op.space.max_block_shape()) elements *= static_cast<double>(extent);
    return element * elements;
  }
  static std::string label_of(const ir::Op& a, const ir::Op& b) {
    if (a.label.empty() || a.label == b.label) return b.label;
    if (b.label.empty()) return a.label;
    const std::string both = a.label + ", " + b.label;
    return both.size() <= limits::kMaxNameBytes ? both : b.label;
  }

  Graph& graph_;
  Sources sources_;
  std::vector<bool> gone_;
  boost::unordered_flat_map<std::uint64_t, std::vector<std::size_t>>
      readers_;  // ops, those that are gone too
  boost::unordered_flat_map<std::uint64_t, std::size_t>
      last_map_;  // the last one so far that reads the array
};

}  // namespace

void share_tapes(Graph& graph) { Joiner(graph).run(); }

}  // namespace tilewise::plan
