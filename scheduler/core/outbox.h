// What leaves the scheduler: messages at once, log entries at the end of the step, in one message a peer. Entries that
// nobody waits for stay until one that somebody does wait for goes to the same peer, or for Options::lazy_ns: a worker
// without a part in a graph is then not woken for it.
#pragma once
#include "state.h"

namespace tilewise::scheduler {

void send(State& s, Conn to, msg::Message message);
void refuse(State& s, Conn to, Errc code, std::string why);
void forget_link(State& s, Conn conn);  // late messages of it will be ignored
void close_link(State& s, Conn conn,
                Error why);  // forgets the link; the peer's loss is the caller's business

enum class Haste : std::uint8_t { kNow, kLazy };
void log_to(State& s, WorkerId peer, msg::LogEntry entry, Haste haste = Haste::kNow);
// One that several peers get is made once: their logs share it.
using SharedEntry = msg::Entries::Shared;
void log_to(State& s, WorkerId peer, SharedEntry entry, Haste haste = Haste::kNow);
// To all workers: plans that they need not keep any more.
void forget_kept_plans(State& s);
void log_to_workers(State& s, msg::LogEntry entry, Haste haste = Haste::kNow);
void flush_logs(State& s);
void flush_log(State& s, Peer& peer);  // at once, all that it has

}  // namespace tilewise::scheduler
