// Dozens of workers. A step touches the state of the one process that takes it, so all of that is looked at after each, as in small worlds;
// that takes about four fifths of the time (the README has figures).
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
  if (p.chance(0.5)) k.scheduler_crashes = 1;
  return k;
}

}  // namespace tilewise::sim
