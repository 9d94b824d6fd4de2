// What workers remember of the steps they ran: asked for by anyone, passed on as it comes, never kept here.
#include "handlers.h"
#include "outbox.h"

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxTraces = 64;  // being collected

}  // namespace

void on_trace_request(State& s, Peer& peer, const msg::TraceRequest& request) {
  if (s.traces.size() >= kMaxTraces) s.traces.erase(s.traces.begin());  // its workers are slow, or gone
  const std::uint64_t nonce = s.next_nonce++;
  Trace trace{peer.conn, request.nonce, 0, 0};
  for (const WorkerId id : s.live) {
    if (!s.is_worker(id)) continue;
    ++trace.of;
    send(s, s.peer(id).conn, msg::TraceRequest{nonce, request.graph});
  }
  if (trace.of == 0) return send(s, peer.conn, msg::TraceReply{request.nonce, {}, 0, 0, {}, {}});
  s.traces.emplace(nonce, trace);
}

void on_trace_reply(State& s, Peer& worker, msg::TraceReply& reply) {
  const auto it = s.traces.find(reply.nonce);
  if (it == s.traces.end()) return;  // late, or repeated
  Trace& trace = it->second;
  reply.nonce = trace.nonce;
  reply.worker = worker.info.id;
  reply.of = trace.of;
  if (s.links.contains(trace.to)) send(s, trace.to, std::move(reply));
  if (++trace.came >= trace.of) s.traces.erase(it);
}

}  // namespace tilewise::scheduler
