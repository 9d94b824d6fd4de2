// What a plan will do, told before it runs: planned and placed as if it had been submitted, then run on paper. Changes
// nothing.
#include "account.h"
#include "draft.h"
#include "graphs.h"
#include "handlers.h"
#include "history.h"
#include "layers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxDumpBytes = 1 << 20;  // of all passes
constexpr std::size_t kMaxBeside = 16;          // graphs that run beside the one that is asked about
constexpr std::size_t kMaxArrays = 1024;        // of one question
constexpr std::size_t kMaxArrayDevices =
    1 << 20;  // named by the rules of all of them; the first is always told

struct Unfinished {
  const GraphRecord* graph = nullptr;
  std::vector<const OpRecord*> ops;
  std::vector<std::uint64_t> held;
};

Unfinished unfinished(const State& s, const GraphRecord& graph) {
  Unfinished out{&graph, {}, {}};
  for (const OpId id : graph.ops) {
    const OpRecord* op = s.ops.find(id);
    if (op == nullptr || op->finished) continue;  // what a finished op has read may be forgotten
    out.ops.push_back(op);
    for (const ir::OutputSpec& output : op->op.outputs) {
      if (s.arrays.at(ArrayId{output.array}).held) out.held.push_back(output.array);
    }
  }
  std::sort(out.held.begin(), out.held.end());
  return out;
}

void account_choices(const State& s, const OpRecord& op, msg::OpAccount& account) {
  account.op = plan::describe(op.op, op.position);
  account.choices.push_back({std::string(op.decision.why),
                             place::describe(op.placement, op.decision.moved_bytes), op.decision.seconds});
  for (const RejectedView& other : rejected_of(s, op))
    account.choices.push_back({std::string(other.why), other.placement, other.seconds});
}

// With all that runs beside it: graphs share the devices, so neither time nor memory is its own.
void explain_graph(const State& s, const GraphRecord& graph, msg::Explanation& out) {
  std::vector<GraphId> beside;
  for (const Session& session : s.sessions.all()) {
    if (!session.alive) continue;
    for (const GraphId id : session.running) {
      if (id != graph.id && s.graphs.at(id).session == session.id) beside.push_back(id);
    }
  }
  std::sort(beside.begin(), beside.end());
  if (beside.size() > kMaxBeside) beside.resize(kMaxBeside);  // the oldest
  // An op that reads what another graph makes comes after it: ids rise in the order of submissions.
  beside.insert(std::upper_bound(beside.begin(), beside.end(), graph.id), graph.id);
  std::vector<Unfinished> all;
  for (const GraphId id : beside) all.push_back(unfinished(s, s.graphs.at(id)));
  Paper paper(s);
  for (const Unfinished& each : all) {
    const bool asked = each.graph == &graph;
    paper.begin({each.graph->session, each.graph->weight, each.graph->priority}, asked);
    for (const OpRecord* op : each.ops) {
      paper.add(op->op, op->placement, each.held);
      if (asked) account_choices(s, *op, out.ops.emplace_back());
    }
  }
  paper.account(out);
  cut_ops(out);
}

void explain_draft(const State& s, const Draft& draft, msg::Explanation& out) {
  std::size_t dumped = 0;
  for (const plan::PassReport& pass : draft.passes) {
    const std::size_t room = kMaxDumpBytes - std::min(kMaxDumpBytes, dumped);
    dumped += pass.dump.size();
    out.passes.push_back({std::string(pass.name), static_cast<std::uint32_t>(pass.ops),
                          pass.dump.size() <= room ? pass.dump : pass.dump.substr(0, room) + "...\n"});
  }
  Paper paper(s);
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    paper.add(draft.ops[i], draft.placements[i], draft.graph.holds);
    tell_choices(draft, i, out.ops.emplace_back());
  }
  const std::vector<PlannedKeep> keeps = planned_keeps(s, draft);
  for (std::size_t i = 0; i < keeps.size(); ++i) {
    paper.add(keeps[i].op, keeps[i].placement, draft.graph.holds);
    tell_keep(keeps[i], draft.ops.size() + i, out.ops.emplace_back());
  }
  paper.account(out);
  cut_ops(out);
}

void add_arrays(const State& s, const Session& session, std::vector<std::uint64_t> wanted, const Draft* draft,
                msg::Explanation& out) {
  boost::unordered_flat_map<std::uint64_t, std::pair<std::size_t, std::size_t>> made;  // (op, output)
  for (std::size_t i = 0; draft != nullptr && i < draft->ops.size(); ++i) {
    for (std::size_t o = 0; o < draft->ops[i].outputs.size(); ++o)
      made.emplace(draft->ops[i].outputs[o].array, std::pair(i, o));
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::size_t devices = 0;
  std::int64_t looked_at = 4 * kMaxOverlaid;
  const auto add = [&](std::uint64_t number, ir::DType dtype, const ir::Grid& grid,
                       const ir::Placement& placement, bool planned) {
    for (const ir::Piece& piece : placement.pieces()) devices += piece.rule.devices.size();
    if (devices <= kMaxArrayDevices || out.arrays.empty())
      out.arrays.push_back({number, dtype, grid, placement, planned});
  };
  for (const std::uint64_t number : wanted) {
    if (const auto held = session.arrays.find(number); held != session.arrays.end()) {
      const ArrayRecord& array = s.arrays.at(held->second);
      add(number, array.source.dtype, array.source.grid,
          layered_placement(s, s.ops.at(array.producer), &looked_at), false);
      continue;
    }
    if (draft == nullptr) continue;
    const auto name = draft->names.find(number);
    const auto at = name == draft->names.end() ? made.end() : made.find(name->second);
    if (at == made.end()) continue;
    const auto [op, output] = at->second;
    add(number, draft->ops[op].outputs[output].dtype, draft->ops[op].outputs[output].grid,
        draft->placements[op], true);
  }
}

}  // namespace

void on_explain(State& s, Peer& peer, msg::Explain& explain) {
  msg::Explanation out;
  out.request = explain.submit.request;
  if (explain.account) {
    account_of(s, explain.graph, out);
    return send(s, peer.conn, out);
  }
  if (explain.graph) {
    if (const GraphRecord* graph = s.graphs.find(explain.graph))
      explain_graph(s, *graph, out);
    else
      out.outcome = {Errc::kNotFound,
                     "no graph " + std::to_string(explain.graph.value) + " is known any more"};
    return send(s, peer.conn, out);
  }
  if (explain.arrays.size() > kMaxArrays) {
    out.outcome = {Errc::kLimitExceeded, "the places of " + std::to_string(explain.arrays.size()) +
                                             " arrays are asked for, the limit is " +
                                             std::to_string(kMaxArrays)};
    return send(s, peer.conn, out);
  }
  const Session& session = s.session(peer.session);
  if (explain.submit.ops.empty() && explain.submit.program == 0 && explain.submit.keeps.empty()) {
    add_arrays(s, session, std::move(explain.arrays), nullptr, out);
    return send(s, peer.conn, out);
  }
  const auto kept = program_of(session, explain.submit);
  const Result<Draft> draft =
      kept ? prepare(s, session, explain.submit, *kept, true, out.needs) : Result<Draft>(kept.error());
  if (draft) {
    explain_draft(s, *draft, out);
    add_arrays(s, session, std::move(explain.arrays), &*draft, out);
  } else {
    out.outcome = outcome_of(draft.error());
  }
  send(s, peer.conn, out);
}

}  // namespace tilewise::scheduler
