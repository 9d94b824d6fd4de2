// Mean and variance of one operand: one pass over it. The sum that moments carry is that of kSum bit for bit (in one block and
// in every combination), so a sum of what moments are also taken of becomes their second output.
#include "passes.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>

namespace tilewise::plan {
namespace {

const ir::ReduceAttrs* reduction(const ir::Op& op, ir::ReduceKind kind) {
  if (op.kind != ir::OpKind::kReduce || op.outputs.size() != 1) return nullptr;
  const auto& attrs = op.get<ir::ReduceAttrs>();
  return attrs.kind == kind ? &attrs : nullptr;
}

bool alike(const ir::Op& sum, const ir::Op& moments) {
  const auto &a = sum.get<ir::ReduceAttrs>(), &b = moments.get<ir::ReduceAttrs>();
  return a.axes == b.axes && a.tape == b.tape && sum.operands == moments.operands &&
         sum.space == moments.space && sum.hint == moments.hint;
}

// Of operand and axes alone: equal for ops that are alike.
std::uint64_t key_of(const ir::Op& op) {
  return (op.operands.empty() ? 0 : op.operands[0].array) * 256 + op.get<ir::ReduceAttrs>().axes;
}

}  // namespace

void share_moments(Graph& graph) {
  boost::unordered_flat_map<std::uint64_t, std::vector<std::size_t>> sums;
  bool any = false;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (reduction(graph.ops[i], ir::ReduceKind::kSum) != nullptr) sums[key_of(graph.ops[i])].push_back(i);
    any |= reduction(graph.ops[i], ir::ReduceKind::kMoments) != nullptr;
  }
  if (!any || sums.empty()) return;
  std::vector<bool> gone(graph.ops.size(), false);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (gone[i] || reduction(graph.ops[i], ir::ReduceKind::kMoments) == nullptr) continue;
    const auto found = sums.find(key_of(graph.ops[i]));
    if (found == sums.end()) continue;
    std::vector<std::size_t>& candidates = found->second;
    const auto sum = std::find_if(candidates.begin(), candidates.end(), [&](std::size_t s) {
      return !gone[s] && alike(graph.ops[s], graph.ops[i]);
    });
    if (sum == candidates.end()) continue;
    // Both read what stands before the earlier one, whose readers come after it.
    const auto [first, last] = std::minmax(*sum, i);
    ir::Op both = std::move(graph.ops[i]);
    both.outputs.push_back(std::move(graph.ops[*sum].outputs[0]));
    if (both.label.empty()) both.label = std::move(graph.ops[*sum].label);
    graph.ops[first] = std::move(both);
    gone[last] = true;
  }
  erase_ops(graph, gone);
}

}  // namespace tilewise::plan
