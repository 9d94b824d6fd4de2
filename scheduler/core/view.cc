// What people may see: tilewise/scheduler/view.h. Read-only, and bounded by ViewLimits.
#include "draft.h"
#include "handlers.h"
#include "layers.h"

#include <tilewise/plan/plan.h>

#include <algorithm>

namespace tilewise::scheduler {
namespace {

std::uint32_t fused_of(const ir::Op& op) {
  if (const auto* map = std::get_if<ir::MapAttrs>(&op.attrs))
    return static_cast<std::uint32_t>(map->tape.code.size());
  if (const auto* reduce = std::get_if<ir::ReduceAttrs>(&op.attrs))
    return static_cast<std::uint32_t>(reduce->tape.code.size());
  return 0;
}

std::vector<ShareView> shares_of(const OpRecord& op) {
  std::vector<ShareView> out;
  for (const OpShare& share : op.shares) {
    if (out.size() == ViewLimits::kShares) break;
    out.push_back({share.device, share.owned, share.completed});
  }
  return out;
}

std::string_view client_of(const State& s, SessionId session) {
  return session ? std::string_view(s.peer(s.session(session).peer).info.name) : "the scheduler";
}

// ---- overview --------------------------------------------------------------------------------------------------------

void add_to(std::map<std::pair<ir::OpKind, std::string_view>, OpGroup>& groups, ir::OpKind kind,
            std::string_view label, std::int64_t tasks, std::int64_t done, std::int64_t failed,
            bool finished) {
  OpGroup& group = groups[{kind, label}];
  group.kind = kind;
  ++group.ops;
  group.ops_done += finished ? 1 : 0;
  group.tasks += tasks;
  group.done += done;
  group.failed += failed;
}

// The ops of a graph by kind and label, largest first; at most `budget` of them are looked at.
std::vector<OpGroup> groups_of(const State& s, GraphId id, const std::vector<OpId>& ops,
                               std::size_t& budget) {
  std::map<std::pair<ir::OpKind, std::string_view>, OpGroup> groups;
  const auto past = s.history.graphs.find(id);
  if (past != s.history.graphs.end()) {
    for (const OpView& op : past->second.ops) {
      if (budget == 0) break;
      --budget;
      add_to(groups, op.kind, op.label, op.tasks, op.done, op.failed, true);
    }
  }
  for (const OpId op_id : ops) {
    if (budget == 0) break;
    --budget;
    if (const OpRecord* op = s.ops.find(op_id); op != nullptr && !op->of)
      add_to(groups, op->op.kind, op->op.label, op->shares.empty() ? 0 : op->points, op->completed,
             op->failed, op->finished);
  }
  std::vector<OpGroup> out;
  for (auto& [key, group] : groups) {
    group.label = key.second;
    out.push_back(std::move(group));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.tasks > b.tasks; });
  if (out.size() > ViewLimits::kOpGroups) out.resize(ViewLimits::kOpGroups);
  return out;
}

// Of a running graph, or of an ended one whose arrays are still there.
GraphSummary summary_of(const State& s, const GraphRecord& graph) {
  GraphSummary out;
  const auto past = s.history.graphs.find(graph.id);
  if (past != s.history.graphs.end()) out = past->second.summary;
  if (past != s.history.graphs.end() && !graph.running) return out;
  out.id = graph.id;
  out.session = graph.session;
  out.client = client_of(s, graph.session);
  out.request = graph.request;
  out.priority = graph.priority;
  out.running = graph.running;
  out.cancelled = graph.cancelled;
  out.tasks = graph.total;
  out.done = graph.done;
  out.failed = graph.failed;
  out.ops = static_cast<std::uint32_t>(graph.ops.size());
  out.ops_open = static_cast<std::uint32_t>(graph.ops_open);
  out.cause = graph.root_cause;
  return out;
}

SessionView session_view(const State& s, const Session& session) {
  SessionView out{session.id, session.peer, std::string(client_of(s, session.id))};
  out.held_arrays = static_cast<std::int64_t>(session.arrays.size());
  out.running = static_cast<std::uint32_t>(session.running.size());
  out.counted = session.arrays.size() <= ViewLimits::kScannedArrays;
  if (!out.counted) return out;
  for (const auto& [number, id] : session.arrays) {  // of what several hold, its share
    const ArrayRecord& array = s.arrays.at(id);
    out.held_bytes +=
        static_cast<std::int64_t>(place::bytes_of(array.source) / static_cast<double>(array.holders.size()));
  }
  return out;
}

View overview(const State& s) {
  Overview out;
  out.status = status_of(s);
  out.status.graphs.clear();
  out.running = s.running;
  std::size_t budget = ViewLimits::kScannedOps;
  for (const Session& session : s.sessions.all()) {
    if (!session.alive) continue;
    if (out.sessions.size() < ViewLimits::kSessions) out.sessions.push_back(session_view(s, session));
    for (const GraphId id : session.running) {
      if (out.graphs.size() == ViewLimits::kGraphs) break;
      const GraphRecord& graph = s.graphs.at(id);
      if (graph.session != session.id) continue;  // listed where it runs
      out.graphs.push_back(summary_of(s, graph));
      out.graphs.back().groups = groups_of(s, id, graph.ops, budget);
    }
  }
  std::sort(out.graphs.begin(), out.graphs.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (auto it = s.history.ended.rbegin(); it != s.history.ended.rend(); ++it)
    out.graphs.push_back(s.history.graphs.at(*it).summary);
  out.lineage = static_cast<std::int64_t>(s.lineage.size());
  out.lineage_limit = static_cast<std::int64_t>(s.options.max_lineage_ops);
  for (const ArrayId id : s.copied) {
    out.anchors += s.arrays.at(id).anchor;
    out.lacking += s.arrays.at(id).lacking > 0;
  }
  for (const auto& [id, file] : s.checkpoints.files) {
    out.anchors += !s.copied.contains(file.array);
    out.checkpoints += file.step == Checkpoints::Step::kThere;
  }
  out.checkpoints_failed = s.checkpoints.failed;
  out.checkpoint_trouble = s.checkpoints.trouble;
  if (!s.checkpoints.without.empty()) {
    const auto& [worker, why] = *s.checkpoints.without.begin();
    out.checkpoint_trouble = "w" + std::to_string(worker.value) + ": " + why;
  }
  for (const auto& [device, stuck] : s.stuck) out.stuck.push_back(stuck);
  out.lost.assign(s.history.lost.rbegin(), s.history.lost.rend());
  for (const auto& [worker, leaving] : s.leaving) out.draining.push_back(drain_status(s, s.peer(worker)));
  out.recovered = s.recovery.recovered;
  return out;
}

// ---- one graph -------------------------------------------------------------------------------------------------------

View graph_view(const State& s, const GraphRequest& request) {
  const GraphRecord* graph = s.graphs.find(request.graph);
  const auto past = s.history.graphs.find(request.graph);
  if (graph == nullptr && past == s.history.graphs.end())
    return error(Errc::kNotFound, "no such graph is known any more");
  GraphView out;
  if (graph != nullptr)
    out.summary = summary_of(s, *graph);
  else
    out.summary = past->second.summary;
  const auto wanted = [&](std::uint32_t position, TimeNs changed) {
    return position >= request.first && changed > request.since;
  };
  if (past != s.history.graphs.end()) {
    if (request.since == kNotYet) out.source = past->second.source;
    out.source_count = past->second.source_count;
    out.passes = past->second.passes;
    out.forgotten = past->second.forgotten;
    out.peaks = past->second.peaks;
    out.alone = past->second.alone;
    for (const OpView& op : past->second.ops) {
      if (wanted(op.position, std::max<TimeNs>(op.ended, 0))) out.ops.push_back(op);
    }
  }
  std::size_t budget = ViewLimits::kOps;
  for (std::size_t i = request.first; graph != nullptr && i < graph->ops.size() && budget > 0;
       ++i, --budget) {
    const OpRecord* op = s.ops.find(graph->ops[i]);
    if (op == nullptr || op->of || !wanted(op->position, std::max<TimeNs>(op->ended, 0))) continue;
    out.ops.push_back(view_of(s, *op));
    out.ops.back().shares = shares_of(*op);
  }
  std::sort(out.ops.begin(), out.ops.end(),
            [](const OpView& a, const OpView& b) { return a.position < b.position; });
  if (out.ops.size() > ViewLimits::kOps) out.ops.resize(ViewLimits::kOps);
  return out;
}

// ---- arrays ----------------------------------------------------------------------------------------------------------

// The names of those who hold it, or else of who had it made.
std::string holders_of(const State& s, const ArrayRecord& array) {
  if (array.holders.empty()) return std::string(client_of(s, array.session));
  std::string out;
  for (std::size_t i = 0; i < std::min(array.holders.size(), ViewLimits::kHolders); ++i)
    out += (i == 0 ? "" : ", ") + std::string(client_of(s, array.holders[i].session));
  if (array.holders.size() > ViewLimits::kHolders)
    out += " and " + std::to_string(array.holders.size() - ViewLimits::kHolders) + " more";
  return out;
}

bool is_of(const ArrayRecord& array, SessionId session) {
  if (array.holders.empty()) return array.session == session;
  return std::any_of(array.holders.begin(), array.holders.end(),
                     [&](const Holder& holder) { return holder.session == session; });
}

// Of blocks, which are numbered as their makers' tasks: all but what the op and its layers have still to do, or have failed to. What a
// client provides is there from the start.
std::int64_t made_of(const State& s, const OpRecord& op, std::int64_t blocks) {
  if (op.shares.empty()) return blocks;
  std::int64_t missing = op.points - op.completed + op.failed;
  for (const OpId id : op.layers) {
    const OpRecord* layer = s.ops.find(id);
    if (layer != nullptr && !layer->shares.empty())
      missing += layer->points - layer->completed + layer->failed;
  }
  return std::clamp<std::int64_t>(blocks - missing, 0, blocks);
}

// `budget`: see layered_placement().
ArrayView array_view(const State& s, const ArrayRecord& array, std::int64_t& budget) {
  const OpRecord& producer = s.ops.at(array.producer);
  ArrayView out;
  out.id = array.id;
  out.session = array.session;
  out.client = holders_of(s, array);
  out.number = array.number;
  out.held = array.held;
  out.dtype = array.source.dtype;
  out.grid = array.source.grid;
  out.bytes = static_cast<std::int64_t>(place::bytes_of(array.source));
  out.blocks = array.source.grid.block_count();
  out.made = made_of(s, producer, out.blocks);
  out.open_users = array.open_users;
  out.graph = producer.graph;
  out.producer = producer.id;
  out.position = producer.position;
  out.kind = producer.op.kind;
  out.label = producer.op.label;
  out.placement = place::describe(layered_placement(s, producer, &budget));
  for (const ir::Piece& piece : producer.placement.pieces())
    out.copies = std::max(out.copies, piece.rule.copies);
  out.copies = std::max(out.copies, static_cast<std::int32_t>(array.copies));
  if (array.held) out.lacking = static_cast<std::int32_t>(array.lacking);
  out.shares = shares_of(producer);
  out.failed = array.failed;
  return out;
}

View array_list(const State& s, const ArraysRequest& request) {
  ArrayList out;
  s.arrays.for_each([&](const ArrayRecord& array) { out.live += !s.ops.at(array.producer).retired; });
  std::vector<std::pair<double, const ArrayRecord*>> found;  // what comes first, larger
  std::size_t budget = ViewLimits::kScannedArrays;
  s.arrays.for_each([&](const ArrayRecord& array) {
    if (budget == 0 || s.ops.at(array.producer).retired) return;
    --budget, ++out.listed_of;
    if (s.ops.at(array.producer).retired) return;  // kept as lineage: it has no bytes any more
    if (request.session && !is_of(array, request.session)) return;
    found.emplace_back(place::bytes_of(array.source) + (array.held ? 1e19 : 0), &array);
  });
  const std::size_t count = std::min(found.size(), ViewLimits::kArrays);
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(),
                    [](const auto& a, const auto& b) {
                      return a.first != b.first ? a.first > b.first : a.second->id < b.second->id;
                    });
  std::int64_t looked_at = kMaxOverlaid;
  for (std::size_t i = 0; i < count; ++i) out.arrays.push_back(array_view(s, *found[i].second, looked_at));
  return out;
}

View array_detail(const State& s, const ArrayRequest& request) {
  const ArrayRecord* array = s.arrays.find(request.array);
  if (array == nullptr) return error(Errc::kNotFound, "no such array is alive any more");
  const OpRecord& producer = s.ops.at(array->producer);
  ArrayDetail out;
  std::int64_t looked_at = kMaxOverlaid;
  out.array = array_view(s, *array, looked_at);
  out.placement = layered_placement(s, producer);
  out.producer = view_of(s, producer);
  out.producer.shares = shares_of(producer);
  // A line an op; lists of a million references are not for people.
  if (producer.op.kind != ir::OpKind::kCall) out.program = plan::dump({&producer.op, 1});
  std::size_t budget = ViewLimits::kScannedOps;
  s.ops.for_each([&](const OpRecord& op) {
    if (budget == 0) return;
    --budget;
    const bool reads = std::any_of(op.op.operands.begin(), op.op.operands.end(),
                                   [&](const ir::Operand& o) { return o.array == array->id.value; });
    if (reads && out.readers.size() < ViewLimits::kShares) out.readers.push_back(view_of(s, op));
  });
  return out;
}

// ---- links -----------------------------------------------------------------------------------------------------------

LinkClassView class_view(const State& s, const std::map<std::uint32_t, std::string>& hosts,
                         const place::LinkClass& links, const LinkProbing::Known& known) {
  static constexpr std::string_view kSteps[] = {"due", "under way", "measured", "given up"};
  LinkClassView out;
  out.state = kSteps[static_cast<std::size_t>(known.step)];
  out.from = hosts.at(links.from.host), out.to = hosts.at(links.to.host);
  out.from_kind = links.from.kind, out.to_kind = links.to.kind;
  out.inside = links.inside;
  out.from_device = known.from, out.to_device = known.to;
  out.at = known.at;
  out.last = known.last;
  const Device *from = s.device(known.from), *to = s.device(known.to);
  if (from == nullptr || to == nullptr) return out;
  const place::LinkSpeed speed = s.speeds.copying(place_device(*from), place_device(*to));
  out.bytes_per_s = speed.bytes_per_s, out.latency_s = speed.latency_s;
  return out;
}

View link_list(const State& s) {
  LinkList out;
  out.count = s.pairs.size();
  for (const auto& [key, stats] : s.pairs) out.links.push_back({stats, 0, 0});
  const std::size_t kept = std::min(out.links.size(), ViewLimits::kPairs);
  std::partial_sort(out.links.begin(), out.links.begin() + static_cast<std::ptrdiff_t>(kept), out.links.end(),
                    [](const auto& a, const auto& b) { return a.stats.bytes > b.stats.bytes; });
  out.links.resize(kept);
  for (LinkView& link : out.links) {
    if (link.stats.lane == msg::Lane::kMapped || link.stats.lane == msg::Lane::kSameDevice) continue;
    const place::LinkSpeed speed =
        s.speeds.link(place_device(*s.device(link.stats.from)), place_device(*s.device(link.stats.to)));
    link.limit_bytes_per_s = speed.bytes_per_s;
    link.latency_s = speed.latency_s;
  }
  std::map<std::uint32_t, std::string> hosts;
  for (const auto& [id, number] : s.hosts) hosts.emplace(number, id);
  out.class_count = s.probing.classes.size();
  for (const auto& [links, known] : s.probing.classes) {
    if (out.classes.size() == ViewLimits::kPairs) break;
    out.classes.push_back(class_view(s, hosts, links, known));
  }
  return out;
}

}  // namespace

