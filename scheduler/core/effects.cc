#include "effects.h"

#include <tilewise/ir/checkpoint.h>

#include "graphs.h"
#include "layers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::int64_t kMaxLooked = 4096;  // points of a device that are looked at one by one

// The device says that it has not ended all that it is to make of this op, in a layer's or the planned one's name.
bool is_to_end(const State& s, const Answers& answers, const OpRecord& head, const OpRecord& op,
               DeviceId device) {
  const msg::Held::Share* share = answers.share(op.id, device);
  if (share == nullptr) return false;
  const std::int64_t owned = op.placement.owned_count(device);
  for (std::int64_t i = share->next; i < std::min(owned, share->next + kMaxLooked); ++i) {
    if (maker_of(s, head, op.placement.nth(device, i)) == &op) return true;
  }
  return std::any_of(share->begun.begin(), share->begun.end(), [&](const msg::Range& range) {
    return maker_of(s, head, ir::unravel(range.first, head.op.space.counts())) == &op;
  });
}

// Some living device has not made all of the array, so who reads all of it cannot have begun.
bool is_coming(const State& s, const Answers& answers, ArrayId id, WorkerId leaver) {
  const ArrayRecord* array = s.arrays.find(id);
  if (array == nullptr) return false;
  const OpRecord& head = s.ops.at(array->producer);
  if (head.op.kind == ir::OpKind::kCopy &&  // gathered for the reader
      std::any_of(head.op.operands.begin(), head.op.operands.end(), [&](const ir::Operand& operand) {
        return is_coming(s, answers, ArrayId{operand.array}, leaver);
      }))
    return true;
  std::vector<OpId> records(head.layers);
  records.push_back(head.id);
  return std::any_of(records.begin(), records.end(), [&](OpId record) {
    const OpRecord& op = s.ops.at(record);
    const std::vector<DeviceId> devices = op.placement.devices();
    return std::any_of(devices.begin(), devices.end(), [&](DeviceId id) {
      const Device& device = *s.device(id);
      return device.alive && device.peer != leaver && is_to_end(s, answers, head, op, id);
    });
  });
}

}  // namespace

bool owes_effect(const State& s, const Answers& answers, const OpRecord& head, const OpRecord& op,
                 DeviceId device, std::int64_t ordinal, std::int64_t point) {
  const bool effect = head.op.kind == ir::OpKind::kCall || head.op.kind == ir::OpKind::kWriteNpy;
  const GraphRecord& graph = s.graphs.at(head.graph);
  if (!effect || op.finished || !graph.running || graph.cancelled) return false;
  const bool taken =
      std::any_of(head.op.outputs.begin(), head.op.outputs.end(), [&](const ir::OutputSpec& output) {
        const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
        return array.held || array.readers > 0 || !array.failed.ok();
      });
  if (taken) return false;
  if (const msg::Held::Share* told = answers.share(op.id, device))
    return ordinal >= told->next || contains(told->begun, point);
  const auto share = std::find_if(op.shares.begin(), op.shares.end(),
                                  [&](const OpShare& of) { return of.device == device; });
  return share != op.shares.end() && share->completed < share->owned;
}

bool may_have_put_in_place(const State& s, const Answers& answers, const OpRecord& head, WorkerId leaver) {
  if (head.op.kind != ir::OpKind::kCall) return false;
  // What is read may be read again, and what is to be removed be removed twice.
  const std::string& kernel = head.op.get<ir::CallAttrs>().kernel;
  if (!kernel.starts_with("tilewise.commit_") && kernel != ir::checkpoint::kTend) return false;
  return std::none_of(head.op.operands.begin(), head.op.operands.end(), [&](const ir::Operand& operand) {
    return is_coming(s, answers, ArrayId{operand.array}, leaver);
  });
}

}  // namespace tilewise::scheduler
