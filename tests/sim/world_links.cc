// Ways between processes that are slow, clogged for a while, or lose everything in one direction; slow devices. A *way* is a
// link in one direction.
#include "world_parts.h"

namespace tilewise::sim {

// Faults that only delay: any world may have them. Memory that cannot be had may end a graph, out of memory.
void Knobs::add_delays(std::uint64_t seed) {
  Prng p(seed * 0xC106 + 17);
  if (p.chance(0.25)) clogs = static_cast<int>(p.between(1, 4));
  if (p.chance(0.2)) slow_links = p.uniform() * 0.5;
  if (p.chance(0.2)) slow_devices = p.uniform() * 0.5;
  if (p.chance(0.1)) slab_fails = p.uniform() * 0.5;
  if (p.chance(0.3)) lends = p.uniform();
  if (p.chance(0.35)) relinks = static_cast<int>(p.chance(0.2) ? p.between(20, 60) : p.between(1, 8));
  if (p.chance(0.25)) loss = p.uniform() * 0.3;
}

Knobs Knobs::partitioned(std::uint64_t seed) {
  Knobs k = seed % 3 == 0 ? restarts(seed) : storm(seed);
  Prng p(seed * 0xCA7 + 19);
  k.fail_step = k.cancel = k.kill_worker = 0;
  k.workers = static_cast<int>(p.between(2, 4));
  k.kills = p.chance(0.7) ? 0 : 1;
  k.partitions = static_cast<int>(p.between(1, 3));
  k.silence_ns = p.between(1, 40) * k.max_delay_ns;
  k.respawn = p.chance(0.7) ? 1 : p.uniform();
  return k;
}

TimeNs Knobs::longest_delay_ns() const {
  TimeNs longest = max_delay_ns * (slow_links > 0 ? kSlowest : 1);
  if (clogs > 0) longest += kLongestClog * max_delay_ns;
  if (relinks > 0) longest += kLongestClog * max_delay_ns;
  if (loss > 0) longest += 2 * kMostLosses * max_delay_ns;
  return longest + (partitions > 0 || zombies > 0 ? 2 * silence_ns : 0);
}

TimeNs Knobs::stuck_ns() const { return 50 * kMillisecond + 20 * longest_delay_ns(); }

// Where silence is an end, losses have one, with the other faults: else one or other who lives is missed for ever, and there is no rest.
bool World::loses() const {
  const TimeNs over = 8 * knobs_.max_delay_ns + std::max(knobs_.kill_span_ns, 60 * knobs_.max_delay_ns);
  return knobs_.loss > 0 && (knobs_.hush_ns == 0 || now_ < over);
}

TimeNs World::delay(Way way) {
  TimeNs sent_again = 0;
  for (int i = 0; i < Knobs::kMostLosses && loses() && prng_.chance(knobs_.loss); ++i) {
    sent_again += 2 * knobs_.max_delay_ns;
    ++outcome_.covered["messages lost and sent again"];
  }
  return sent_again + travel(way);
}

TimeNs World::travel(Way way) {
  if (knobs_.slow_links == 0 || way.first == kScheduler || way.second == kScheduler) return jitter();
  const auto [it, fresh] = slow_ways_.try_emplace(way, 1);
  if (fresh && prng_.chance(knobs_.slow_links)) {
    it->second = prng_.between(2, Knobs::kSlowest);
    ++outcome_.covered["slow links"];
  }
  return jitter() * it->second;
}

TimeNs World::step_time(int worker, std::size_t device) {
  if (knobs_.blocks > 0) return (worker == 0 ? knobs_.slower : 1) * kMillisecond;
  const TimeNs time = prng_.between(200, 200'000) * workers_[static_cast<std::size_t>(worker)]->crawls;
  if (knobs_.slow_devices == 0) return time;
  const auto [it, fresh] = slow_devices_.try_emplace({worker, device}, 1);
  if (fresh && prng_.chance(knobs_.slow_devices)) {
    it->second = prng_.between(2, 50);
    ++outcome_.covered["slow devices"];
  }
  return time * it->second;
}

// What arrives at the end of a way: now, when it is free again, or never.
void World::arrive(Way way, std::function<void()> what) {
  if (cut_.contains(way)) {
    ++outcome_.covered["lost between workers"];
    return;
  }
  if (const auto clogged = clogged_.find(way); clogged != clogged_.end())
    return clogged->second.push_back(std::move(what));
  what();
}

// A random subset of all ways, or everything to and from one worker, whose process stands still then.
void World::clog_some() {
  std::vector<std::uint64_t> workers, ends{kScheduler};
  for (const auto& worker : workers_) {
    if (worker->alive && worker->core != nullptr) workers.push_back(worker->welcome.you.value);
  }
  if (workers.empty()) return;
  ends.insert(ends.end(), workers.begin(), workers.end());
  for (const auto& client : clients_) {
    if (client->welcomed && !client->dead) ends.push_back(client->welcome.you.value);
  }
  const bool pause = prng_.chance(0.3);
  const std::uint64_t paused = workers[prng_.below(workers.size())];
  const double share = prng_.uniform();
  const TimeNs span = prng_.between(1, Knobs::kLongestClog) * knobs_.max_delay_ns;
  if (pause) ++outcome_.covered["paused workers"];
  for (const std::uint64_t from : ends) {
    for (const std::uint64_t to : ends) {
      const bool chosen = pause ? from == paused || to == paused : prng_.chance(share);
      if (from == to || !chosen || !clogged_.try_emplace({from, to}).second) continue;
      if (!pause) ++outcome_.covered["clogged ways"];
      at(span, [this, way = Way{from, to}] { unclog(way); });
    }
  }
}

// In the order in which it came, unless the way has been lost meanwhile.
void World::unclog(Way way) {
  std::vector<std::function<void()>> held = std::move(clogged_.at(way));
  clogged_.erase(way);
  for (std::function<void()>& what : held) arrive(way, std::move(what));
}

// The link between a worker and another peer breaks and is made again: messages come late, once and in order; transfers
// do not come at all, and have to be begun anew. Each end notices at once, or when the other one makes a new link.
void World::relink_some(int tries) {
  std::vector<std::uint64_t> workers, ends;
  for (const auto& worker : workers_) {
    if (worker->alive && worker->core != nullptr) workers.push_back(worker->welcome.you.value);
  }
  if (workers.empty()) return;
  ends = workers;
  for (const auto& client : clients_) {
    if (client->welcomed && !client->dead) ends.push_back(client->welcome.you.value);
  }
  std::uint64_t one = workers[prng_.below(workers.size())], two = ends[prng_.below(ends.size())];
  // Where bytes are on their way, if there is such a link soon.
  const std::vector<Way> busy = receiving();
  if (busy.empty() && tries > 0) return at(jitter(), [this, tries] { relink_some(tries - 1); });
  if (!busy.empty()) std::tie(two, one) = busy[prng_.below(busy.size())];
  const Way there{one, two}, back{two, one};
  const auto taken = [&](Way way) { return clogged_.contains(way) || cut_.contains(way); };
  if (one == two || taken(there) || taken(back)) return;
  ++outcome_.covered["peer links made again"];
  clogged_.try_emplace(there);
  clogged_.try_emplace(back);
  if (prng_.chance(0.7)) drop_receives(one, two);
  if (prng_.chance(0.7)) drop_receives(two, one);
  at(prng_.between(0, Knobs::kLongestClog) * knobs_.max_delay_ns, [this, one, two] {
    drop_receives(one, two);
    drop_receives(two, one);
    let_go_of_sends(one, two);
    let_go_of_sends(two, one);
    unclog({one, two});
    unclog({two, one});
  });
}

// Ways over which transfers have been granted, a way as often as it has such.
std::vector<World::Way> World::receiving() const {
  std::vector<Way> ways;
  for (const auto& worker : workers_) {
    if (!worker->alive) continue;
    for (const auto& [transfer, receive] : worker->armed) {
      if (receive.from != worker->welcome.you)
        ways.emplace_back(receive.from.value, worker->welcome.you.value);
    }
  }
  for (const auto& client : clients_) {
    if (client->dead) continue;
    for (const auto& [transfer, offer] : client->granted) {
      const auto owner = client->owner_of.find(offer.from.value);
      if (owner != client->owner_of.end()) ways.emplace_back(owner->second.value, client->welcome.you.value);
    }
  }
  return ways;
}

void World::drop_receives(std::uint64_t self, std::uint64_t from) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = *workers_[w];
    if (worker.welcome.you.value != self || !worker.alive) continue;
    std::vector<std::uint64_t> ended;
    for (const auto& [transfer, receive] : worker.armed) {
      if (receive.from.value == from) ended.push_back(transfer);
    }
    for (const std::uint64_t transfer : ended) {
      if (worker.armed.erase(transfer) == 0) continue;
      ++outcome_.covered["transfers begun anew"];
      receive_failed(static_cast<int>(w),
                     {transfer, {Errc::kUnavailable, "the link broke"}, msg::Lane::kTcp});
    }
  }
  for (const auto& client : clients_) {
    if (client->welcome.you.value != self || client->dead) continue;
    for (const auto& [transfer, offer] : std::map<std::uint64_t, msg::Offer>(client->granted)) {
      if (client->owner_of[offer.from.value].value != from) continue;
      ++outcome_.covered["transfers to clients begun anew"];
      client->granted.erase(transfer);
      const std::uint64_t again = client->next_transfer++;
      client->granted[again] = offer;
      msg::PeerBatch grant;
      grant.grants.push_back({offer.block, offer.from, offer.to, again});
      peer_send(client->welcome.you, WorkerId{static_cast<std::uint32_t>(from)}, std::move(grant));
    }
  }
}

