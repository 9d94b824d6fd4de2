#include "passes.h"
#include "sources.h"

#include <tilewise/ir/lower.h>

namespace tilewise::plan {

Status lower_ops(Graph& graph, const NewArray& new_array) {
  std::vector<ir::Op> lowered;
  {
    const Sources sources(graph);
    lowered.reserve(graph.ops.size());
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      TW_ASSIGN(const auto of, sources.of(graph.ops[i]));
      auto ops = ir::lower(graph.ops[i], of, new_array);
      if (!ops) return error(ops.error().code, describe(graph.ops[i], i) + ": " + ops.error().message);
      for (ir::Op& op : *ops) lowered.push_back(std::move(op));
    }
  }
  graph.ops = std::move(lowered);
  return {};
}

}  // namespace tilewise::plan
