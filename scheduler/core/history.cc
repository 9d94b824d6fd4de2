#include "history.h"

#include "account.h"
#include "graphs.h"
#include "state.h"

#include <tilewise/plan/plan.h>

#include <algorithm>

namespace tilewise::scheduler {
namespace {

bool kept(const State& s) { return s.options.history_graphs > 0; }

// The oldest graphs go, whole, when there are too many of them or of their ops.
void trim(State& s) {
  History& h = s.history;
  const std::size_t most = kept(s) ? s.options.history_graphs : kMaxAskedGraphs;
  while (!h.ended.empty() && (h.ended.size() > most || h.ops > kMaxPastOps)) {
    const auto it = h.graphs.find(h.ended.front());
    h.ops -= it->second.ops.size();
    h.foretold.erase(it->first);
    h.graphs.erase(it);
    h.ended.pop_front();
  }
}

}  // namespace

std::vector<SourceOp> source_of(const State& s, const std::vector<ir::Op>& ops) {
  std::vector<SourceOp> out;
  if (!kept(s)) return out;
  out.reserve(std::min(ops.size(), kMaxSourceOps));
  boost::unordered_flat_map<std::uint64_t, std::uint32_t> made;
  for (const ir::Op& op : ops) {
    if (out.size() == kMaxSourceOps) break;
    SourceOp source{op.kind, op.label, {}};
    for (const ir::Operand& operand : op.operands) {
      if (const auto it = made.find(operand.array); it != made.end()) source.inputs.push_back(it->second);
    }
    for (const ir::OutputSpec& output : op.outputs)
      made.emplace(output.array, static_cast<std::uint32_t>(out.size()));
    out.push_back(std::move(source));
  }
  return out;
}

std::vector<std::vector<RejectedView>> rejected_of(const State& s, const Draft& draft) {
  std::vector<std::vector<RejectedView>> out;
  if (!kept(s)) return out;
  out.resize(std::min(draft.decisions.size(), kMaxRejectedOps));
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (const place::Rejected& other : draft.decisions[i].rejected)
      out[i].push_back({other.why, place::describe(other.placement, other.moved_bytes), other.seconds});
  }
  return out;
}

std::span<const RejectedView> rejected_of(const State& s, const OpRecord& op) {
  const auto it = s.history.graphs.find(op.graph);
  if (it == s.history.graphs.end() || op.position >= it->second.rejected.size()) return {};
  return it->second.rejected[op.position];
}

void remember_graph(State& s, const GraphRecord& graph, PastGraph past) {
  if (s.running > 0 && s.history.running.size() <= kMaxPeakGraphs) {
    for (const GraphId id : s.history.running) s.history.graphs.at(id).alone = false;
  }
  if (!kept(s) && !past.asked) return;
  GraphSummary& g = past.summary;
  g.id = graph.id;
  g.session = graph.session;
  g.client = s.peer(s.session(graph.session).peer).info.name;
  g.request = graph.request;
  g.priority = graph.priority;
  g.submitted = s.now - s.start;
  g.ops = static_cast<std::uint32_t>(graph.ops.size());
  g.tasks = graph.total;
  s.history.running.push_back(graph.id);
  past.alone = kept(s) ? s.history.running.size() == 1 : s.running == 0;  // it is not counted yet
  s.history.graphs.emplace(graph.id, std::move(past));
}

namespace {

void note_affected(GraphSummary& g, const OpRecord& op) {
  if (g.affected.size() < kMaxAffected) g.affected.push_back(plan::describe(op.op, op.position));
  ++g.affected_count;
}

}  // namespace

