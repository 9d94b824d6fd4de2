// Processes that stand still and go on, and silence, by which the scheduler knows the dead: also those who live. A *process* is a
// worker, a client or the scheduler.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::silent(std::uint64_t seed) {
  Knobs k = seed % 3 == 0 ? restarts(seed) : storm(seed);
  Prng p(seed * 0x511E + 37);
  k.fail_step = k.cancel = k.kill_worker = 0;
  k.link_probes = false;
  k.workers = static_cast<int>(p.between(2, 4));
  k.kills = p.chance(0.6) ? 0 : 1;
  k.hush_ns = std::max<TimeNs>(p.between(6, 60) * k.max_delay_ns, 2 * kMillisecond);
  if (p.chance(0.1)) k.held_ranges = static_cast<std::size_t>(p.between(1, 30));
  k.recovery_wait_ns = p.chance(0.3) ? k.hush_ns : 4 * k.hush_ns;
  k.kill_span_ns = p.between(2, 60) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  k.pauses = static_cast<int>(p.between(1, 6));
  if (p.chance(0.4)) k.one_ways = static_cast<int>(p.between(1, 3));
  k.silence_ns = k.hush_ns;
  k.respawn = p.chance(0.7) ? 1 : p.uniform();
  if (p.chance(0.5)) k.lease_ns = p.between(20, 60) * k.max_delay_ns;
  if (p.chance(0.3)) k.vanish = 0.5, k.closes = p.uniform();
  if (p.chance(0.3)) k.memory_bytes = p.between(24, 96) * 1024;  // what is given back is soon given to others
  return k;
}

// So long after the last thing that happened nothing else will: all that may still be waited for is over.
TimeNs World::rest_ns() const {
  return 20 * std::max({knobs_.hush_ns, knobs_.lease_ns, knobs_.recovery_wait_ns}) + knobs_.stuck_ns();
}

// What a process would do while it stands still waits, in order.
bool World::stands_still(std::uint64_t process, std::function<void()> what) {
  const auto stopped = stopped_.find(process);
  if (stopped == stopped_.end()) return false;
  stopped->second.push_back(std::move(what));
  return true;
}

// What came while the scheduler was down would come after what comes while it stands still.
bool World::may_stop(std::uint64_t process) const {
  return !stopped_.contains(process) && !(process == kScheduler && down_);
}
void World::stop(std::uint64_t process) { stopped_.try_emplace(process); }

void World::go_on(std::uint64_t process) {
  const auto stopped = stopped_.extract(process);
  if (stopped.empty()) return;
  for (const std::function<void()>& what : stopped.mapped()) what();
}

void World::pause_some() {
  std::vector<std::uint64_t> processes{kScheduler};
  for (const auto& worker : workers_) {
    if (worker->takes_part() && worker->core != nullptr) processes.push_back(worker->welcome.you.value);
  }
  const std::size_t workers = processes.size();
  for (const auto& client : clients_) {
    if (client->welcomed && !client->dead) processes.push_back(client->welcome.you.value);
  }
  const std::size_t which = prng_.below(processes.size());
  const std::uint64_t process = processes[which];
  if (!may_stop(process)) return;
  ++outcome_.covered[which == 0        ? Counted("stopped schedulers")
                     : which < workers ? Counted("stopped workers")
                                       : Counted("stopped clients")];
  stop(process);
  const TimeNs noticed = std::max({knobs_.hush_ns, knobs_.lease_ns, knobs_.max_delay_ns});
  at(prng_.between(1, prng_.chance(0.5) ? noticed / 2 : 3 * noticed), [this, process] { go_on(process); });
}

bool World::lives(scheduler::Conn conn) const {
  if (conn.value > 1000) return !clients_[conn.value - 1001]->dead;
  return workers_[conn.value - 1]->alive;
}

void World::answer_ping(scheduler::Conn conn, const msg::Ping& ping) {
  const Way way = way_of(conn);
  const auto answer = [this, conn, way, nonce = ping.nonce](auto&& self) -> void {
    if (held_back(conn, [self] { self(self); }) || !lives(conn) ||
        stands_still(way.first, [self] { self(self); }))
      return;
    const auto reach = [this, conn, nonce] { reach_scheduler(conn, msg::Pong{nonce}); };
    at(
        delay(way), [this, way, reach] { arrive(way, reach); }, true);
  };
  const Way there{way.second, way.first};
  at(
      delay(there), [this, there, answer] { arrive(there, [answer] { answer(answer); }); }, true);
}

