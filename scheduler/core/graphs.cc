#include "graphs.h"

#include "handlers.h"
#include "outbox.h"

#include <algorithm>
#include <utility>

namespace tilewise::scheduler {
namespace {

// Calls visit once for each distinct array that the op reads.
template <class F> void for_each_read(State& s, const OpRecord& op, F&& visit) {
  for (std::size_t i = 0; i < op.op.operands.size(); ++i) {
    const std::uint64_t array = op.op.operands[i].array;
    const bool seen =
        std::any_of(op.op.operands.begin(), op.op.operands.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const ir::Operand& o) { return o.array == array; });
    if (!seen) visit(s.arrays.at(ArrayId{array}));
  }
}

bool dead(const State& s, const OpRecord& op) {
  if (op.op.kind == ir::OpKind::kKeep) {
    const ArrayRecord* array = s.arrays.find(ArrayId{op.op.operands[0].array});
    return array == nullptr || !array->held ||
           !std::binary_search(array->keeps.begin(), array->keeps.end(), op.id);
  }
  return std::all_of(op.op.outputs.begin(), op.op.outputs.end(), [&](const ir::OutputSpec& output) {
    const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
    return !array.held && array.open_users == 0;
  });
}

bool reads_from(const State& s, const GraphRecord& reader, const GraphRecord& producer) {
  return std::any_of(reader.ops.begin(), reader.ops.end(), [&](OpId id) {
    const OpRecord* op = s.ops.find(id);
    if (op == nullptr || op->finished) return false;
    return std::any_of(op->op.operands.begin(), op->op.operands.end(), [&](const ir::Operand& operand) {
      return s.ops.at(s.arrays.at(ArrayId{operand.array}).producer).graph == producer.id;
    });
  });
}

// What it read may have been kept for its sake alone.
void erase_op(State& s, OpRecord& op) {
  GraphRecord& graph = s.graphs.at(op.graph);
  if (!op.of) remember_op(s, op);
  account_load(s, op, -1);
  for (std::size_t i = 0; i < op.op.operands.size(); ++i) {
    const std::uint64_t id = op.op.operands[i].array;
    const bool seen =
        std::any_of(op.op.operands.begin(), op.op.operands.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const ir::Operand& o) { return o.array == id; });
    ArrayRecord* array = seen ? nullptr : s.arrays.find(ArrayId{id});  // none: lineage was cut there
    if (array != nullptr && op.op.kind == ir::OpKind::kKeep) std::erase(array->keeps, op.id);
    if (array != nullptr && !op.cut) unread(s, *array);
  }
  if (!op.of) {
    for (const ir::OutputSpec& output : op.op.outputs) {
      forget_checkpoint(s, s.arrays.at(ArrayId{output.array}));
      s.arrays.erase(ArrayId{output.array});
    }
    s.lineage.erase(op.id);
    forget_blame(s, op.id);
  }
  s.ops.erase(op.id);
  if (--graph.ops_left == 0 && !graph.running) s.graphs.erase(graph.id);
}

// Workers forget it. The record stays as long as a later result may have to be made again from it.
void retire_group(State& s, OpRecord& head) {
  if (!head.forgotten) s.retired.push_back(head.id);
  for (const OpId layer : std::exchange(head.layers, {})) {
    s.retired.push_back(layer);
    erase_op(s, s.ops.at(layer));
  }
  account_load(s, head, -1);
  head.load_bytes = 0;
  head.retired = head.forgotten = true;
  head.layered = {};
  s.lineage.insert(head.id);
}

bool read_by_some(const State& s, const OpRecord& op) {
  return std::any_of(op.op.outputs.begin(), op.op.outputs.end(), [&](const ir::OutputSpec& output) {
    return s.arrays.at(ArrayId{output.array}).readers > 0;
  });
}

