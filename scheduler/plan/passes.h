// The passes. Each rewrites `graph.ops` in place.
#pragma once
#include <tilewise/plan/plan.h>

#include <utility>
#include <vector>

namespace tilewise::plan {

// Removes ops whose results nobody holds, fetches or uses.
void remove_dead_code(Graph& graph);
// Merges equal pure ops: same kind, operands, attributes, cuts and devices.
void merge_common_subexpressions(Graph& graph);
// Lets a sum and moments of the same operand be one op with two outputs.
void share_moments(Graph& graph);
// Inlines elementwise producers into their users.
void fuse_elementwise(Graph& graph);
// Joins maps over the same elements into one with an output for each.
void share_tapes(Graph& graph);
// Replaces kinds that workers do not run.
Status lower_ops(Graph& graph, const NewArray& new_array);

// Brings ops into an order in which fewer bytes of results live at once, if there is one that is clearly better than the
// recorded one. Ops that nobody reads (fetches among them) keep their order.
void order_for_memory(Graph& graph);

// Of those that passes have done away with, by position; the others keep their order.
inline void erase_ops(Graph& graph, const std::vector<bool>& gone) {
  std::size_t to = 0;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (gone[i]) continue;
    if (to != i) graph.ops[to] = std::move(graph.ops[i]);
    ++to;
  }
  graph.ops.resize(to);
}

bool is_pure(const ir::Op& op);

}  // namespace tilewise::plan