void remember_end(State& s, const GraphRecord& graph) {
  const auto it = s.history.graphs.find(graph.id);
  if (it == s.history.graphs.end()) return;
  GraphSummary& g = it->second.summary;
  g.running = false;
  g.tasks = graph.total;  // with what was made again
  g.cancelled = graph.cancelled;
  g.done = graph.done;
  g.failed = graph.failed;
  g.ended = s.now - s.start;
  g.cause = graph.root_cause;
  OpId failed_op = graph.failed_op.second;  // it may be retired by now
  if (!g.cause.ok()) {
    for (const OpId id : graph.ops) {
      const OpRecord* op = s.ops.find(id);
      if (op == nullptr || (op->failed == 0 && op->completed == op->points)) continue;
      if (op->failed > 0 && !failed_op) failed_op = op->id;
      note_affected(g, *op);
    }
  }
  s.out->push_back(
      GraphEnded{g.id, g.session, g.request, g.tasks, g.ended - g.submitted, g.cause, failed_op});
  std::erase(s.history.running, graph.id);
  s.history.ended.push_back(graph.id);
  trim(s);
}

namespace {

std::int64_t spilled(const msg::DeviceStats& d) {
  return d.disk_written + d.pinned_written + d.lodged_written;
}
std::int64_t returned(const msg::DeviceStats& d) { return d.disk_read + d.pinned_read + d.lodged_read; }

}  // namespace

// Of every graph that runs: who of them takes the memory is not told apart, but for what was there before.
void remember_peak(State& s, const msg::DeviceStats& stats, const msg::DeviceStats& before) {
  if (s.history.running.size() > kMaxPeakGraphs) return;
  const std::int64_t bytes = std::max(stats.bytes_used, stats.bytes_high);
  for (const GraphId id : s.history.running) {
    std::vector<DevicePeak>& peaks = s.history.graphs.at(id).peaks;
    auto at = std::lower_bound(peaks.begin(), peaks.end(), stats.device,
                               [](const DevicePeak& p, DeviceId device) { return p.device < device; });
    if (at == peaks.end() || at->device != stats.device)
      at = peaks.insert(at, {stats.device, bytes, before.bytes_used, 0, 0});
    at->bytes = std::max(at->bytes, bytes);
    at->spilled += std::max<std::int64_t>(0, spilled(stats) - spilled(before));
    at->returned += std::max<std::int64_t>(0, returned(stats) - returned(before));
  }
}

void remember_link(State& s, const msg::PairStats& more) {
  if (s.history.running.size() > kMaxPeakGraphs) return;
  const std::tuple key(more.from, more.to, more.lane);
  for (const GraphId id : s.history.running) {
    auto& links = s.history.graphs.at(id).links;
    if (links.size() >= kMaxPastLinks && !links.contains(key)) continue;
    msg::PairStats& link = links[key];
    link.from = more.from, link.to = more.to, link.lane = more.lane;
    link.transfers += more.transfers;
    link.bytes += more.bytes;
    link.busy_ns += more.busy_ns;
  }
}

void add_work(const OpRecord& op, std::map<DeviceId, PastWork>& work) {
  for (const OpShare& share : op.shares) {
    PastWork& there = work[share.device];
    there.tasks += share.completed;
    there.busy_ns += share.busy_ns;
  }
}

void remember_op(State& s, const OpRecord& op) {
  const auto it = s.history.graphs.find(op.graph);
  if (it == s.history.graphs.end()) return;
  PastGraph& past = it->second;
  add_work(op, past.work);
  if (past.summary.running && op.failed > 0) note_affected(past.summary, op);  // its graph ends without it
  // A running graph cannot be dropped for room: of a very large one the first that go are remembered.
  if (s.history.ops >= 2 * kMaxPastOps || past.ops.size() >= ViewLimits::kOps) {
    ++past.forgotten;
    return;
  }
  past.ops.push_back(view_of(s, op));
  ++s.history.ops;
  if (!past.summary.running) trim(s);
}

void remember_loss(State& s, const Peer& peer, bool stopped) {
  if (!kept(s) || peer.info.role == msg::Role::kTool) return;  // tools come and go
  std::int64_t bytes = 0;
  for (const DeviceId id : peer.info.devices) bytes += s.device(id)->stats.bytes_used;
  s.history.lost.push_back(
      {peer.info.id, peer.info.role, peer.info.name, s.now - s.start, peer.left, stopped, bytes});
  if (s.history.lost.size() > kMaxLostPeers) s.history.lost.pop_front();
}

}  // namespace tilewise::scheduler