void end_graph(State& s, GraphRecord& graph) {
  graph.running = false;
  graph.dirty = false;
  if (!graph.copying.empty()) end_copying(s, graph);
  --s.running;
  remember_end(s, graph);
  ++(graph.root_cause.ok() ? s.graphs_done : s.graphs_failed);
  const bool later = begin_removal(s, graph);
  for_each_asker(graph, [&](SessionId id, std::uint64_t request) {
    std::erase(s.session(id).running, graph.id);
    if (!later) tell_end(s, {id, request}, graph.id, {request, graph.root_cause, graph.total, graph.needs});
  });
}

}  // namespace

void tell_end(State& s, const Asker& asker, GraphId graph, const msg::GraphDone& done) {
  Session& session = s.session(asker.session);
  for (Answer& answer : session.answers) {
    if (answer.graph == graph) answer.done = true, answer.graph_done = done;
  }
  if (session.alive) send(s, s.peer(session.peer).conn, done);
}

std::uint64_t request_of(const GraphRecord& graph, SessionId session) {
  std::uint64_t request = 0;
  for_each_asker(graph, [&](SessionId id, std::uint64_t number) {
    if (id == session) request = number;
  });
  return request;
}

OpRecord& head_of(State& s, OpRecord& op) { return op.of ? s.ops.at(op.of) : op; }

bool group_finished(const State& s, const OpRecord& head) {
  return head.finished && std::all_of(head.layers.begin(), head.layers.end(),
                                      [&](OpId layer) { return s.ops.at(layer).finished; });
}

bool complete(const State& s, const OpRecord& head) {
  return group_finished(s, head) && !(s.recovery.pending && s.recovery.asked.contains(head.id));
}

std::string describe(const State& s, const OpRecord& op) {
  const GraphRecord& graph = s.graphs.at(op.graph);
  std::string out = "request " + std::to_string(graph.request) + ", planned op " +
                    std::to_string(op.position) + " (" + std::string(ir::name_of(op.op.kind));
  if (!op.op.label.empty()) out += " '" + op.op.label + "'";
  return out + ")";
}

std::string describe(const ArrayRecord& array) {
  return "array " + std::to_string(array.number) + " " + ir::to_string(array.source.grid);
}

std::int64_t share_bytes(const OpRecord& op, const OpShare& share) {
  return share_bytes(op.load_bytes, share.owned, op.points);
}

std::int64_t share_bytes(std::int64_t all, std::int64_t owned, std::int64_t points) {
  if (points == 0) return 0;
  return static_cast<std::int64_t>(static_cast<__int128>(all) * owned / points);
}

void account_load(State& s, const OpRecord& op, int sign) {
  for (const OpShare& share : op.shares) s.device(share.device)->load_bytes += sign * share_bytes(op, share);
}

void take_points(State& s, OpRecord& op, std::int64_t count) {
  op.load_bytes -= share_bytes(op.load_bytes, count, op.points);
  op.points -= count;
  s.graphs.at(op.graph).total -= count;
  std::erase_if(op.shares, [](const OpShare& share) { return share.owned == 0; });
}

bool deliverable(const State& s, const OpRecord& fetch) {
  const GraphRecord& graph = s.graphs.at(fetch.graph);
  return graph.delivered && graph.ops_open == graph.fetches_open &&
         complete(s, s.ops.at(s.arrays.at(ArrayId{fetch.op.operands[0].array}).producer));
}

