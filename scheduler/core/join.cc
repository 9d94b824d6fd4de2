// Joining: who may, what they are told about the others, and what the others are told about them.
#include <tilewise/base/utf8.h>

#include <algorithm>

#include "handlers.h"
#include "layers.h"
#include "outbox.h"

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxDevices = 1024;  // of one process
constexpr TimeNs kMaxLeaseNs = 7 * 24 * 3600 * kSecond;
constexpr std::size_t kMaxAddresses = 16;
constexpr std::size_t kMaxPlugins = 4096;
constexpr std::size_t kMaxAddressBytes = 1024;
constexpr std::int64_t kMaxMemoryBytes = std::int64_t{1}
                                         << 56;  // sums over all devices stay far from overflow

Status check_limits(const State& s, const msg::Join& join) {
  const auto too_long = [](const std::string& text) { return text.size() > limits::kMaxNameBytes; };
  if (join.role > msg::Role::kTool) return error(Errc::kInvalidArgument, "unknown role");
  if (too_long(join.name) || too_long(join.software_version) || too_long(join.host_id)) {
    return error(Errc::kLimitExceeded,
                 "name, version or host id longer than " + std::to_string(limits::kMaxNameBytes) + " bytes");
  }
  if (!is_printable(join.name) || !is_printable(join.software_version) || !is_printable(join.host_id)) {
    return error(Errc::kInvalidArgument, "the name, version or host id '" + printable(join.name) +
                                             "' has control characters or is no UTF-8");
  }
  if (join.lease_ns < 0 || join.lease_ns > kMaxLeaseNs) {
    return error(Errc::kInvalidArgument, "a lease of " + std::to_string(join.lease_ns) + " ns; from 0 to " +
                                             std::to_string(kMaxLeaseNs) + " is possible");
  }
  if (s.live.size() >= s.options.max_peers) {
    return error(Errc::kLimitExceeded, std::to_string(s.live.size()) + " peers have joined, the limit");
  }
  // Ids are never used again.
  if (std::max(s.next_peer, s.next_device) > UINT32_MAX - kMaxDevices)
    return error(Errc::kLimitExceeded, "this scheduler has no numbers left for peers or devices");
  if (join.devices.size() > kMaxDevices || join.addresses.size() > kMaxAddresses ||
      join.plugins.size() > kMaxPlugins) {
    return error(Errc::kLimitExceeded, "too many devices, addresses or plug-ins in one join");
  }
  if (join.role == msg::Role::kClient && join.devices.size() > 1) {
    return error(Errc::kInvalidArgument,
                 "a client has one data endpoint, not " + std::to_string(join.devices.size()));
  }
  if (join.role == msg::Role::kTool && !join.devices.empty()) {
    return error(Errc::kInvalidArgument, "a tool has no devices");
  }
  for (const std::string& address : join.addresses) {
    if (address.size() > kMaxAddressBytes) return error(Errc::kLimitExceeded, "an address is too long");
  }
  for (std::size_t i = 0; i < join.devices.size(); ++i) {
    const msg::DeviceDesc& device = join.devices[i];
    if (device.name.empty() || too_long(device.name) || too_long(device.model) ||
        too_long(device.numeric_class) || too_long(device.gpu)) {
      return error(Errc::kInvalidArgument,
                   "device " + std::to_string(i) + " has no name or texts that are too long");
    }
    if (!is_printable(device.name) || !is_printable(device.model)) {
      return error(Errc::kInvalidArgument,
                   "device '" + printable(device.name) +
                       "' has control characters or what is no UTF-8 in its name or model");
    }
    if (device.kind > place::kCudaKind || device.memory_bytes < 0 || device.memory_bytes > kMaxMemoryBytes ||
        device.spill_bytes < 0 || device.spill_bytes > kMaxMemoryBytes || device.pinned_bytes < 0 ||
        device.pinned_bytes > kMaxMemoryBytes || device.streams < 0) {
      return error(Errc::kInvalidArgument,
                   "device '" + device.name + "' has an unknown kind or impossible memory");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (join.devices[j].name == device.name) {
        return error(Errc::kAlreadyExists, "two devices are called '" + device.name + "'");
      }
    }
  }
  for (const msg::PluginDesc& plugin : join.plugins) {
    if (plugin.kernel.empty() || too_long(plugin.kernel) || too_long(plugin.version)) {
      return error(Errc::kInvalidArgument, "a plug-in kernel has no name or one that is too long");
    }
  }
  return {};
}

