// Memory that cannot be had: slabs, places on disk, buffers, scratch of steps, staging of transfers. Requests of all kinds are counted
// together, and the k-th fails, alone or with all that follow; what the cores ask of their own arenas never reaches anybody else.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::starving(std::uint64_t seed) {
  Knobs k = seed % 4 == 0 ? from_seed(seed) : seed % 4 == 1 ? pinning(seed) : spilling(seed);
  Prng p(seed * 0x57A6 + 43);
  k.fail_step = k.cancel = k.kill_worker = 0;
  k.disk_full = k.disk_fails = k.slab_fails = 0;
  k.alloc_lasts = p.chance(0.2);
  k.alloc_fails_at = static_cast<int>(p.chance(0.5) ? p.between(1, 30) : p.between(1, 600));
  return k;
}

bool World::no_room(Counted kind) {
  ++outcome_.allocations;
  const bool fails =
      knobs_.alloc_fails_at != 0 && (knobs_.alloc_lasts ? outcome_.allocations >= knobs_.alloc_fails_at
                                                        : outcome_.allocations == knobs_.alloc_fails_at);
  if (!fails) return false;
  ++outcome_.covered["requests for memory that failed"];
  ++outcome_.covered[kind];
  return true;
}

}  // namespace tilewise::sim