void finish_op(State& s, OpRecord& first) {
  // A worklist: the last block of an array, or the last op of a graph, ends the fetches that wait for it.
  const OpId asked = first.id;
  std::vector<OpId> work{asked};
  while (!work.empty()) {
    OpRecord* found = s.ops.find(work.back());
    work.pop_back();
    if (found == nullptr || found->finished) continue;  // a fetch that was cancelled meanwhile
    OpRecord& op = *found;
    const bool fetch = op.op.kind == ir::OpKind::kFetch;
    if (fetch && op.id != asked && !deliverable(s, op)) continue;
    op.finished = true;
    if (op.ended == kNotYet) op.ended = s.now - s.start;
    if (op.op.kind == ir::OpKind::kKeep) keep_ended(s, op);
    for_each_read(s, op, [&](ArrayRecord& array) {
      if (fetch) std::erase(array.fetches, op.id);
      if (--array.open_users == 0) s.retire_candidates.push_back(array.producer);
    });
    OpRecord& head = head_of(s, op);
    s.retire_candidates.push_back(head.id);
    if (complete(s, head)) cut_past(s, head);
    for (const ir::OutputSpec& output : head.op.outputs) {
      if (!complete(s, head)) break;
      const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
      work.insert(work.end(), array.fetches.begin(), array.fetches.end());
    }
    GraphRecord& graph = s.graphs.at(op.graph);
    if (op.failed > 0) graph.failed_op = std::min(graph.failed_op, {head.position, head.id});
    if (graph.own) own_op_ended(s, op);
    --graph.ops_open;
    if (fetch) {
      --graph.fetches_open;
    } else if (graph.fetches_open > 0 && graph.ops_open == graph.fetches_open) {
      for (const OpId id : graph.ops) {
        const OpRecord* other = s.ops.find(id);
        if (other != nullptr && other->op.kind == ir::OpKind::kFetch) work.push_back(id);
      }
    }
    finish_graph_if_done(s, graph);
  }
}

void deliver(State& s, GraphRecord& graph) {
  if (std::exchange(graph.delivered, true)) return;
  const GraphId id = graph.id;
  for (const OpId op_id : std::vector<OpId>(graph.ops)) {
    OpRecord* op = s.ops.find(op_id);
    if (op == nullptr || op->finished || op->op.kind != ir::OpKind::kFetch || !deliverable(s, *op)) continue;
    finish_op(s, *op);
    if (s.graphs.find(id) == nullptr) return;  // that was the last one
  }
}

bool in_doubt(const State& s, const GraphRecord& graph) {
  if (!s.recovery.pending) return false;
  if (!graph.copying.empty()) return true;  // copies that are lost are looked at when all have answered
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [&](const OpId id) { return s.recovery.asked.contains(id); });
}

void finish_graph_if_done(State& s, GraphRecord& graph) {
  if (!graph.running || graph.ops_open > 0) return;
  if (graph.cancelled || (!in_doubt(s, graph) && copied_all(s, graph))) end_graph(s, graph);
}

void forget_if_empty(State& s, GraphRecord& graph) {
  if (!graph.running && graph.ops_left == 0 && graph.unacknowledged.empty()) s.graphs.erase(graph.id);
}

void fail_array(ArrayRecord& array, const msg::Outcome& why) {
  if (array.failed.ok()) array.failed = why;
}

void cancel_graph(State& s, GraphId id, const msg::Outcome& why) {
  std::vector<GraphId> work{id};
  for (std::size_t at = 0; at < work.size(); ++at) {
    GraphRecord* graph = s.graphs.find(work[at]);
    // One that has ended may still have lost blocks made again.
    if (graph == nullptr || graph->cancelled || (graph->ops_open == 0 && !graph->running)) continue;
    graph->cancelled = true;
    graph->root_cause = why;
    log_to_workers(s, msg::CancelGraph{graph->id, why});
    for (const WorkerId worker : s.live) {
      const Peer& peer = s.peer(worker);
      if (s.is_worker(worker)) graph->unacknowledged.push_back({worker, peer.log_next + peer.log.size() - 1});
    }
    if (!graph->unacknowledged.empty()) s.cancelling.push_back(graph->id);
    // Who reads what will never be made ends with it: arrays are held by those who asked for them, and readers come later.
    for (const OpId op_id : graph->ops) {
      const OpRecord* op = s.ops.find(op_id);
      if (op == nullptr) continue;
      for (const ir::OutputSpec& output : op->op.outputs) fail_array(s.arrays.at(ArrayId{output.array}), why);
    }
    for_each_asker(*graph, [&](SessionId session, std::uint64_t) {
      for (const GraphId later : s.session(session).running) {
        if (later > graph->id && reads_from(s, s.graphs.at(later), *graph)) work.push_back(later);
      }
    });
  }
  // Root causes are set: the last op to be finished sends each graph's.
  for (std::size_t at = work.size(); at-- > 0;) {
    GraphRecord* graph = s.graphs.find(work[at]);
    if (graph == nullptr || !graph->cancelled) continue;
    const std::vector<OpId> ops = graph->ops;
    for (const OpId op_id : ops) {
      if (OpRecord* op = s.ops.find(op_id); op != nullptr && !op->finished) finish_op(s, *op);
    }
    finish_graph_if_done(s, *graph);  // it was in doubt
    forget_if_empty(s, *graph);
  }
}