// All processes run the same software: as told, or else as whoever has been here longest.
Status check_version(const State& s, const msg::Join& join) {
  const std::string* wanted = &s.options.software_version;
  std::string whose = "the scheduler";
  if (wanted->empty()) {
    if (s.live.empty()) return {};
    const Peer& oldest = s.peer(s.live.front());
    wanted = &oldest.software_version;
    whose = "'" + oldest.info.name + "'";
  }
  if (join.software_version == *wanted) return {};
  return error(Errc::kVersionMismatch, "'" + join.name + "' runs version '" + join.software_version + "', " +
                                           whose + " runs version '" + *wanted + "'");
}

Status check_plugins(const State& s, const msg::Join& join) {
  std::map<std::string_view, const msg::PluginDesc*> own;
  for (const msg::PluginDesc& plugin : join.plugins) {
    if (!own.emplace(plugin.kernel, &plugin).second) {
      return error(Errc::kAlreadyExists, "plug-in kernel '" + plugin.kernel + "' is offered twice");
    }
    const auto known = s.plugins.find(plugin.kernel);
    if (known == s.plugins.end()) continue;
    if (known->second.version != plugin.version) {
      return error(Errc::kVersionMismatch, "plug-in kernel '" + plugin.kernel + "' has version '" +
                                               plugin.version + "', in the cluster it has version '" +
                                               known->second.version + "'");
    }
    if (known->second.hash != plugin.hash) {
      return error(Errc::kVersionMismatch,
                   "plug-in kernel '" + plugin.kernel + "' version '" + plugin.version +
                       "' was built otherwise than the cluster's (their hashes differ)");
    }
  }
  return {};
}

}  // namespace

// A done op in a snapshot says what exists and where, not how it was made: its operands may be long gone.
msg::PlannedOp without_history(const OpRecord& record) {
  msg::PlannedOp out{record.id, {}, record.placement, true, {}};
  out.op.outputs = record.op.outputs;
  out.op.label = record.op.label;
  if (record.op.outputs.size() == 1) {
    out.op.kind = ir::OpKind::kProvide;
    out.op.space = record.op.outputs[0].grid;  // same counts as the op's own space
    out.op.attrs =
        ir::FetchAttrs{record.placement.devices().empty() ? DeviceId{1} : record.placement.devices()[0]};
  } else {
    out.op.kind = ir::OpKind::kCall;
    out.op.space = record.op.space;
    ir::CallAttrs attrs;
    attrs.kernel = "done";
    out.op.attrs = std::move(attrs);
  }
  return out;
}

namespace {

bool is_history(const OpRecord& record) { return record.finished || record.doomed; }

msg::PlannedOp as_it_is(const OpRecord& record) {
  msg::PlannedOp planned = is_history(record)
                               ? without_history(record)
                               : msg::PlannedOp{record.id, op_to_run(record), record.placement, false, {}};
  planned.of = record.of;
  planned.level_ns = record.level_ns;
  return planned;
}

// All that workers know, so that the newcomer can take part in recoveries: one plan a graph, in the order of the graphs; then
// what earlier recoveries have moved. What nobody wants any more, but has not been retired (a recovery is pending, or a
// cancellation is not confirmed), may still be named by the next entries of the log.
void send_snapshot(State& s, WorkerId to) {
  std::map<GraphId, std::map<OpId, std::vector<ArrayId>>> by_graph;
  std::map<OpId, const OpRecord*> layers;
  s.ops.for_each([&](const OpRecord& op) {
    if (op.of) layers.emplace(op.id, &op);
    if (op.of || op.forgotten) return;
    // A save, second copies: nothing of it is named again.
    if (is_history(op) && op.op.outputs.empty()) return;
    std::vector<ArrayId>& held = by_graph[op.graph][op.id];
    for (const ir::OutputSpec& output : op.op.outputs) {
      if (s.arrays.at(ArrayId{output.array}).held) held.push_back(ArrayId{output.array});
    }
  });
  for (const auto& [graph_id, ops] : by_graph) {
    const GraphRecord& graph = s.graphs.at(graph_id);
    msg::Plan plan{graph_id, graph.priority, {}, {}, graph.session, graph.weight};
    for (const auto& [op, arrays] : ops) {
      plan.ops.push_back(as_it_is(s.ops.at(op)));
      plan.holds.insert(plan.holds.end(), arrays.begin(), arrays.end());
    }
    log_to(s, to, std::move(plan));
  }
  if (s.recovery.settled == 0) return;
  msg::Recover recover{s.recovery.settled, {}};
  for (const auto& [id, op] : layers) {
    const GraphRecord& graph = s.graphs.at(op->graph);
    recover.plans.push_back({graph.id, graph.priority, {as_it_is(*op)}, {}, graph.session, graph.weight});
  }
  log_to(s, to, std::move(recover));
}

void add_devices(State& s, Peer& peer, const std::vector<msg::DeviceDesc>& described) {
  if (described.empty()) return;
  const auto host =
      s.hosts.emplace(peer.info.host_id, static_cast<std::uint32_t>(s.hosts.size())).first->second;
  for (const msg::DeviceDesc& desc : described) {
    const DeviceId id{s.next_device++};
    Device device{id,
                  peer.info.id,
                  true,
                  desc.kind,
                  host,
                  std::max(1, desc.streams),
                  desc.memory_bytes,
                  desc.spill_bytes,
                  desc.pinned_bytes};
    device.stats.device = id;
    s.devices.insert(id) = device;
    peer.info.devices.push_back(id);
    peer.info.descriptions.push_back(desc);
    peer.info.descriptions.back().name = "w" + std::to_string(peer.info.id.value) + "/" + desc.name;
  }
}

// Workers hear of everyone; clients of workers only; tools of nobody, and nobody of tools.
bool hears_of(const Peer& listener, const Peer& other) {
  if (listener.info.id == other.info.id || listener.info.role == msg::Role::kTool) return false;
  return other.info.role == msg::Role::kWorker ||
         (other.info.role == msg::Role::kClient && listener.info.role == msg::Role::kWorker);
}

const SharedEntry& introduction(Peer& peer) {
  if (!peer.introduction) peer.introduction = msg::Entries::share(msg::PeerJoined{peer.info});
  return peer.introduction;
}

}  // namespace

