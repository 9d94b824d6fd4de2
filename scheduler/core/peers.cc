// Losing peers: a closed or silent link ends an incarnation. Also the beat that notices silence.
#include "graphs.h"
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

void lose_session(State& s, Session& session, const std::string& name) {
  session.alive = false;
  forget_announcer(s, session, name);
  forget_postponed(s, session);
  const msg::Outcome why{Errc::kCancelled, "client '" + name + "' has left"};
  const std::vector<GraphId> running = session.running;
  for (const GraphId id : running) {
    const GraphRecord* graph = s.graphs.find(id);
    const bool shared = graph != nullptr && !graph->others.empty();
    cancel_graph(
        s, id,
        shared ? msg::Outcome{Errc::kWorkerLost, why.message + " before its pieces were taken over"} : why);
  }
  std::vector<ArrayId> released;
  for (const auto& [number, id] : session.arrays) release_array(s, s.arrays.at(id), session.id, released);
  session.arrays.clear();
  session.answers.clear();
  session.programs = {};
  if (!released.empty()) log_to_workers(s, msg::Release{std::move(released)}, Haste::kLazy);
}

void tell_clients(State& s, msg::LogEntry entry) {
  const SharedEntry once = msg::Entries::share(std::move(entry));
  for (const WorkerId other : s.live) {
    if (s.peer(other).info.role == msg::Role::kClient) log_to(s, other, once);
  }
}

// From the tables of the living. `stopped`: it had said that it goes.
void strike_out(State& s, Peer& peer, bool stopped) {
  const WorkerId id = peer.info.id;
  remember_loss(s, peer, stopped);
  drop_from_traces(s, id);
  peer.alive = false;
  std::erase(s.live, id);
  peer.log.clear();
  peer.log_urgent = false;
  std::erase(s.with_log, id);
  peer.introduction.reset();
  s.speeds.forget_links(id);
  for (const DeviceId device : peer.info.devices) {
    s.device(device)->alive = false;
    s.speeds.forget(device);
    s.stuck.erase(device);
    std::erase_if(s.pairs,
                  [&](const auto& pair) { return pair.second.from == device || pair.second.to == device; });
  }
  for (const msg::PluginDesc& plugin : peer.plugins) {
    const auto known = s.plugins.find(plugin.kernel);
    if (--known->second.workers == 0) s.plugins.erase(known);
  }
  peer.plugins.clear();
  if (peer.info.role != msg::Role::kWorker) return;
  forget_probes(s, peer);
  hide_folder(s, id);
}

}  // namespace

void let_go(State& s, WorkerId id) {
  Peer& peer = s.peer(id);
  flush_log(s, peer);
  peer.left = true;
  strike_out(s, peer, false);
  acknowledge_cancels(s, id, ~std::uint64_t{0});
}

void lose_peer(State& s, WorkerId id, bool in_order) {
  Peer& peer = s.peer(id);
  if (!peer.alive) {
    if (!peer.left) return;
    if (in_order)
      tell_clients(s, msg::Drain{id, msg::DrainOrder::kLeave, 0, {}});  // they have what it sent
    else
      tell_clients(s, msg::PeerLost{id, 0, {}});  // it died while they did not: the rest is lost
    return;
  }
  forget_drains(s, id);
  strike_out(s, peer, in_order);
  if (peer.info.role != msg::Role::kWorker) note_departed(s, peer);
  s.links.erase(peer.conn);
  // First who died, then what that means: peers discharge what the dead owed before they drop graphs.
  if (peer.info.role == msg::Role::kClient) log_to_workers(s, msg::PeerLost{id, 0, {}});
  if (peer.info.role == msg::Role::kWorker) {
    tell_clients(s, msg::PeerLost{id, 0, {}});
    note_workless(s);
    begin_recovery(s, peer);
  }
  acknowledge_cancels(s, id, ~std::uint64_t{0});
  s.recovery.clients.erase(id);
  if (peer.info.role == msg::Role::kClient) lose_session(s, s.session(peer.session), peer.info.name);
}

