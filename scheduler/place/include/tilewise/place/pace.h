// Dividing work among devices of different speed that have different things to do before it.
#pragma once
#include <cstdint>
#include <vector>

namespace tilewise::place {

// What an item costs each device, and what each has to do before, in seconds. All of one length; item_s above 0.
struct Pace {
  std::vector<double> item_s, busy_s;
  std::vector<std::int64_t>
      most;  // items whose results fit the device's memory, with as much room as all can have; empty: no bounds
};

// Items for each device, `items` together, so that the device that ends last ends as early as can be. Memory bounds hold
// unless they do not allow as many together.
std::vector<std::int64_t> shares_by_speed(const Pace& pace, std::int64_t items);

}  // namespace tilewise::place