void hold_array(State& s, ArrayRecord& array, Holder holder) {
  const auto at = std::lower_bound(array.holders.begin(), array.holders.end(), holder,
                                   [](const Holder& a, const Holder& b) { return a.session < b.session; });
  array.holders.insert(at, holder);
  array.held = true;
  s.session(holder.session).arrays.emplace(holder.number, array.id);
}

void release_array(State& s, ArrayRecord& array, SessionId session, std::vector<ArrayId>& released) {
  const auto held =
      std::erase_if(array.holders, [&](const Holder& holder) { return holder.session == session; });
  if (held == 0 || !array.holders.empty()) return;
  if (array.anchor && array.file == 0 && array.readers > static_cast<std::int32_t>(array.keeps.size())) {
    array.unnamed = true;
    return;
  }
  array.anchor = array.file != 0;  // files stay while something is made from them
  array.held = false;
  released.push_back(array.id);
  s.retire_candidates.push_back(array.producer);
  s.retire_candidates.insert(s.retire_candidates.end(), array.keeps.begin(), array.keeps.end());
  s.copied.erase(array.id);
  s.copies_due = s.copies_due || !s.copied.empty();  // there may be room, of what was released before
}

void acknowledge_cancels(State& s, WorkerId worker, std::uint64_t log_applied) {
  std::erase_if(s.cancelling, [&](GraphId id) {
    GraphRecord* graph = s.graphs.find(id);
    if (graph == nullptr) return true;
    std::erase_if(graph->unacknowledged,
                  [&](const auto& entry) { return entry.first == worker && entry.second <= log_applied; });
    if (!graph->unacknowledged.empty()) return false;
    for (const OpId op : graph->ops) s.retire_candidates.push_back(op);
    forget_if_empty(s, *graph);
    return true;
  });
}

void retire(State& s) {
  if (s.recovery.pending) return;  // workers have been asked about them
  for (std::size_t at = 0; at < s.retire_candidates.size();
       ++at) {  // the end of one may be the end of others
    OpRecord* op = s.ops.find(s.retire_candidates[at]);
    if (op == nullptr || op->of || !group_finished(s, *op) || !s.graphs.at(op->graph).unacknowledged.empty())
      continue;
    if (!dead(s, *op)) {
      cut_past(s, *op);  // its other results may have been what was still read
      continue;
    }
    if (!op->retired) retire_group(s, *op);
    if (!read_by_some(s, *op)) erase_op(s, *op);
  }
  s.retire_candidates.clear();
  while (s.lineage.size() > s.options.max_lineage_ops) erase_op(s, s.ops.at(*s.lineage.begin()));
  if (!s.let_go.empty()) log_to_workers(s, msg::Release{std::exchange(s.let_go, {})}, Haste::kLazy);
  if (s.retired.empty()) return;
  log_to_workers(s, msg::Retire{std::move(s.retired)}, Haste::kLazy);
  s.retired.clear();
}

}  // namespace tilewise::scheduler
