// Turns of a process's loop: what comes within one its core is told of in one step, in the order in which it came.
#include "world_parts.h"

namespace tilewise::sim {

void Knobs::add_turns(std::uint64_t seed) {
  Prng p(seed * 0x7042 + 43);
  if (p.chance(0.35)) turn_ns = p.between(1, std::max<TimeNs>(2, max_delay_ns / 2));
}

void World::deliver_worker(int index, worker::Event event) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive || worker.core == nullptr) return;
  if (stands_still(worker.welcome.you.value, [this, index, event] { deliver_worker(index, event); })) return;
  if (ends_fenced(index)) return;
  worker.heard.push_back(std::move(event));
  if (knobs_.turn_ns == 0) return step_worker(index);
  if (worker.heard.size() == 1) at(prng_.between(0, knobs_.turn_ns), [this, index] { take_turn(index); });
}

void World::take_turn(int index) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive || worker.heard.empty()) return;  // it has had one meanwhile
  if (stands_still(worker.welcome.you.value, [this, index] { take_turn(index); })) return;
  outcome_.covered["steps of a worker of more than one event"] += worker.heard.size() > 1;
  if (!ends_fenced(index)) step_worker(index);
}

void World::reach_scheduler(scheduler::Conn from, const msg::Message& message) {
  if (held_back(from, [this, from, message] { reach_scheduler(from, message); })) return;
  if (stands_still(kScheduler, [this, from, message] { reach_scheduler(from, message); })) return;
  if (knobs_.turn_ns == 0 || down_) return step_scheduler({scheduler::Received{from, message}});
  scheduler_heard_.push_back(scheduler::Received{from, message});
  if (scheduler_heard_.size() > 1) return;
  const auto turn = [this] {
    if (!scheduler_heard_.empty()) step_scheduler({});
  };
  at(prng_.between(0, knobs_.turn_ns), turn, std::holds_alternative<msg::Pong>(message));
}

}  // namespace tilewise::sim
