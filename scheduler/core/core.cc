#include <tilewise/scheduler/core.h>

#include "graphs.h"
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {

struct Core::Impl {
  State s;

  // A message that this kind of peer has no business sending.
  void unexpected(const Peer& peer, const msg::Message& message) {
    static constexpr std::string_view kRoles[] = {"worker", "client", "tool"};
    refuse(s, peer.conn, Errc::kInvalidArgument,
           std::string(msg::name_of(message)) + " is not for a " +
               std::string(kRoles[static_cast<std::size_t>(peer.info.role)]) + " to send to the scheduler");
  }

  void from_peer(Peer& peer, msg::Message& message) {
    const msg::Role role = peer.info.role;
    if (role == msg::Role::kWorker) {
      if (const auto* m = std::get_if<msg::Progress>(&message)) return on_progress(s, peer, *m);
      if (const auto* m = std::get_if<msg::TaskFailed>(&message)) return on_task_failed(s, peer, *m);
      if (const auto* m = std::get_if<msg::Stuck>(&message)) return on_stuck(s, peer, *m);
      if (auto* m = std::get_if<msg::Held>(&message)) return on_held(s, peer, *m);
      if (const auto* m = std::get_if<msg::Drained>(&message)) return on_drained(s, peer, *m);
      if (auto* m = std::get_if<msg::TraceReply>(&message)) return on_trace_reply(s, peer, *m);
      if (auto* m = std::get_if<msg::BlocksReply>(&message)) return on_blocks_reply(s, peer, *m);
      if (auto* m = std::get_if<msg::LinkProbed>(&message)) return on_link_probed(s, peer, *m);
    }
    if (const auto* m = std::get_if<msg::Held>(&message); m != nullptr && role == msg::Role::kClient)
      return on_fetches(s, peer, *m);
    if (role == msg::Role::kClient && on_request(s, peer, message)) return;
    if (auto* m = std::get_if<msg::Explain>(&message);
        m != nullptr && (m->graph || role == msg::Role::kClient))
      return on_explain(s, peer, *m);
    if (const auto* m = std::get_if<msg::TraceRequest>(&message); m != nullptr && role != msg::Role::kWorker)
      return on_trace_request(s, peer, *m);
    if (const auto* m = std::get_if<msg::BlocksRequest>(&message); m != nullptr && role != msg::Role::kWorker)
      return on_blocks_request(s, peer, *m);
    if (const auto* m = std::get_if<msg::DrainRequest>(&message); m != nullptr && role != msg::Role::kWorker)
      return on_drain_request(s, peer, *m);
    if (const auto* m = std::get_if<msg::LastWords>(&message); m != nullptr && role == msg::Role::kTool)
      return on_last_words(s, *m);
    if (std::holds_alternative<msg::Leave>(message)) return on_leave(s, peer.conn);
    if (std::holds_alternative<msg::StatusRequest>(message)) return send(s, peer.conn, status_of(s));
    if (std::holds_alternative<msg::Shutdown>(message)) return on_shutdown(s, peer.conn);
    if (const auto* m = std::get_if<msg::Refusal>(&message))
      return (void)m;  // answering one could go on for ever
    unexpected(peer, message);
  }

  void received(Received& event) {
    if (s.closed.contains(event.from)) return;
    if (auto* join = std::get_if<msg::Join>(&event.message)) {
      s.links[event.from].heard = s.now;
      s.liveness_at = std::min(s.liveness_at, s.now);
      return on_join(s, event.from, *join);
    }
    const auto it = s.links.find(event.from);
    if (it == s.links.end()) {
      refuse(s, event.from, Errc::kUnauthenticated,
             "the first message on a link must be Join, not " + std::string(msg::name_of(event.message)));
      close_link(s, event.from, error(Errc::kUnauthenticated, "not joined"));
      return;
    }
    it->second.heard = s.now;
    if (std::holds_alternative<msg::Pong>(event.message)) return;
    if (const auto* ping = std::get_if<msg::Ping>(&event.message))
      return send(s, event.from, msg::Pong{ping->nonce});
    Peer& peer = s.peer(it->second.peer);
    // One that has left has nothing more to say but that it goes.
    if (peer.alive || std::holds_alternative<msg::Leave>(event.message)) from_peer(peer, event.message);
  }
};

Core::Core(Options options) : impl_(std::make_unique<Impl>()) { impl_->s.options = std::move(options); }
Core::~Core() = default;

void Core::step(std::vector<Event>& events, TimeNs now, std::vector<Action>& actions) {
  State& s = impl_->s;
  if (!s.started) s.started = true, s.start = s.stuck_at = s.liveness_at = now;
  s.now = std::max(s.now, now);
  s.out = &actions;
  for (Event& event : events) {
    if (auto* received = std::get_if<Received>(&event))
      impl_->received(*received);
    else if (const auto* closed = std::get_if<Closed>(&event))
      on_closed(s, closed->conn);
    else if (const auto* broken = std::get_if<Broken>(&event))
      on_broken(s, broken->conn);
    else if (const auto* returned = std::get_if<Returned>(&event))
      on_returned(s, returned->conn);
    else if (const auto* cancel = std::get_if<OperatorCancel>(&event))
      on_operator_cancel(s, *cancel);
    else if (const auto* release = std::get_if<OperatorRelease>(&event))
      on_operator_release(s, *release);
    else
      on_operator_drain(s, std::get<OperatorDrain>(event));
  }
  check_liveness(s);
  check_postponed(s);
  check_recovery(s);
  check_drains(s);
  check_rebalance(s);
  check_copies(s);
  check_gatherings(s);
  end_stuck_graph(s);
  check_checkpoints(s);
  check_removals(s);
  retire(s);
  tend_checkpoints(s);
  tell_progress(s);
  flush_logs(s);
  check_probes(s);
  forget_departed(s);
  s.out = nullptr;
}

TimeNs Core::next_deadline() const {
  const State& s = impl_->s;
  TimeNs next = s.links.empty() ? s.now + s.options.silence_ns : s.liveness_at;
  next = std::min(next, s.lazy_at);
  if (!s.stuck.empty() && !s.recovery.pending) next = std::min(next, s.stuck_at);  // as end_stuck_graph()
  next = std::min({next, drains_deadline(s), gatherings_deadline(s), postponed_deadline(s),
                   rebalance_deadline(s), probes_deadline(s), removals_deadline(s)});
  if (const Recovery& r = s.recovery; r.pending && r.waiting.empty()) {
    const TimeNs more = more_answers_until(s);
    next = std::min(next, more != 0 ? more : r.give_up_at);
  }
  for (const GraphId id : s.dirty) {
    if (const GraphRecord* graph = s.graphs.find(id))
      next = std::min(next, graph->told_at + s.options.progress_every_ns);
  }
  return next;
}

void Core::settle(TimeNs now, std::vector<Action>& actions) {
  State& s = impl_->s;
  s.now = std::max(s.now, now);
  s.out = &actions;
  s.plans.forget_all();
  forget_kept_plans(s);
  s.lazy_at = s.now;
  flush_logs(s);
  s.out = nullptr;
}

void Core::begin_life(Options options, TimeNs now, std::vector<Action>& actions) {
  State& s = impl_->s;
  TW_CHECK(options.term > s.options.term, "a scheduler's life must have a higher term than the one before");
  s.options = std::move(options);
  settle(now, actions);
  for (auto& [conn, link] : s.links) {
    link.heard = link.pinged = s.now;
    if (link.away_until != 0) link.away_until = s.now + s.peer(link.peer).lease_ns;
  }
  s.liveness_at = s.now;
  s.recovery.give_up_at = s.now + s.options.recovery_wait_ns;
  if (s.workless_until != 0) note_workless(s);
  s.recovery.words_until = s.now + s.options.last_words_ns;
  s.recovery.clients_until = s.now + s.options.client_answer_ns;
  forget_probes_under_way(s);
  reopen_folder(s);
}

Result<std::string> Core::snapshot(const SnapshotCodec& codec) const {
  return scheduler::snapshot(impl_->s, codec);
}
Status Core::restore(std::string_view bytes, const SnapshotCodec& codec) {
  return scheduler::restore(impl_->s, bytes, codec);
}
TimeNs Core::now() const { return impl_->s.now; }
std::uint32_t Core::term() const { return impl_->s.options.term; }
GraphId Core::graph_of(OpId op) const {
  const OpRecord* record = impl_->s.ops.find(op);
  return record == nullptr ? GraphId{} : record->graph;
}

View Core::view(const ViewRequest& request, TimeNs now) const {
  const State& s = impl_->s;
  View out = view_of(s, request);
  // The last step may be seconds ago where nothing happens.
  const TimeNs since = s.started ? std::max(s.now, now) - s.start : 0;
  if (auto* overview = std::get_if<Overview>(&out)) overview->now = since;
  if (auto* graph = std::get_if<GraphView>(&out)) graph->now = since;
  return out;
}
void Core::check_invariants() const { scheduler::check_invariants(impl_->s); }
Counters Core::counters() const { return impl_->s.counts; }
Records Core::records() const {
  const State& s = impl_->s;
  return {s.peers.size(), s.devices.size(), s.sessions.size()};
}
std::uint64_t Core::replays() const { return impl_->s.plans.replays(); }
std::uint64_t Core::digest() const { return digest_of(impl_->s); }

}  // namespace tilewise::scheduler
