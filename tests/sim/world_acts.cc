// Two acts. First everything breaks at once: no way delivers anything, the scheduler dies or stands still, workers die, stand still or
// go on alone, clients stand still; whatever happens, no rule may be broken. Then some of it heals, and what is left must get on:
// each request of a client that is back ends within a time that is worked out from the delays and limits of this world.
#include "world_parts.h"

#include <sstream>

namespace tilewise::sim {
namespace {

// Messages and steps on the slowest way, one after another, in which a request must end: a device that is slow may have a hundred tasks of
// several steps. The first 200 seeds use at most a tenth of their time.
constexpr std::int64_t kPatience = 300;

}  // namespace

Knobs Knobs::two_acts(std::uint64_t seed) {
  Knobs k = storm(seed);
  Prng p(seed * 0xAC75 + 41);
  k.link_probes = false;
  k.workers = static_cast<int>(p.between(2, 5));
  k.requests = static_cast<int>(p.between(3, 8));
  k.kills = k.clogs = k.relinks = 0;  // all faults come at once
  k.acts = p.chance(0.7) ? 1 : static_cast<int>(p.between(2, 3));
  k.hush_ns = std::max<TimeNs>(p.between(8, 60) * k.max_delay_ns, 2 * kMillisecond);
  k.silence_ns = k.hush_ns;
  if (p.chance(0.1)) k.held_ranges = static_cast<std::size_t>(p.between(1, 30));
  k.recovery_wait_ns = p.chance(0.3) ? k.hush_ns : 4 * k.hush_ns;
  k.kill_span_ns = p.between(2, 60) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  k.checkpoint = p.chance(0.5) ? 0 : p.uniform() * 0.2;
  k.lease_ns = p.chance(0.3) ? 0 : p.between(20, 60) * k.max_delay_ns;
  if (p.chance(0.2)) k.memory_bytes = p.between(24, 96) * 1024;
  return k;
}

void World::break_everything() {
  if (act_ % 2 == 1) return;  // it is broken
  ++act_;
  healed_ = false;
  ++outcome_.covered["everything broke"];
  std::vector<std::uint64_t> ends{kScheduler};
  std::set<std::uint64_t> stopped;
  const auto stops = [&](std::uint64_t process, Counted what) {
    if (may_stop(process)) stop(process), stopped.insert(process), ++outcome_.covered[what];
  };
  int killed = 0;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = *workers_[w];
    if (!worker.takes_part() || worker.core == nullptr) continue;
    ends.push_back(worker.welcome.you.value);
    const double fate = prng_.uniform();
    if (fate < 0.3)
      kill(static_cast<int>(w)), ++killed;
    else if (fate < 0.6)
      stops(worker.welcome.you.value, "stopped workers");
  }
  for (const auto& client : clients_) {
    if (!client->welcomed || client->dead) continue;
    ends.push_back(client->welcome.you.value);
    if (prng_.chance(0.3)) stops(client->welcome.you.value, "stopped clients");
  }
  std::vector<Way> dark;
  for (const std::uint64_t from : ends) {
    for (const std::uint64_t to : ends) {
      if (from != to && clogged_.try_emplace({from, to}).second) dark.emplace_back(from, to);
    }
  }
  const TimeNs span = prng_.between(1, prng_.chance(0.7) ? knobs_.hush_ns : 3 * knobs_.hush_ns);
  if (prng_.chance(0.6))
    crash_scheduler(span);
  else if (prng_.chance(0.5))
    stops(kScheduler, "stopped schedulers");
  at(span, [this, dark, stopped, killed] { heal_some(dark, stopped, killed); });
}

