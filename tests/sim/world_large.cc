// Dozens of workers. A sweep over everything after each step would cost more than the step: reads and values are compared as always, and of
// each process everything is looked at after some of its steps.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::large(std::uint64_t seed) {
  Knobs k = storm(seed);
  Prng p(seed * 0x1A46 + 47);
  k.workers = static_cast<int>(p.between(48, 80));
  k.devices_each = 1;
  k.clients = 6;
  k.requests = 6;
  k.hosts = static_cast<int>(p.between(4, 8));
  k.tree_bytes = p.between(0, 32);
  k.kills = static_cast<int>(p.between(2, 8));
  k.duplicate = std::min(k.duplicate, 0.1);
  k.link_probes = false;
  k.check_every = 64;
  if (p.chance(0.5)) k.scheduler_crashes = 1;
  return k;
}

}  // namespace tilewise::sim