void on_join(State& s, Conn from, msg::Join& join) {
  Link& link = s.links[from];
  if (link.peer) {
    // The first one is in force; a copy of it is no news.
    refuse(s, from, Errc::kAlreadyExists, "this link has joined already");
    return;
  }
  Status accepted = check_limits(s, join);
  if (accepted) accepted = check_version(s, join);
  if (accepted) accepted = check_plugins(s, join);
  if (!accepted) {
    msg::Welcome refusal;
    refusal.term = s.options.term;
    refusal.refused = outcome_of(accepted.error());
    send(s, from, std::move(refusal));
    close_link(s, from, accepted.error());
    return;
  }
  const WorkerId id{s.next_peer++};
  link.peer = id;
  Peer& peer = s.peers.insert(id);
  peer.conn = from;
  peer.info.id = id;
  peer.info.role = join.role;
  peer.info.name = std::move(join.name);
  peer.info.host_id = std::move(join.host_id);
  peer.info.addresses = std::move(join.addresses);
  peer.software_version = std::move(join.software_version);
  for (int lane = 0; lane < msg::kLaneCount; ++lane) {
    peer.lanes[static_cast<std::size_t>(lane)].lane = static_cast<msg::Lane>(lane);
  }
  add_devices(s, peer, join.devices);
  s.live.push_back(id);
  if (join.role == msg::Role::kWorker) {
    peer.black_box = join.black_box;
    peer.plugins = std::move(join.plugins);
    for (const msg::PluginDesc& plugin : peer.plugins) {
      Plugin& known = s.plugins[plugin.kernel];
      known.version = plugin.version;
      known.hash = plugin.hash;
      ++known.workers;
    }
  }
  if (join.role == msg::Role::kClient) {
    peer.session = SessionId{s.next_session++};
    Session& session = s.sessions.insert(peer.session);
    session.id = peer.session;
    session.peer = id;
    if (!peer.info.devices.empty()) session.device = peer.info.devices[0];
  }
  if (join.role != msg::Role::kTool) peer.lease_ns = join.lease_ns;
  const bool stays = join.role != msg::Role::kTool && (s.options.durable || peer.lease_ns > 0);
  const auto introduced =
      std::ranges::count_if(s.live, [&](WorkerId other) { return hears_of(peer, s.peer(other)); });
  send(s, from,
       msg::Welcome{s.options.term,
                    id,
                    peer.session,
                    peer.info.devices,
                    {},
                    stays ? s.options.state : 0,
                    stays && s.options.durable,
                    static_cast<std::uint32_t>(introduced)});
  for (const WorkerId other_id : s.live) {
    Peer& other = s.peer(other_id);
    if (hears_of(peer, other)) log_to(s, id, introduction(other));
    if (hears_of(other, peer)) log_to(s, other_id, introduction(peer));
  }
  if (join.role != msg::Role::kWorker) return;
  send_snapshot(s, id);
  s.copies_due = true;
  note_newcomer(s);
  want_probes(s, s.peer(id));
  show_folder(s, s.peer(id));
  for (const auto& [leaver, leaving] : s.leaving) {
    if (leaving.step != Leaving::Step::kWaiting && leaving.step != Leaving::Step::kUndoing)
      log_to(s, id, msg::Drain{leaver, msg::DrainOrder::kStop, leaving.round, {}});
  }
  if (s.recovery.pending) ask_newcomer(s, id);
}

}  // namespace tilewise::scheduler
