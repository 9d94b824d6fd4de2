// Workers that are cut off from the scheduler for good and go on: they are declared lost, their blocks made again elsewhere, while they still compute, read
// what was lent to them, and talk to whoever has not heard of it yet. Nothing that they make or say from then on may reach anybody as a value. And
// everything else heals: what is left of the cluster must end all that is asked of it. A client that is gone is followed by another one.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::fencing(std::uint64_t seed) {
  Knobs k = seed % 3 == 0 ? restarts(seed) : storm(seed);
  Prng p(seed * 0xFE2CE + 31);
  k.fail_step = k.cancel = k.kill_worker = 0;
  k.workers = static_cast<int>(p.between(2, 4));
  k.kills = p.chance(0.7) ? 0 : 1;
  k.zombies = static_cast<int>(p.between(1, 2));
  k.silence_ns = p.between(0, 40) * k.max_delay_ns;
  k.respawn = p.chance(0.5) ? 1 : p.uniform();
  k.map_peers = p.chance(0.8);
  if (p.chance(0.3)) k.vanish = 0.5, k.lease_ns = p.between(20, 60) * k.max_delay_ns;
  if (p.chance(0.5)) k.slow_devices = 0.5;
  if (p.chance(0.4)) k.memory_bytes = p.between(24, 96) * 1024;  // what is given back is soon given to others
  return k;
}

// One worker loses the scheduler, and some or all of the others; never the last one.
void World::cut_off_some() {
  std::vector<int> candidates;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w]->takes_part() && workers_[w]->core != nullptr) candidates.push_back(static_cast<int>(w));
  }
  if (candidates.size() < 2) return;
  const int index = candidates[prng_.below(candidates.size())];
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  const std::uint64_t self = worker.welcome.you.value;
  worker.cut_off = true;
  ++outcome_.covered["workers cut off"];
  // What it was at goes on while what it reads becomes another's.
  Prng p(knobs_.seed * 0xC4A + worker.welcome.you.value);
  if (p.chance(0.5)) worker.crawls = p.between(20, 500), ++outcome_.covered["cut off workers that crawl"];
  const auto cut = [&](std::uint64_t other) {
    cut_.insert({self, other});
    cut_.insert({other, self});
  };
  cut(kScheduler);
  const double share = prng_.chance(0.5) ? 0 : prng_.uniform();
  for (const auto& other : workers_) {
    if (other->core != nullptr && other->welcome.you.value != self && prng_.chance(share))
      cut(other->welcome.you.value);
  }
  for (const auto& client : clients_) {
    if (client->welcomed && prng_.chance(share)) cut(client->welcome.you.value);
    const Way news{kScheduler, client->welcome.you.value};
    if (!client->welcomed || client->dead || !prng_.chance(0.5) || !clogged_.try_emplace(news).second)
      continue;
    ++outcome_.covered["clients that hear late of a loss"];
    at(knobs_.silence_ns + prng_.between(1, 100) * std::max(knobs_.max_delay_ns, kMillisecond / 2),
       [this, news] { unclog(news); });
  }
  const TimeNs noticed = knobs_.silence_ns + jitter();
  at(noticed, [this, index] {
    Worker& w = *workers_[static_cast<std::size_t>(index)];
    if (!w.alive) return;  // killed meanwhile
    w.declared_lost = true;
    ++gone_, ++died_;
    step_scheduler({scheduler::Closed{w.conn, {Errc::kTimeout, "silent"}}});
  });
  const TimeNs unaware = prng_.between(1, 60) * std::max(knobs_.max_delay_ns, kMillisecond);
  at(noticed + unaware, [this, index] {  // until it has noticed, too
    workers_[static_cast<std::size_t>(index)]->alive = false;
  });
  respawn();
}

// What a peer does to its link with a worker that it has been told is lost: that worker's transfers end, its words go nowhere.
void World::shut_out(int index, WorkerId peer) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& lost = *workers_[w];
    if (lost.welcome.you != peer || !lost.alive) continue;
    if (knobs_.map_peers && host_of(index) == host_of(static_cast<int>(w))) fenced_.insert(peer.value);
    if (!lost.cut_off) continue;  // it leaves, as it was told to
    ++outcome_.covered["links to living workers that were declared lost"];
    const WorkerId self = workers_[static_cast<std::size_t>(index)]->welcome.you;
    cut_.insert({self.value, peer.value});
    cut_.insert({peer.value, self.value});
    at(jitter(), [this, w, self] { link_ended(static_cast<int>(w), self); });
  }
  shut_out_client(index, peer);
}

// Likewise a client that was given up.
void World::shut_out_client(int index, WorkerId peer) {
  const WorkerId self = workers_[static_cast<std::size_t>(index)]->welcome.you;
  for (const auto& client : clients_) {
    if (client->welcome.you != peer || !client->declared_lost) continue;
    cut_.insert({self.value, peer.value});
    cut_.insert({peer.value, self.value});
  }
}

// What a worker finds when it has read and before it tells anybody (net/fence.h).
bool World::ends_fenced(int index) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!fenced_.contains(worker.welcome.you.value) || worker.core->is_still()) return false;
  if (worker.alive) ++outcome_.covered["workers that found themselves fenced"];
  worker.alive = false;
  return true;
}

// Transfers with a peer end on this side.
void World::link_ended(int index, WorkerId peer) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  for (const worker::Transmit& transmit : std::vector<worker::Transmit>(worker.telling)) {
    if (transmit.to == peer) sent(index, transmit);
  }
  probes_lost(index, peer);
  std::vector<std::uint64_t> ended;
  for (const auto& [transfer, receive] : worker.armed) {
    if (receive.from == peer) ended.push_back(transfer);
  }
  for (const std::uint64_t transfer : ended) {
    worker.armed.erase(transfer);
    ++outcome_.covered["transfers cut off"];
    receive_failed(index, {transfer, {Errc::kUnavailable, "the link broke"}, msg::Lane::kTcp});
  }
}

}  // namespace tilewise::sim
