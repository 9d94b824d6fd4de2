#include "layers.h"

#include "draft.h"
#include "graphs.h"
#include "handlers.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tilewise::scheduler {

void add_layer(State& s, std::vector<msg::Plan>& plans, OpRecord& head, std::vector<ir::Run> runs,
               Form form) {
  const OpId id{make_id(s.options.term, s.next_op++)};
  OpRecord layer;
  layer.id = id;
  layer.of = head.id;
  layer.graph = head.graph;
  layer.position = head.position;
  layer.op = head.op;
  layer.decision = {form == Form::kMoved ? "re-placed" : "recovery", 0};
  layer.placement = form == Form::kProvided ? head.placement
                                            : ir::Placement::of_runs(head.op.space.counts(), std::move(runs));
  if (form != Form::kProvided) {
    for (const DeviceId device : layer.placement.devices())
      layer.shares.push_back({device, layer.placement.owned_count(device), 0, 0});
  }
  for (const OpShare& share : layer.shares) layer.points += share.owned;
  const std::int64_t all = std::max<std::int64_t>(1, head.op.space.block_count());
  layer.load_bytes =
      static_cast<std::int64_t>(static_cast<__int128>(output_bytes(head.op)) * layer.points / all);
  GraphRecord& graph = s.graphs.at(head.graph);
  graph.ops.push_back(id);
  ++graph.ops_left;
  if (std::exchange(head.retired, false)) s.lineage.erase(head.id);
  head.layers.push_back(id);
  msg::PlannedOp planned;
  if (form == Form::kDoomed) {
    layer.doomed = true;
    layer.op.operands.clear();
    planned = {id, layer.op, layer.placement, false, head.id};
    planned.op.kind = ir::OpKind::kCall;
    planned.op.attrs = ir::CallAttrs{.kernel = "doomed"};
    const ir::Run& run = layer.placement.listed()->runs().front();
    planned.doomed = doom_of(s, head.id, run.first);
    ++graph.ops_open;
    graph.total += layer.points;
  } else if (form == Form::kAgain || form == Form::kAlone || form == Form::kMoved) {
    planned = {id, layer.op, layer.placement, false, head.id, form == Form::kAlone};
    ++graph.ops_open;
    graph.total += layer.points;
    (form == Form::kMoved ? s.recovery.moved : s.recovery.recovered) += layer.points;
    std::set<std::uint64_t> distinct;
    for (const ir::Operand& operand : layer.op.operands) distinct.insert(operand.array);
    for (const std::uint64_t array : distinct)
      ++s.arrays.at(ArrayId{array}).open_users, ++s.arrays.at(ArrayId{array}).readers;
  } else {
    if (form == Form::kKept) {
      s.recovery.kept += layer.points;
      for (OpShare& share : layer.shares) share.completed = share.owned;
      layer.completed = layer.points;
      graph.done += layer.points;
      graph.total += layer.points;
      planned = without_history(layer);
    } else {
      planned = {id, layer.op, layer.placement, false, {}};
    }
    planned.of = head.id;
    layer.op.operands.clear();
    layer.finished = true;
  }
  account_load(s, layer, 1);
  if (plans.empty() || plans.back().graph != head.graph)
    plans.push_back({head.graph, graph.priority, {}, {}, graph.session, graph.weight});
  plans.back().ops.push_back(std::move(planned));
  s.retire_candidates.push_back(head.id);
  s.ops.insert(id, std::move(layer));
}

const OpRecord* maker_of(const State& s, const OpRecord& head, const ir::Index& point) {
  for (std::size_t i = head.layers.size(); i-- > 0;) {
    const OpRecord& layer = s.ops.at(head.layers[i]);
    if (layer.placement.owner(point)) return &layer;
  }
  return head.forgotten ? nullptr : &head;
}

const std::string& numeric_class_of(const State& s, DeviceId id) {
  const msg::PeerInfo& info = s.peer(s.device(id)->peer).info;
  const auto at = std::find(info.devices.begin(), info.devices.end(), id) - info.devices.begin();
  return info.descriptions[static_cast<std::size_t>(at)].numeric_class;
}

}  // namespace tilewise::scheduler
