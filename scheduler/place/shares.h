// How many items each device gets, and which: shared by policies that name the owner of each chunk of an op's space.
#pragma once
#include <tilewise/place/place.h>

namespace tilewise::place {

// A grid of chunks over the points: one a point, or coarser, so that there are at most `most` (and kMaxRuleDevices).
ir::Shape chunks_of(const ir::Shape& counts, std::int64_t most);

// As measured, or by topology.
LinkSpeed link_of(const Request& request, const Device& from, const Device& to);

// Of earlier ops of the same plan, in seconds.
double busy_so_far(const Request& request, const Device& device);

// What a point costs each eligible device, and what each has to do before, in seconds. Speeds that are about equal are
// made equal, so that noise in what was measured does not cut every op another way.
struct Pace {
  std::vector<double> point_s, busy_s;
  std::vector<std::int64_t> most;  // points whose results fit the device's memory; empty: no bounds
};
Pace pace_of(const Request& request);

// Points for each device, `items` together, so that the device that ends last ends as early as can be. Memory bounds hold
// unless they do not allow as many together.
std::vector<std::int64_t> shares_by_speed(const Pace& pace, std::int64_t items);

}  // namespace tilewise::place
