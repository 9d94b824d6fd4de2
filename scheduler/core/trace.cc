// What workers remember of the steps they ran: asked for by anyone, passed on as it comes, never kept here.
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

// Together they must fit the links' queues, a worker's and an asker's.
constexpr std::size_t kMaxTraces = 4;         // being collected
constexpr std::uint32_t kMaxSteps = 250'000;  // of one, all workers together: some 16 MiB
constexpr std::uint32_t kMaxStepsAWorker = 65'536;

void pass_on(State& s, Trace& trace, WorkerId worker, msg::TraceReply reply) {
  reply.nonce = trace.nonce;
  reply.worker = worker;
  reply.of = trace.of;
  if (s.links.contains(trace.to)) send(s, trace.to, std::move(reply));
}

}  // namespace

void on_trace_request(State& s, Peer& peer, const msg::TraceRequest& request) {
  if (s.traces.size() >= kMaxTraces)
    return refuse(s, peer.conn, Errc::kUnavailable, "others are collecting traces; ask again");
  const std::uint64_t nonce = s.next_nonce++;
  Trace trace{peer.conn, request.nonce, 0, {}};
  for (const WorkerId id : s.live) {
    if (s.is_worker(id)) trace.waiting.insert(id);
  }
  if (trace.waiting.empty()) return send(s, peer.conn, msg::TraceReply{request.nonce, {}, 0, 0, {}, {}});
  trace.of = static_cast<std::uint32_t>(trace.waiting.size());
  const std::uint32_t each = std::clamp(kMaxSteps / trace.of, 1u, kMaxStepsAWorker);
  for (const WorkerId id : trace.waiting)
    send(s, s.peer(id).conn, msg::TraceRequest{nonce, request.graph, each});
  s.traces.emplace(nonce, std::move(trace));
}

void on_trace_reply(State& s, Peer& worker, msg::TraceReply& reply) {
  const auto it = s.traces.find(reply.nonce);
  if (it == s.traces.end() || it->second.waiting.erase(worker.info.id) == 0) return;  // late, or repeated
  pass_on(s, it->second, worker.info.id, std::move(reply));
  if (it->second.waiting.empty()) s.traces.erase(it);
}

// Whoever waits for a lost worker's word is given an empty one.
void drop_from_traces(State& s, WorkerId worker) {
  for (auto& [nonce, trace] : s.traces) {
    if (trace.waiting.erase(worker) > 0) pass_on(s, trace, worker, {});
  }
  std::erase_if(s.traces, [](const auto& entry) { return entry.second.waiting.empty(); });
}

}  // namespace tilewise::scheduler
