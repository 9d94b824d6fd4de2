#include "effects.h"

#include <tilewise/ir/saving.h>

#include <algorithm>

namespace tilewise::scheduler {

bool owes_effect(const State& s, const Answers& answers, const OpRecord& head, const OpRecord& op,
                 DeviceId device, std::int64_t ordinal, std::int64_t point) {
  const bool effect = head.op.kind == ir::OpKind::kCall || head.op.kind == ir::OpKind::kWriteNpy;
  const GraphRecord& graph = s.graphs.at(head.graph);
  if (!effect || op.finished || !graph.running || graph.cancelled) return false;
  const bool taken =
      std::any_of(head.op.outputs.begin(), head.op.outputs.end(), [&](const ir::OutputSpec& output) {
        const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
        return array.held || array.was_read || !array.failed.ok();
      });
  if (taken) return false;
  if (const msg::Held::Share* told = answers.share(op.id, device))
    return ordinal >= told->next || contains(told->begun, point);
  const auto share = std::find_if(op.shares.begin(), op.shares.end(),
                                  [&](const OpShare& of) { return of.device == device; });
  return share != op.shares.end() && share->completed < share->owned;
}

bool is_of_save(const OpRecord& op) {
  return op.op.kind == ir::OpKind::kWriteNpy ||
         (op.op.kind == ir::OpKind::kCall && ir::saving::is_kernel(op.op.get<ir::CallAttrs>().kernel));
}

}  // namespace tilewise::scheduler
