// What is left of tools and clients that have gone. Nothing names a tool; a client's session and endpoint are named by what it asked for, as
// long as that is known. Then they go, and their ids are not used again. (Workers stay: deaths and losses name them.)
#include "handlers.h"

#include <algorithm>
#include <set>

namespace tilewise::scheduler {
namespace {

// Looking for what names them goes through all records. So much of that is due for each that goes and, while any is left, each step.
constexpr std::uint64_t kRecordsEach = 4096, kRecordsAStep = 64;

struct Names {
  std::set<SessionId> sessions;
  std::set<DeviceId> devices;

  void name(SessionId session) { sessions.insert(session); }
  void name(const OpRecord& op) {
    for (const DeviceId device : op.placement.devices()) devices.insert(device);
    for (const OpShare& share : op.shares) devices.insert(share.device);
    if (const auto* endpoint = std::get_if<ir::FetchAttrs>(&op.op.attrs)) devices.insert(endpoint->to);
  }
};

Names names_in(const State& s) {
  Names in;
  s.graphs.for_each([&](const GraphRecord& graph) {
    in.name(graph.session);
    for (const Asker& other : graph.others) in.name(other.session);
  });
  s.arrays.for_each([&](const ArrayRecord& array) {
    in.name(array.session);
    for (const Holder& holder : array.holders) in.name(holder.session);
  });
  s.ops.for_each([&](const OpRecord& op) { in.name(op); });
  for (const auto& [graph, removal] : s.removals) {
    for (const Asker& asker : removal.askers) in.name(asker.session);
  }
  for (const auto& [name, gathering] : s.gatherings) {
    for (const Gathering::Part& part : gathering.parts) in.name(part.session);
  }
  return in;
}

}  // namespace

void note_departed(State& s, const Peer& peer) {
  s.departed.push_back(peer.info.id);
  s.departed_credit += kRecordsEach;
}

void forget_departed(State& s) {
  std::erase_if(s.departed, [&](WorkerId id) {
    const bool tool = s.peer(id).info.role == msg::Role::kTool;
    if (tool) s.peers.erase(id);
    return tool;
  });
  s.departed_credit = s.departed.empty() ? 0 : s.departed_credit + kRecordsAStep;
  if (s.departed.empty() || s.departed_credit < s.graphs.size() + s.arrays.size() + s.ops.size()) return;
  s.departed_credit = 0;
  const Names named = names_in(s);
  std::erase_if(s.departed, [&](WorkerId id) {
    const Peer& peer = s.peer(id);
    const std::vector<DeviceId>& devices = peer.info.devices;
    if (named.sessions.contains(peer.session) ||
        std::any_of(devices.begin(), devices.end(), [&](DeviceId d) { return named.devices.contains(d); }))
      return false;
    for (const DeviceId device : devices) s.devices.erase(device);
    s.sessions.erase(peer.session);
    s.peers.erase(id);
    return true;
  });
}

}  // namespace tilewise::scheduler
