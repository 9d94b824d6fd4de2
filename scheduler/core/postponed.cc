// What clients ask for while the last worker is gone and may come back (a supervisor starts it again, a host boots) waits, each
// session's messages in their order, as long as lost blocks would (Options::recovery_wait_ns). Then it is answered with what there is,
// so many messages a step: whoever else there is has its turn in between. So many wait at most, of all sessions; for one more the oldest
// of its session is answered.
// It waits as messages, not as graphs: devices that are to come are not known, so nothing can be planned.
#include "handlers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

// That takes work.
bool some_worker(const State& s) {
  return std::any_of(s.live.begin(), s.live.end(), [&](WorkerId id) {
    const std::vector<DeviceId>& devices = s.peer(id).info.devices;
    return s.is_worker(id) && std::any_of(devices.begin(), devices.end(),
                                          [&](DeviceId device) { return !s.device(device)->draining; });
  });
}

constexpr std::size_t kMostPostponed = 4096, kAnsweredAStep = 64;
std::size_t waiting(const State& s) {
  std::size_t all = 0;
  for (const SessionId id : s.postponing) all += s.session(id).postponed.size();
  return all;
}

bool needs_workers(const msg::Message& message) {
  return std::holds_alternative<msg::Submit>(message) || std::holds_alternative<msg::Announce>(message);
}

bool in_order(const msg::Message& message) {
  return needs_workers(message) || std::holds_alternative<msg::ReleaseArrays>(message) ||
         std::holds_alternative<msg::CancelRequest>(message);
}

void handle(State& s, Peer& client, msg::Message& message) {
  if (auto* submit = std::get_if<msg::Submit>(&message)) return on_submit(s, client, *submit);
  if (auto* announce = std::get_if<msg::Announce>(&message)) return on_announce(s, client, *announce);
  if (const auto* release = std::get_if<msg::ReleaseArrays>(&message)) return on_release(s, client, *release);
  on_cancel(s, client, std::get<msg::CancelRequest>(message));
}

void answer_oldest(State& s, Session& session) {
  Postponed oldest = std::move(session.postponed.front());
  session.postponed.pop_front();
  if (session.postponed.empty()) s.postponing.erase(session.id);
  handle(s, s.peer(session.peer), oldest.message);
}

}  // namespace

bool on_request(State& s, Peer& client, msg::Message& message) {
  if (!in_order(message)) return false;
  Session& session = s.session(client.session);
  const bool behind = !session.postponed.empty(), full = waiting(s) >= kMostPostponed;
  if (!behind && (full || !needs_workers(message) || !waits_for_workers(s))) {
    handle(s, client, message);
    return true;
  }
  if (full) answer_oldest(s, session);
  ++s.counts.postponed;
  session.postponed.push_back({std::move(message)});
  s.postponing.insert(session.id);
  return true;
}

void forget_postponed(State& s, Session& session) {
  session.postponed.clear();
  s.postponing.erase(session.id);
}

void note_workless(State& s) {
  if (!some_worker(s)) s.workless_until = s.now + s.options.recovery_wait_ns;
}

bool waits_for_workers(const State& s) { return s.now < s.workless_until && !some_worker(s); }

void check_postponed(State& s) {
  if (waits_for_workers(s)) return;
  for (std::size_t left = kAnsweredAStep; left > 0 && !s.postponing.empty();) {
    for (const SessionId id : std::set<SessionId>(s.postponing)) {  // in turn
      if (left-- == 0) return;
      answer_oldest(s, s.session(id));
    }
  }
}

TimeNs postponed_deadline(const State& s) {
  if (s.postponing.empty()) return kNever;
  return waits_for_workers(s) ? s.workless_until : s.now;
}

}  // namespace tilewise::scheduler
