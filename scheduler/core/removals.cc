#include "removals.h"

#include <tilewise/ir/saving.h>

#include "graphs.h"
#include "handlers.h"
#include "outbox.h"
#include "own.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace tilewise::scheduler {
namespace {

bool is_over(const State& s, GraphId id) {
  const GraphRecord* graph = s.graphs.find(id);
  return graph == nullptr || graph->unacknowledged.empty();
}

// A device whose worker has the kernel and does not leave: the one that was to put in place what goes now, or the first of a host.
DeviceId who_removes(const State& s, const Undo& undo) {
  std::optional<std::tuple<bool, bool, bool, DeviceId>> best;
  for (const WorkerId id : s.live) {
    const Peer& peer = s.peer(id);
    const bool offers =
        s.is_worker(id) && std::any_of(peer.plugins.begin(), peer.plugins.end(),
                                       [&](const msg::PluginDesc& p) { return p.kernel == undo.kernel; });
    if (!offers) continue;
    for (const DeviceId on : peer.info.devices) {
      const Device& device = *s.device(on);
      const std::tuple rank(device.draining, on != undo.near, device.kind != place::kHostKind, on);
      if (!best || rank < *best) best = rank;
    }
  }
  return best ? std::get<DeviceId>(*best) : DeviceId{};
}

void tell(State& s, GraphId graph, Removal& removal) {
  for (const Asker& asker : std::exchange(removal.askers, {})) {
    msg::GraphDone done = removal.done;
    done.request = asker.request;
    tell_end(s, asker, graph, done);
  }
  removal.done.needs.clear();
}

void begin(State& s, Removal& removal, DeviceId on) {
  const Undo& undo = removal.left.back();
  GraphRecord& graph = own_graph(s, nullptr);
  msg::Plan plan = own_plan(graph);
  removal.op = add_own(s, graph, plan, own_call(s, "removal", undo.kernel, undo.params, one_point()),
                       ir::Placement::whole({1}, ir::Rule::constant(1, on)));
  log_to_workers(s, std::move(plan));
}

}  // namespace

void note_saves(const State& s, GraphRecord& graph) {
  for (const OpId id : graph.ops) {
    const OpRecord& op = s.ops.at(id);
    if (op.op.kind != ir::OpKind::kCall) continue;
    const auto& call = op.op.get<ir::CallAttrs>();
    const std::string_view undo = ir::saving::undo_of(call.kernel);
    if (undo.empty()) continue;
    graph.undo.push_back(
        {std::string(undo), call.params, op.shares.empty() ? DeviceId{} : op.shares.front().device});
  }
}

bool begin_removal(State& s, const GraphRecord& graph) {
  if (graph.root_cause.ok() || graph.undo.empty()) return false;
  Removal& removal = s.removals[graph.id];
  removal.left = graph.undo;
  for_each_asker(graph, [&](SessionId id, std::uint64_t request) {
    removal.askers.push_back({id, request});
  });
  removal.tell_at = s.now + s.options.silence_ns;
  removal.done = {0, graph.root_cause, graph.total, graph.needs};
  return true;
}

void check_removals(State& s) {
  for (auto at = s.removals.begin(); at != s.removals.end();) {
    auto& [graph, removal] = *at;
    if (removal.left.empty()) {
      tell(s, graph, removal);
      at = s.removals.erase(at);
      continue;
    }
    if (s.now >= removal.tell_at) tell(s, graph, removal);
    if (!removal.op && s.now >= removal.again_at && is_over(s, graph)) {
      if (const DeviceId on = who_removes(s, removal.left.back()))
        begin(s, removal, on);
      else
        tell(s, graph, removal);  // it is removed when there is a worker again; nobody waits for that
    }
    ++at;
  }
  for (auto at = s.removals.begin(); s.removals.size() > Removal::kMax && at != s.removals.end();) {
    if (at->second.op) {
      ++at;
      continue;
    }
    tell(s, at->first, at->second);
    at = s.removals.erase(at);
  }
}

bool removal_ended(State& s, const Checkpoints::Ended& ended) {
  const auto at = std::find_if(s.removals.begin(), s.removals.end(),
                               [&](const auto& removal) { return removal.second.op == ended.op; });
  if (at == s.removals.end()) return false;
  Removal& removal = at->second;
  removal.op = {};
  // Its worker may have died, of something else: another one does it. What cannot be removed stays.
  const bool lost = ended.why.code == Errc::kWorkerLost && deaths_of(s, ended.op, 0) == 0;
  if (!ended.ok) {
    removal.again_at = s.now + (Removal::kAgainNs << removal.tries);
    const bool never = ended.why.code == Errc::kInvalidArgument;
    if (lost || (!never && ++removal.tries < Removal::kTries)) return true;
  }
  removal.left.pop_back();
  removal.tries = 0;
  removal.again_at = 0;
  return true;
}

TimeNs removals_deadline(const State& s) {
  TimeNs next = kNever;
  for (const auto& [graph, removal] : s.removals) {
    if (!removal.op && removal.again_at > s.now) next = std::min(next, removal.again_at);
    if (!removal.askers.empty()) next = std::min(next, removal.tell_at);
  }
  return next;
}

}  // namespace tilewise::scheduler
