#include "cutting.h"

#include <tilewise/ir/verify.h>

#include "draft.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

// Appends what makes the pieces.
Status rewrite(ir::Op& op, const std::vector<place::Cut>& cuts, const ir::NewArray& new_array,
               std::vector<ir::Op>& makers) {
  std::size_t more = 0;  // operands than before
  for (place::Cut cut : cuts) {
    cut.operand = static_cast<std::uint8_t>(cut.operand + more);
    more += cut.parts.size() - 1;
    TW_TRY(place::cut_operand(op, cut, new_array, makers));
  }
  return {};
}

// The op as it reads now, and what it reads.
Status verify(const State& s, const ir::Op& op, std::span<const ir::Op> makers, const OpCuts& cuts) {
  std::vector<ir::SourceArray> sources;
  auto cut = cuts.cuts.begin();
  for (std::size_t i = 0; i < cuts.sources.size(); ++i) {
    if (cut == cuts.cuts.end() || cut->operand != i) {
      sources.push_back(cuts.sources[i]);
      continue;
    }
    for (const place::CutPart& part : cut->parts) {
      sources.push_back(cut->source);
      if (!part.apart) continue;
      sources.back().grid = part.pieces;
      const ir::Op& maker = makers.front();
      TW_TRY(s.geometries.of(maker, {cut->source}));
      TW_TRY(part.placement.verify(maker.space.counts()));
      makers = makers.subspan(1);
    }
    ++cut;
  }
  TW_TRY(s.geometries.of(op, std::move(sources)));
  return {};
}

void note(const place::Cut& cut, const ir::Placement& reader, place::Decision& made) {
  made.why = "cut where its blocks are";
  made.seconds = cut.seconds;
  made.moved_bytes = cut.moved_bytes;
  made.rejected.push_back({reader, "whole blocks to who reads them", cut.whole_s, cut.whole_bytes});
}

}  // namespace

bool cuts_pieces(const Options& options) {
  return std::find(options.passes_off.begin(), options.passes_off.end(), kPiecesPass) ==
         options.passes_off.end();
}

OpCuts cuts_of(const State& s, std::size_t op, const place::Request& request, const ir::Placement& placement,
               std::span<const place::Device> makers, bool& by_memory) {
  OpCuts out{op, {}, {}};
  if (!request.cuts) return out;
  std::size_t room = ir::kMaxStepOperands - request.op->operands.size();
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    place::CutChoice choice = place::cut_for(request, static_cast<int>(i), placement, makers, room,
                                             {.always = s.options.pieces_always});
    by_memory |= choice.by_memory;
    if (!choice.cut) continue;
    room -= choice.cut->parts.size() - 1;
    out.cuts.push_back(std::move(*choice.cut));
  }
  if (out.cuts.empty()) return out;
  for (const place::Input& input : request.inputs) out.sources.push_back(*input.array);
  return out;
}

Result<std::vector<ir::Op>> with_pieces(std::vector<ir::Op> ops, const Cuts& cuts,
                                        const ir::NewArray& new_array) {
  std::vector<ir::Op> out;
  auto next = cuts.begin();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (next != cuts.end() && next->op == i) TW_TRY(rewrite(ops[i], (next++)->cuts, new_array, out));
    out.push_back(std::move(ops[i]));
  }
  return out;
}

Status add_pieces(const State& s, Draft& draft, Cuts cuts, const ir::NewArray& new_array) {
  if (cuts.empty()) return {};
  std::vector<ir::Placement> placements;
  std::vector<place::Decision> decisions;
  std::vector<std::int64_t> levels_ns;
  auto next = cuts.begin();
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    if (next != cuts.end() && next->op == i) {
      for (const place::Cut& cut : (next++)->cuts) {
        for (const place::CutPart& part : cut.parts) {
          if (!part.apart) continue;
          placements.push_back(part.placement);
          levels_ns.push_back(draft.levels_ns[i]);  // no earlier than who waits for it
          note(cut, draft.placements[i], decisions.emplace_back());
        }
      }
    }
    placements.push_back(std::move(draft.placements[i]));
    levels_ns.push_back(draft.levels_ns[i]);
    decisions.push_back(std::move(draft.decisions[i]));
  }
  TW_ASSIGN(draft.ops, with_pieces(std::move(draft.ops), cuts, new_array));
  draft.placements = std::move(placements);
  draft.decisions = std::move(decisions);
  draft.levels_ns = std::move(levels_ns);
  std::size_t more = 0;  // ops than before
  for (const OpCuts& each : cuts) {
    const std::size_t at = each.op + more;
    std::size_t makers = 0;
    for (const place::Cut& cut : each.cuts)
      makers += static_cast<std::size_t>(
          std::count_if(cut.parts.begin(), cut.parts.end(), [](const place::CutPart& p) { return p.apart; }));
    more += makers;
    if (const Status good = verify(s, draft.ops[at + makers], std::span(draft.ops).subspan(at, makers), each);
        !good)
      return error(Errc::kInternal, "after pass '" + std::string(kPiecesPass) + "': " + good.error().message);
  }
  draft.cuts = std::move(cuts);
  return {};
}

}  // namespace tilewise::scheduler
