#include "passes.h"
#include "sources.h"

#include <tilewise/ir/op_digest.h>

#include <algorithm>

namespace tilewise::plan {

bool is_pure(const ir::Op& op) {
  switch (op.kind) {
    case ir::OpKind::kMap:  // random numbers are functions of key and position: equal keys, equal numbers
    case ir::OpKind::kReduce:
    case ir::OpKind::kReduceBlocks:
    case ir::OpKind::kCombine:
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels:
    case ir::OpKind::kCopy:
    case ir::OpKind::kReshape:
    case ir::OpKind::kScan: return true;
    case ir::OpKind::kReadNpy:  // the file may change
    case ir::OpKind::kWriteNpy:
    case ir::OpKind::kCall:  // nothing is known about a plug-in
    case ir::OpKind::kFetch:
    case ir::OpKind::kKeep:
    case ir::OpKind::kProvide: return false;
  }
  return false;
}

namespace {

bool equal_but_for_names(const ir::Op& a, const ir::Op& b) {
  if (a.kind != b.kind || a.operands != b.operands || a.space != b.space || a.attrs != b.attrs ||
      a.hint != b.hint || a.outputs.size() != b.outputs.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    if (a.outputs[i].dtype != b.outputs[i].dtype || a.outputs[i].grid != b.outputs[i].grid) return false;
  }
  return true;
}

}  // namespace

void merge_common_subexpressions(Graph& graph) {
  boost::unordered_flat_map<std::uint64_t, std::uint64_t> renamed;          // array -> equal, earlier array
  boost::unordered_flat_map<std::uint64_t, std::vector<std::size_t>> seen;  // digest -> positions in `kept`
  std::vector<ir::Op> kept;
  kept.reserve(graph.ops.size());
  for (ir::Op& op : graph.ops) {
    for (ir::Operand& operand : op.operands) {
      if (const auto it = renamed.find(operand.array); it != renamed.end()) operand.array = it->second;
    }
    // A held result must exist under its own name; what is equal to it may still use it.
    const bool held = std::any_of(op.outputs.begin(), op.outputs.end(), [&](const ir::OutputSpec& output) {
      return std::binary_search(graph.holds.begin(), graph.holds.end(), output.array);
    });
    if (is_pure(op)) {
      std::vector<std::size_t>& candidates = seen[ir::digest(op, false)];
      const auto match = std::find_if(candidates.begin(), candidates.end(),
                                      [&](std::size_t i) { return equal_but_for_names(kept[i], op); });
      if (match != candidates.end() && !held) {
        for (std::size_t i = 0; i < op.outputs.size(); ++i) {
          renamed.emplace(op.outputs[i].array, kept[*match].outputs[i].array);
        }
        continue;
      }
      if (match == candidates.end()) candidates.push_back(kept.size());
    }
    kept.push_back(std::move(op));
  }
  graph.ops = std::move(kept);
}

}  // namespace tilewise::plan
