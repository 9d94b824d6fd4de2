// What clients ask for while the last worker is gone and may come back (a supervisor starts it again, a host boots) waits, each
// session's messages in their order, as long as lost blocks would (Options::recovery_wait_ns). Then it is answered with what there is.
// So many at most, of all sessions; what comes then is answered at once, after what its session has waiting.
// It waits as messages, not as graphs: devices that are to come are not known, so nothing can be planned.
#include "handlers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

bool some_worker(const State& s) {
  return std::any_of(s.live.begin(), s.live.end(), [&](WorkerId id) { return s.is_worker(id); });
}

constexpr std::size_t kMostPostponed = 4096;
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

void answer_postponed(State& s, Session& session) {
  s.postponing.erase(session.id);
  for (Postponed& waiting : std::exchange(session.postponed, {}))
    handle(s, s.peer(session.peer), waiting.message);
}

}  // namespace

bool on_request(State& s, Peer& client, msg::Message& message) {
  if (!in_order(message)) return false;
  Session& session = s.session(client.session);
  const bool waits = waits_for_workers(s) && (!session.postponed.empty() || needs_workers(message)) &&
                     waiting(s) < kMostPostponed;
  if (waits) {
    ++s.counts.postponed;
    session.postponed.push_back({std::move(message)});
    s.postponing.insert(session.id);
  } else {
    answer_postponed(s, session);
    handle(s, client, message);
  }
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
  while (!s.postponing.empty()) answer_postponed(s, s.session(*s.postponing.begin()));
}

TimeNs postponed_deadline(const State& s) { return s.postponing.empty() ? kNever : s.workless_until; }

}  // namespace tilewise::scheduler