// The scheduler has given somebody up who may live: he goes on until he hears of it, or has heard nothing for long.
void World::closed_by_scheduler(scheduler::Conn conn) {
  if (!knobs_.may_be_lost() || conn.value >= kSupervisors || !lives(conn)) return;
  const bool client = conn.value > 1000;
  ++outcome_
        .covered[client ? Counted("living clients declared lost") : Counted("living workers declared lost")];
  if (client) {
    clients_[conn.value - 1001]->declared_lost = true;
  } else {
    Worker& worker = *workers_[conn.value - 1];
    worker.cut_off = worker.declared_lost = true;
    ++gone_, ++died_;
  }
  const Way way{kScheduler, way_of(conn).first};
  const auto hear = [this, conn, way](auto&& self) -> void {
    if (!lives(conn) || stands_still(way.second, [self] { self(self); })) return;
    give_up(conn);
  };
  at(delay(way), [this, way, hear] { arrive(way, [hear] { hear(hear); }); });
  at(8 * std::max(knobs_.hush_ns, knobs_.lease_ns), [this, conn] {
    if (lives(conn)) give_up(conn);
  });
}

// It ends, and somebody else comes in its place.
void World::give_up(scheduler::Conn conn) {
  if (conn.value > 1000) {
    ++outcome_.covered["clients that lost their session"];
    clients_[conn.value - 1001]->dead = true;
    return after_vanishing();
  }
  ++outcome_.covered["workers that were told to start afresh"];
  workers_[conn.value - 1]->alive = false;
  respawn();
}

// From anybody to anybody, but for two clients: nothing more arrives, and the other way stays as it is until silence is noticed.
void World::lose_one_way() {
  std::vector<std::uint64_t> ends{kScheduler};
  std::vector<std::uint64_t> workers;
  for (const auto& worker : workers_) {
    if (worker->takes_part() && worker->core != nullptr) workers.push_back(worker->welcome.you.value);
  }
  if (workers.size() < 2) return;
  for (const auto& client : clients_) {
    if (client->welcomed && !client->dead && !client->declared_lost)
      ends.push_back(client->welcome.you.value);
  }
  ends.insert(ends.end(), workers.begin(), workers.end());
  std::uint64_t from = workers[prng_.below(workers.size())], to = ends[prng_.below(ends.size())];
  if (to != kScheduler && prng_.chance(0.5)) {  // a client may lose the scheduler, too
    from = kScheduler;
  }
  if (prng_.chance(0.5)) std::swap(from, to);
  if (from == to || !cut_.insert({from, to}).second) return;
  const auto kind = [&](std::uint64_t end) {
    if (end == kScheduler) return "the scheduler";
    return std::find(workers.begin(), workers.end(), end) != workers.end() ? "a worker" : "a client";
  };
  ++outcome_.covered[Counted::named(std::string("one-way loss from ") + kind(from) + " to " + kind(to))];
  at(knobs_.hush_ns + jitter(), [this, way = Way{from, to}] { end_of_way(way); });
}

// The link of the two ends: its transport has waited for acknowledgements, whichever way was lost.
void World::end_of_way(Way way) {
  std::vector<int> workers;
  std::vector<scheduler::Conn> conns;
  for (const std::uint64_t end : {way.first, way.second}) {
    if (end == kScheduler) continue;  // so are those called, too, who have not been welcomed yet
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w]->welcome.you.value != end) continue;
      workers.push_back(static_cast<int>(w));
      conns.push_back(workers_[w]->conn);
    }
    for (const auto& client : clients_) {
      if (client->welcomed && client->welcome.you.value == end) conns.push_back(client->conn);
    }
  }
  if (workers.size() == 2) return break_between(workers[0], workers[1]);
  for (const scheduler::Conn conn : conns) {
    const bool client = conn.value > 1000;
    const bool scheduler = way.first == kScheduler || way.second == kScheduler;
    if ((!client && !scheduler) || !lives(conn)) continue;  // of a client and a worker the client gives up
    const bool declared =
        client ? clients_[conn.value - 1001]->declared_lost : workers_[conn.value - 1]->declared_lost;
    if (declared) continue;
    cut_.insert({way.second, way.first});
    if (!client) {
      Worker& worker = *workers_[conn.value - 1];
      worker.cut_off = worker.declared_lost = true;
      ++gone_, ++died_;
    }
    step_scheduler({scheduler::Closed{conn, {Errc::kTimeout, "nothing is acknowledged"}}});
    give_up(conn);
  }
}

}  // namespace tilewise::sim
