// What others do, under the same cost model: tasks dealt out in turn, at random, or as Dask decides.
#pragma once
#include "machine.h"

namespace tilewise::scale {

std::vector<std::int32_t> round_robin(const Unrolled& graph, std::size_t devices);
std::vector<std::int32_t> at_random(const Unrolled& graph, std::size_t devices, std::uint64_t seed);

// Dask's rule when a task becomes ready (its scheduler's worker_objective): of the workers that hold something it reads,
// and the least occupied one, which stands in for work stealing, the one with the least occupancy + missing bytes / one
// bandwidth. Occupancy counts work given and not finished, at the speed of each worker. What reads nothing goes to the
// least occupied.
Choose like_dask(double bytes_per_s = 1e8);

}  // namespace tilewise::scale
