#include "handlers.h"

namespace tilewise::scheduler {

msg::StatusReply status_of(const State& s) {
  msg::StatusReply out;
  out.term = s.options.term;
  out.uptime_ns = s.now - s.start;
  for (const WorkerId id : s.live) {
    const Peer& peer = s.peer(id);
    out.peers.push_back(peer.info);
    if (!s.is_worker(id)) continue;
    for (const DeviceId device : peer.info.devices) {
      out.devices.push_back(s.device(device)->stats);
      for (const auto& [name, family] : s.device(device)->families) out.families.push_back(family);
    }
    for (const msg::LaneStats& lane : peer.lanes) {
      if (lane.transfers > 0 || lane.failed > 0) out.lanes.push_back({id, lane});
    }
  }
  for (const Session& session : s.sessions.all()) {
    for (const GraphId id : session.running) {
      const GraphRecord& graph = s.graphs.at(id);
      if (graph.session != session.id) continue;  // listed where it runs
      out.graphs.push_back(
          {id, graph.session, graph.done, graph.total, graph.ops_left, !graph.root_cause.ok()});
    }
  }
  out.graphs_done = s.graphs_done;
  out.graphs_failed = s.graphs_failed;
  out.tasks_done = s.tasks_done;
  s.arrays.for_each([&](const ArrayRecord& array) { out.arrays_live += !s.ops.at(array.producer).retired; });
  return out;
}

}  // namespace tilewise::scheduler
