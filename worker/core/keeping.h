// Blocks of a worker that leaves, for which a device of this one has no memory.
#pragma once
#include <tilewise/base/time.h>

#include <algorithm>

#include "device_state.h"

namespace tilewise::worker {

// The machine has refused it a slab that it may have, and such blocks wait for one. No task starves for them, so nobody would ever hear
// of it: the leaver waits, and memory is asked for as long as it does. `copies`: the core's.
template <class Copies> bool cannot_keep(const DeviceState& device, const Copies& copies) {
  return device.full && device.arena.bytes_resident() < device.spec.memory_bytes &&
         std::ranges::any_of(device.ungranted,
                             [&](const Ungranted& entry) { return copies[entry.copy].kept_open; });
}

// When it is asked for again.
inline TimeNs keep_again_at(const DeviceState& device, TimeNs stuck_ns) {
  return device.last_change + stuck_ns / 4;
}

}  // namespace tilewise::worker