OpView view_of(const State& s, const OpRecord& op) {
  OpView out;
  out.id = op.id;
  out.position = op.position;
  out.kind = op.op.kind;
  out.label = op.op.label;
  out.fused = fused_of(op.op);
  out.inputs = op.inputs;
  out.reads_earlier = op.inputs.size() < op.op.operands.size();
  out.tasks = op.shares.empty() ? 0 : op.points;
  out.done = op.completed;
  out.failed = op.failed;
  out.bytes = output_bytes(op.op);
  out.finished = op.finished;
  out.began = op.began;
  out.ended = op.ended;
  out.predicted_s = op.decision.seconds;
  out.why = op.decision.why;
  const std::span<const RejectedView> rejected = rejected_of(s, op);
  out.rejected.assign(rejected.begin(), rejected.end());
  for (const OpShare& share : op.shares) {
    const double busy = static_cast<double>(share.busy_ns) * 1e-9;
    out.busy_s += busy;
    out.busiest_s = std::max(out.busiest_s, busy);
    out.bytes_moved += share.bytes_moved;
  }
  return out;
}

View view_of(const State& s, const ViewRequest& request) {
  if (const auto* graph = std::get_if<GraphRequest>(&request)) return graph_view(s, *graph);
  if (const auto* arrays = std::get_if<ArraysRequest>(&request)) return array_list(s, *arrays);
  if (const auto* array = std::get_if<ArrayRequest>(&request)) return array_detail(s, *array);
  if (std::holds_alternative<LinksRequest>(request)) return link_list(s);
  return overview(s);
}

}  // namespace tilewise::scheduler