void on_closed(State& s, Conn conn) {
  const auto it = s.links.find(conn);
  if (it == s.links.end()) return;
  const WorkerId peer = it->second.peer;
  forget_link(s, conn);
  if (peer) lose_peer(s, peer);
}

void on_broken(State& s, Conn conn) {
  const auto it = s.links.find(conn);
  if (it == s.links.end() || !it->second.peer) return;
  it->second.away_until = s.now + std::max<TimeNs>(1, s.peer(it->second.peer).lease_ns);
  s.liveness_at = std::min(s.liveness_at, it->second.away_until);
}

void on_returned(State& s, Conn conn) {
  const auto it = s.links.find(conn);
  if (it == s.links.end()) return;
  it->second.away_until = 0;
  it->second.heard = it->second.pinged = s.now;
  s.liveness_at = std::min(s.liveness_at, s.now + s.options.ping_every_ns);
}

// Nobody is to wait for it.
void on_leave(State& s, Conn conn) {
  const WorkerId peer = s.links.at(conn).peer;
  s.peer(peer).last_words = true;  // a supervisor has nothing to add
  close_link(s, conn, error(Errc::kUnavailable, "it has left"));
  lose_peer(s, peer, true);
}

void check_liveness(State& s) {
  if (s.now < s.liveness_at) return;
  TimeNs next = s.now + s.options.ping_every_ns;
  std::vector<Conn> silent;
  // So late we did not listen ourselves (a long plan on a busy machine, a process that was stopped): what was sent meanwhile
  // is yet to be read, and nobody has been silent for that long.
  const TimeNs late = s.now - s.liveness_at, deaf = late >= s.options.ping_every_ns ? late : 0;
  s.counts.deaf += deaf > 0;
  for (auto& [conn, link] : s.links) {
    link.heard = std::min(s.now, link.heard + deaf);
    if (link.away_until != 0) link.away_until += deaf;
    const TimeNs lease = link.peer ? s.peer(link.peer).lease_ns : 0;
    const TimeNs until =
        link.away_until != 0 ? link.away_until : link.heard + std::max(s.options.silence_ns, lease);
    if (s.now >= until) {
      silent.push_back(conn);
      continue;
    }
    next = std::min(next, until);
    if (link.away_until != 0) continue;
    if (s.now - std::max(link.heard, link.pinged) >= s.options.ping_every_ns) {
      link.pinged = s.now;
      send(s, conn, msg::Ping{s.next_nonce++});
    }
    next = std::min(next, std::max(link.heard, link.pinged) + s.options.ping_every_ns);
  }
  for (const Conn conn : silent) {
    const Link& link = s.links.at(conn);
    const WorkerId peer = link.peer;
    ++(link.away_until != 0 ? s.counts.overdue : s.counts.silent);
    const Error why =
        link.away_until != 0
            ? error(Errc::kTimeout, "it did not come back within its lease of " +
                                        std::to_string(s.peer(peer).lease_ns / kMillisecond) + " ms")
            : error(Errc::kTimeout, "nothing was heard on this link for " +
                                        std::to_string((s.now - link.heard) / kMillisecond) + " ms");
    close_link(s, conn, why);
    if (peer) lose_peer(s, peer);
  }
  s.liveness_at = std::max(next, s.now + 1);
}

void on_shutdown(State& s, Conn from) {
  const auto it = s.links.find(from);
  if (it == s.links.end() || !it->second.peer || s.is_worker(it->second.peer)) {
    refuse(s, from, Errc::kPermissionDenied, "only a client or a tool may shut the cluster down");
    return;
  }
  flush_logs(s);
  for (const auto& [conn, link] : s.links) {  // those too that are about to leave
    if (link.peer && s.is_worker(link.peer)) send(s, conn, msg::Shutdown{});
  }
  s.out->emplace_back(std::in_place_type<EndProcess>);
}

}  // namespace tilewise::scheduler
