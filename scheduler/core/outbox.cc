#include "outbox.h"

namespace tilewise::scheduler {

constexpr std::size_t kRememberedClosed = 4096;

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

void log_to(State& s, WorkerId id, msg::LogEntry entry) {
  Peer& peer = s.peer(id);
  if (peer.alive) peer.log.push_back(std::move(entry));
}

void log_to_workers(State& s, const msg::LogEntry& entry) {
  for (const WorkerId id : s.live) {
    if (s.is_worker(id)) log_to(s, id, entry);
  }
}

void flush_logs(State& s) {
  for (const WorkerId id : s.live) {
    Peer& peer = s.peer(id);
    if (peer.log.empty()) continue;
    msg::Log log{s.options.term, peer.log_next, std::move(peer.log)};
    peer.log.clear();
    peer.log_next += log.entries.size();
    send(s, peer.conn, std::move(log));
  }
}

}  // namespace tilewise::scheduler
