#include "passes.h"
#include "sources.h"

#include <algorithm>

namespace tilewise::plan {

void remove_dead_code(Graph& graph) {
  const Sources sources(graph);
  std::vector<bool> live(graph.ops.size(), false);
  for (std::size_t i = graph.ops.size(); i-- > 0;) {
    const ir::Op& op = graph.ops[i];
    // kProvide stays: the client waits to learn the array's name, and it costs nothing. A plug-in's kernel may do more
    // than fill its outputs, and a client sends only what it wants to have run.
    const bool effect = op.kind == ir::OpKind::kFetch || op.kind == ir::OpKind::kWriteNpy ||
                        op.kind == ir::OpKind::kProvide || op.kind == ir::OpKind::kCall;
    const bool held = std::any_of(op.outputs.begin(), op.outputs.end(), [&](const ir::OutputSpec& output) {
      return std::binary_search(graph.holds.begin(), graph.holds.end(), output.array);
    });
    if (!live[i] && !effect && !held) continue;
    live[i] = true;
    for (const ir::Operand& operand : op.operands) {
      if (const auto* producer = sources.producer(operand.array)) live[producer->op] = true;
    }
  }
  std::size_t to = 0;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live[i]) continue;
    if (to != i) graph.ops[to] = std::move(graph.ops[i]);
    ++to;
  }
  graph.ops.resize(to);
}

}  // namespace tilewise::plan