void World::heal_some(const std::vector<Way>& dark, const std::set<std::uint64_t>& stopped, int killed) {
  ++act_;
  std::set<std::uint64_t> stays;  // as it is, for ever
  int back = 0;
  for (const auto& worker : workers_) {
    if (!worker->takes_part() || worker->core == nullptr) continue;
    if (back > 0 && prng_.chance(0.25)) {
      stays.insert(worker->welcome.you.value);
      ++outcome_.covered["workers that did not heal"];
    } else {
      ++back;
    }
  }
  for (const auto& client : clients_) {
    if (!client->welcomed || client->dead || !prng_.chance(0.15)) continue;
    stays.insert(client->welcome.you.value);
    client->dead = true;
    ++outcome_.covered["clients that did not heal"];
  }
  const auto resume = [&] {
    for (const std::uint64_t process : stopped) {
      if (!stays.contains(process)) go_on(process);
    }
  };
  const bool first = prng_.chance(0.5);
  if (first) resume();
  for (const Way& way : dark) {
    if (stays.contains(way.first) || stays.contains(way.second)) cut_.insert(way);
    const bool peers = way.first != kScheduler && way.second != kScheduler && way.first < way.second;
    if (peers && !cut_.contains(way) && prng_.chance(0.5)) {  // it was another link before
      ++outcome_.covered["links made again when all was healed"];
      drop_receives(way.first, way.second);
      drop_receives(way.second, way.first);
      let_go_of_sends(way.first, way.second);
      let_go_of_sends(way.second, way.first);
    }
    unclog(way);
  }
  if (!first) resume();
  for (int i = 0; i < killed; ++i) respawn();
  if (back == 0) at(jitter(), [this] { start_worker(static_cast<int>(workers_.size())); });
  healed_ = true;
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    for (const auto& [number, request] : clients_[c]->requests) {
      if (!clients_[c]->dead && !request.done) demand(static_cast<int>(c), number);
    }
  }
}

// From when all that will heal has: the limits after which somebody who is gone is given up, twice where he could be noticed one after the
// other, those after which graphs are ended for lack of memory, one after the other, and a number of messages and steps on the slowest way.
TimeNs World::patience() const {
  const TimeNs step = 200'000 * (knobs_.slow_devices > 0 ? 50 : 1);
  return 4 * std::max(knobs_.hush_ns, knobs_.lease_ns) + 2 * knobs_.recovery_wait_ns +
         2 * knobs_.stuck_ns() * (1 + knobs_.clients * knobs_.requests) +
         kPatience * (knobs_.longest_delay_ns() + step);
}

// What may yet end, if only by a clock: its time to do so is not over.
bool World::awaits_demanded() const {
  return std::any_of(demanded_.begin(), demanded_.end(), [&](const auto& demand) {
    const Client& client = *clients_[static_cast<std::size_t>(demand.first.first)];
    return !client.dead && !client.declared_lost && !client.requests.at(demand.first.second).done;
  });
}

void World::demand(int index, std::uint64_t number) {
  ++outcome_.covered["requests that had to end in time"];
  const TimeNs since = demanded_[{index, number}] = now_;
  at(
      patience(),
      [this, index, number, since, act = act_] {
        const Client& client = *clients_[static_cast<std::size_t>(index)];
        if (client.dead || client.declared_lost || act != act_)
          return;  // it broke again, and was asked for anew
        if (client.requests.at(number).done) return;
        violate("request " + std::to_string(number) + " of client " + std::to_string(index) +
                " has not ended " + std::to_string(now_ - since) + " ns after all was healed" +
                waits_for(index, number));
      },
      true);
}

std::string World::waits_for(int index, std::uint64_t number) const {
  std::ostringstream out;
  out << missing(index, number);
  if (down_) out << "\nthe scheduler is dead";
  const scheduler::GraphRequest of{clients_[static_cast<std::size_t>(index)]->requests.at(number).graph};
  const scheduler::View view = scheduler_->view(of, now_);
  if (const auto* graph = std::get_if<scheduler::GraphView>(&view)) {
    for (const scheduler::OpView& op : graph->ops) {
      if (!op.finished)
        out << "\n  op " << op.id.value << " " << op.label << ": " << op.done << " of " << op.tasks
            << " tasks are done";
    }
  }
  for (const auto& worker : workers_) {
    if (worker->takes_part() && worker->core != nullptr) out << "\n" << worker->core->describe();
  }
  return out.str();
}

}  // namespace tilewise::sim
