// What clients take back: holds and whole requests.
#include "graphs.h"
#include "handlers.h"
#include "outbox.h"

namespace tilewise::scheduler {

void on_release(State& s, Peer& client, const msg::ReleaseArrays& release) {
  Session& session = s.session(client.session);
  std::vector<ArrayId> released;
  for (const std::uint64_t number : release.arrays) {
    const auto it = session.arrays.find(number);
    if (it == session.arrays.end()) continue;  // released before, or never held
    release_array(s, s.arrays.at(it->second), session.id, released);
    session.arrays.erase(it);
  }
  if (!released.empty()) log_to_workers(s, msg::Release{std::move(released)}, Haste::kLazy);
  if (release.delivered.empty()) return;
  // Requests are named in any order, graphs are looked at once: a message may name millions.
  std::vector<std::uint64_t> delivered = release.delivered;
  std::sort(delivered.begin(), delivered.end());
  std::vector<GraphId> over;
  std::copy_if(session.running.begin(), session.running.end(), std::back_inserter(over), [&](GraphId id) {
    return std::binary_search(delivered.begin(), delivered.end(), request_of(s.graphs.at(id), session.id));
  });
  for (const GraphId id : over) {
    if (GraphRecord* graph = s.graphs.find(id)) deliver(s, *graph);
  }
}

void on_cancel(State& s, Peer& client, const msg::CancelRequest& cancel) {
  if (take_back_announcement(s, client, cancel.request)) return;
  for (const GraphId id : s.session(client.session).running) {
    const GraphRecord& graph = s.graphs.at(id);
    if (request_of(graph, client.session) != cancel.request) continue;
    std::string why = "request " + std::to_string(cancel.request) + " was cancelled by its client";
    if (!graph.others.empty()) why += " '" + client.info.name + "'";
    cancel_graph(s, id, {Errc::kCancelled, std::move(why)});
    return;
  }
}

void on_operator_cancel(State& s, const OperatorCancel& cancel) {
  const GraphRecord* graph = s.graphs.find(cancel.graph);
  if (graph == nullptr || !graph->running) return;
  cancel_graph(
      s, cancel.graph,
      {Errc::kCancelled, "request " + std::to_string(graph->request) + " was cancelled by an operator"});
}

void on_operator_release(State& s, const OperatorRelease& release) {
  ArrayRecord* array = s.arrays.find(release.array);
  if (array == nullptr || !array->held) return;
  std::vector<ArrayId> released;
  for (const Holder& holder : std::vector<Holder>(array->holders)) {
    release_array(s, *array, holder.session, released);
    s.session(holder.session).arrays.erase(holder.number);
  }
  if (!released.empty()) log_to_workers(s, msg::Release{std::move(released)}, Haste::kLazy);
}

}  // namespace tilewise::scheduler
