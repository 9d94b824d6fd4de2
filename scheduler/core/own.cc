#include "own.h"

#include "draft.h"
#include "graphs.h"

#include <utility>

namespace tilewise::scheduler {

GraphRecord& own_graph(State& s, const GraphRecord* like) {
  GraphRecord graph;
  graph.id = GraphId{make_id(s.options.term, s.next_graph++)};
  if (like != nullptr) {
    graph.session = like->session;
    graph.request = like->request;
    graph.priority = like->priority;
    graph.weight = like->weight;
  }
  graph.own = true;
  graph.running = false;  // no client waits for it
  const GraphId id = graph.id;
  return s.graphs.insert(id, std::move(graph));
}

ir::Op own_call(State& s, std::string_view label, std::string_view kernel, std::string params,
                const ir::Grid& space) {
  ir::Op op;
  op.kind = ir::OpKind::kCall;
  op.label = label;
  op.space = space;
  std::vector<ir::DimGrid> numbers;
  for (const ir::DimGrid& dim : space.dims()) numbers.push_back(*ir::DimGrid::uniform(dim.count(), 1));
  op.outputs = {{make_id(s.options.term, s.next_array++), ir::DType::kInt64, ir::Grid(std::move(numbers))}};
  op.attrs = ir::CallAttrs{.kernel = std::string(kernel), .version = "1", .params = std::move(params)};
  return op;
}

ir::Grid one_point() { return ir::Grid({ir::DimGrid::whole(1)}); }

OpId add_own(State& s, GraphRecord& graph, msg::Plan& plan, ir::Op op, ir::Placement placement) {
  OpRecord record;
  record.id = OpId{make_id(s.options.term, s.next_op++)};
  record.graph = graph.id;
  record.position = static_cast<std::uint32_t>(graph.ops.size());
  record.points = op.space.block_count();
  record.load_bytes = output_bytes(op);
  record.decision = {"the scheduler's own", 0};
  for (const DeviceId device : placement.devices()) {
    if (const std::int64_t owned = placement.owned_count(device); owned > 0)
      record.shares.push_back({device, owned});
  }
  for (const ir::Operand& operand : op.operands) {
    ArrayRecord& read = s.arrays.at(ArrayId{operand.array});
    ++read.open_users;
    ++read.readers;
  }
  ArrayRecord made;
  made.id = ArrayId{op.outputs[0].array};
  made.producer = record.id;
  made.source = {op.outputs[0].dtype, op.outputs[0].grid};
  made.session = graph.session;
  const ArrayId id = made.id;
  s.arrays.insert(id, std::move(made));
  record.op = std::move(op);
  record.placement = std::move(placement);
  plan.ops.push_back({record.id, record.op, record.placement, false, {}});
  graph.ops.push_back(record.id);
  ++graph.ops_left;
  ++graph.ops_open;
  graph.total += record.points;
  account_load(s, record, 1);
  const OpId op_id = record.id;
  s.ops.insert(op_id, std::move(record));
  return op_id;
}

msg::Plan own_plan(const GraphRecord& graph) {
  return {graph.id, graph.priority, {}, {}, graph.session, graph.weight};
}

}  // namespace tilewise::scheduler
