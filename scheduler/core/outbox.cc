#include "outbox.h"

#include <algorithm>
#include <utility>

namespace tilewise::scheduler {

constexpr std::size_t kRememberedClosed = 64;

void send(State& s, Conn to, msg::Message message) {
  s.out->emplace_back(std::in_place_type<Send>, to, std::move(message));
}

void refuse(State& s, Conn to, Errc code, std::string why) {
  send(s, to, msg::Refusal{{code, std::move(why)}});
}

void forget_link(State& s, Conn conn) {
  s.links.erase(conn);
  s.closed.insert(conn);
  if (s.closed.size() > kRememberedClosed) s.closed.erase(s.closed.begin());
}

void close_link(State& s, Conn conn, Error why) {
  forget_link(s, conn);
  s.out->emplace_back(std::in_place_type<Close>, conn, std::move(why));
}

void log_to(State& s, WorkerId id, msg::LogEntry entry, Haste haste) {
  log_to(s, id, msg::Entries::share(std::move(entry)), haste);
}

void log_to(State& s, WorkerId id, SharedEntry entry, Haste haste) {
  Peer& peer = s.peer(id);
  if (!peer.alive) return;
  if (peer.log.empty()) s.with_log.push_back(id);
  peer.log.push_back(std::move(entry));
  if (haste == Haste::kNow)
    peer.log_urgent = s.log_urgent = true;
  else
    s.lazy_at = std::min(s.lazy_at, s.now + s.options.lazy_ns);
}

void log_to_workers(State& s, msg::LogEntry entry, Haste haste) {
  const SharedEntry once = msg::Entries::share(std::move(entry));
  for (const WorkerId id : s.live) {
    if (s.is_worker(id)) log_to(s, id, once, haste);
  }
}

void forget_kept_plans(State& s) {
  if (std::vector<std::uint64_t> gone = s.plans.take_gone(); !gone.empty())
    log_to_workers(s, msg::ForgetPlans{std::move(gone)}, Haste::kLazy);
}

void flush_log(State& s, Peer& peer) {
  if (peer.log.empty()) return;
  msg::Log log{s.options.term, peer.log_next, std::move(peer.log)};
  peer.log.clear();
  peer.log_urgent = false;
  peer.log_next += log.entries.size();
  send(s, peer.conn, std::move(log));
}

void flush_logs(State& s) {
  const bool due = s.now >= s.lazy_at;
  if (!std::exchange(s.log_urgent, false) && !due) return;
  std::erase_if(s.with_log, [&](WorkerId id) {
    Peer& peer = s.peer(id);
    if (!(peer.log_urgent || due)) return false;
    flush_log(s, peer);
    return true;
  });
  if (due) s.lazy_at = kNever;
}

}  // namespace tilewise::scheduler
