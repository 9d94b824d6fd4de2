// Points of running ops that go from one device to another before they are begun, and workers that come late and take some.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::moving(std::uint64_t seed) {
  Prng p(seed * 0x30FE + 23);
  Knobs (*const kinds[])(std::uint64_t) = {from_seed, from_seed, storm, draining,
                                           restarts,  spilling,  trees, copying};
  Knobs k = kinds[p.below(std::size(kinds))](seed);
  if (k.workers == 1) k.workers = 2;
  k.requests = static_cast<int>(p.between(2, 6));
  k.pairs = p.chance(0.3) ? 0.25 : 0;
  k.moves = p.chance(0.7) ? 1 : 2;
  k.queue_steps = p.chance(0.5) ? static_cast<int>(p.between(2, 8)) : 256;
  k.moves_every_ns = p.between(1, 10) * std::max<TimeNs>(k.max_delay_ns, 20'000);
  if (k.kill_span_ns == 0) k.kill_span_ns = p.between(2, 60) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  k.late = p.chance(0.5) ? static_cast<int>(p.between(1, 3)) : 0;
  if (p.chance(0.4)) k.slow_devices = p.uniform() * 0.5;
  return k;
}

void World::set_moves(scheduler::Options& options) const {
  if (knobs_.moves == 0) return;
  options.rebalance.every_ns = knobs_.moves_every_ns;
  options.rebalance.min_gain_ns = 0;
  options.rebalance.min_gain = 0.05;
  options.rebalance.again_ns = 2 * knobs_.moves_every_ns;
  if (knobs_.moves == 1) options.rebalance.by_lot = knobs_.seed;
}

void World::come_late() {
  ++outcome_.covered["late workers"];
  start_worker(static_cast<int>(workers_.size()));
}

}  // namespace tilewise::sim
