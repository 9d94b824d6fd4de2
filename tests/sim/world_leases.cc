// Links to the scheduler that break and come back: what was under way comes then, in order. And clients that are gone for good.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::flapping(std::uint64_t seed) {
  Knobs k = seed % 2 == 0 ? from_seed(seed) : restarts(seed);
  Prng p(seed * 0xF1A9 + 13);
  k.breaks = static_cast<int>(p.between(1, 6));
  k.vanish = p.chance(0.3) ? 0.5 : 0;
  k.lease_ns = p.between(20, 60) * k.max_delay_ns;
  if (k.kill_span_ns == 0) k.kill_span_ns = p.between(2, 60) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  return k;
}

void World::break_some() {
  std::vector<scheduler::Conn> up;
  for (const auto& client : clients_) {
    if (client->welcomed && !client->dead && !broken_.contains(client->conn)) up.push_back(client->conn);
  }
  for (const auto& worker : workers_) {
    if (worker->alive && worker->core != nullptr && !broken_.contains(worker->conn))
      up.push_back(worker->conn);
  }
  if (!up.empty()) break_link(up[prng_.below(up.size())], prng_.between(1, 18) * knobs_.max_delay_ns);
}

void World::break_link(scheduler::Conn conn, TimeNs span) {
  ++outcome_
        .covered[conn.value > 1000 ? Counted("broken links of clients") : Counted("broken links of workers")];
  broken_[conn];
  step_scheduler({scheduler::Broken{conn}});
  at(span, [this, conn] {
    const std::vector<std::function<void()>> held = std::move(broken_.at(conn));
    broken_.erase(conn);
    step_scheduler({scheduler::Returned{conn}});
    for (const std::function<void()>& what : held) what();
  });
}

bool World::held_back(scheduler::Conn conn, std::function<void()> what) {
  const auto broken = broken_.find(conn);
  if (broken == broken_.end()) return false;
  broken->second.push_back(std::move(what));
  return true;
}

// Its processes' peers notice nothing; after its lease nothing of it may be left.
void World::vanish(int index) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  if (!client.welcomed || client.dead || broken_.contains(client.conn)) return;
  ++outcome_.covered["vanished clients"];
  client.dead = true;
  if (knobs_.closes > 0 && prng_.chance(knobs_.closes)) {
    vanish_at_once(index);
  } else if (knobs_.hush_ns > 0 && prng_.chance(0.5)) {
    ++outcome_.covered["clients that fell silent"];  // its host is gone: nobody says so
  } else {
    step_scheduler({scheduler::Broken{client.conn}});
  }
  after_vanishing();
}

// Its link is closed, or it has said that it leaves: there is no lease to wait for.
void World::vanish_at_once(int index) {
  const scheduler::Conn conn = clients_[static_cast<std::size_t>(index)]->conn;
  if (prng_.chance(0.5)) {
    ++outcome_.covered["clients that left"];
    return to_scheduler(conn, msg::Leave{}, true);
  }
  ++outcome_.covered["clients whose link was closed"];
  step_scheduler({scheduler::Closed{conn, {Errc::kUnavailable, "closed by the simulator"}}});
}

void World::after_vanishing() {
  if (knobs_.announces > 0) return;  // those are of so many clients from the start
  at(prng_.between(1, 40) * knobs_.max_delay_ns, [this] {
    ++outcome_.covered["clients that came after one that vanished"];
    start_client(static_cast<int>(clients_.size()));
  });
}

}  // namespace tilewise::sim
