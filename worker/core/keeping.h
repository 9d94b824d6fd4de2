// Blocks of a worker that leaves, for which a device of this one has no memory.
#pragma once
#include <tilewise/base/time.h>

#include <algorithm>

#include "device_state.h"

namespace tilewise::worker {

// Such blocks wait for memory. `copies`: the core's.
template <class Copies> bool cannot_keep(const DeviceState& device, const Copies& copies) {
  return std::ranges::any_of(device.ungranted,
                             [&](const Ungranted& entry) { return copies[entry.copy].kept_open; });
}

// When it is asked for again.
inline TimeNs keep_again_at(const DeviceState& device, TimeNs stuck_ns) {
  return device.last_change + stuck_ns / 4;
}

}  // namespace tilewise::worker
