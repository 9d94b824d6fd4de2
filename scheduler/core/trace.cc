// What workers remember of the steps they ran, and where they have blocks: asked for by anyone, passed on as it comes, never
// kept here.
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

// Together they must fit the links' queues, a worker's and an asker's.
constexpr std::size_t kMaxTraces = 4;         // being collected
constexpr std::uint32_t kMaxSteps = 250'000;  // of one, all workers together: some 28 MiB
constexpr std::uint32_t kMaxStepsAWorker = 65'536;

template <class Reply> void pass_on(State& s, const Trace& trace, WorkerId worker, Reply reply) {
  reply.nonce = trace.nonce;
  reply.worker = worker;
  reply.of = trace.of;
  if (s.links.contains(trace.to)) send(s, trace.to, std::move(reply));
}

// Asks every worker. `question` is numbered for that; an asker that is refused, or alone, is told at once.
template <class Reply, class Question> void collect(State& s, Peer& peer, Question question, bool blocks) {
  Reply none;
  none.nonce = question.nonce;
  if (s.traces.size() >= kMaxTraces) {
    none.refused = {Errc::kUnavailable, "others are asking all workers; ask again"};
    return send(s, peer.conn, std::move(none));
  }
  Trace trace{blocks, peer.conn, question.nonce, 0, {}};
  for (const WorkerId id : s.live) {
    if (s.is_worker(id)) trace.waiting.insert(id);
  }
  if (trace.waiting.empty()) return send(s, peer.conn, std::move(none));
  trace.of = static_cast<std::uint32_t>(trace.waiting.size());
  question.nonce = s.next_nonce++;
  if constexpr (std::is_same_v<Question, msg::TraceRequest>)
    question.max_steps = std::clamp(kMaxSteps / trace.of, 1u, kMaxStepsAWorker);
  for (const WorkerId id : trace.waiting) send(s, s.peer(id).conn, question);
  s.traces.emplace(question.nonce, std::move(trace));
}

template <class Reply> void collected(State& s, Peer& worker, Reply& reply, bool blocks) {
  const auto it = s.traces.find(reply.nonce);
  if (it == s.traces.end() || it->second.blocks != blocks || it->second.waiting.erase(worker.info.id) == 0)
    return;  // late, or repeated
  pass_on(s, it->second, worker.info.id, std::move(reply));
  if (it->second.waiting.empty()) s.traces.erase(it);
}

}  // namespace

void on_trace_request(State& s, Peer& peer, const msg::TraceRequest& request) {
  collect<msg::TraceReply>(s, peer, request, false);
}
void on_trace_reply(State& s, Peer& worker, msg::TraceReply& reply) { collected(s, worker, reply, false); }

void on_blocks_request(State& s, Peer& peer, const msg::BlocksRequest& request) {
  if (request.first >= 0 && request.count >= 0 && request.count <= msg::kMaxBlocksAsked)
    return collect<msg::BlocksReply>(s, peer, request, true);
  msg::BlocksReply none;
  none.nonce = request.nonce;
  none.refused = {Errc::kInvalidArgument, "blocks " + std::to_string(request.first) + " and " +
                                              std::to_string(request.count) + " on: at most " +
                                              std::to_string(msg::kMaxBlocksAsked) + " are told at once"};
  send(s, peer.conn, std::move(none));
}
void on_blocks_reply(State& s, Peer& worker, msg::BlocksReply& reply) { collected(s, worker, reply, true); }

// Whoever waits for a lost worker's word is given an empty one.
void drop_from_traces(State& s, WorkerId worker) {
  for (auto& [nonce, trace] : s.traces) {
    if (trace.waiting.erase(worker) == 0) continue;
    if (trace.blocks)
      pass_on(s, trace, worker, msg::BlocksReply{});
    else
      pass_on(s, trace, worker, msg::TraceReply{});
  }
  std::erase_if(s.traces, [](const auto& entry) { return entry.second.waiting.empty(); });
}

}  // namespace tilewise::scheduler