// The other side has said that it waits for none of them any more.
void World::let_go_of_sends(std::uint64_t self, std::uint64_t to) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = *workers_[w];
    if (worker.welcome.you.value != self || !worker.alive) continue;
    for (const worker::Transmit& transmit : std::vector<worker::Transmit>(worker.telling)) {
      if (transmit.to.value == to) sent(static_cast<int>(w), transmit);
    }
  }
}

// Two workers lose each other, while the scheduler sees both: their link breaks, or one way or both deliver nothing until
// silence breaks it.
void World::partition_some() {
  std::vector<int> living;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w]->alive && workers_[w]->core != nullptr) living.push_back(static_cast<int>(w));
  }
  if (living.size() < 2) return;
  const std::size_t first = prng_.below(living.size());
  std::swap(living[first], living.back());
  const int a = living.back(), b = living[prng_.below(living.size() - 1)];
  const std::uint64_t from = workers_[static_cast<std::size_t>(a)]->welcome.you.value;
  const std::uint64_t to = workers_[static_cast<std::size_t>(b)]->welcome.you.value;
  if (prng_.chance(0.3)) {
    ++outcome_.covered["broken links between workers"];
    return break_between(a, b);
  }
  cut_.insert({from, to});
  if (prng_.chance(0.3)) {
    ++outcome_.covered["two-way partitions"];
    cut_.insert({to, from});
  } else {
    ++outcome_.covered["one-way partitions"];
  }
  at(knobs_.silence_ns, [this, a, b] { break_between(a, b); });
}

// Transfers between the two end, and the younger one leaves if the scheduler still believes in both after a while.
void World::break_between(int a, int b) {
  for (const auto& [self, other] : {std::pair(a, b), std::pair(b, a)}) {
    const WorkerId peer = workers_[static_cast<std::size_t>(other)]->welcome.you;
    cut_.insert({workers_[static_cast<std::size_t>(self)]->welcome.you.value, peer.value});
    link_ended(self, peer);
  }
  at(knobs_.silence_ns, [this, a, b] {
    const Worker &one = *workers_[static_cast<std::size_t>(a)], &two = *workers_[static_cast<std::size_t>(b)];
    if (!one.alive || !two.alive) return;
    ++outcome_.covered["left for want of a link"];
    kill(one.welcome.you > two.welcome.you ? a : b);
    respawn();
  });
}

void World::respawn() {
  if (!prng_.chance(knobs_.respawn)) return;
  at(prng_.between(1, 40) * knobs_.max_delay_ns, [this] {
    ++outcome_.covered["respawned workers"];
    start_worker(static_cast<int>(workers_.size()));
  });
}

}  // namespace tilewise::sim
