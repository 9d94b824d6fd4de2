// How many items each device gets, and which: shared by policies that name the owner of each chunk of an op's space.
#pragma once
#include <tilewise/place/pace.h>
#include <tilewise/place/place.h>

namespace tilewise::place {

// None: null. Sorted by id.
const Device* find_device(std::span<const Device> devices, DeviceId id);

// As measured, or by topology.
LinkSpeed link_of(const Request& request, const Device& from, const Device& to);

// Until it could begin: with earlier ops of the same plan, and until there is something to read. In seconds.
double busy_so_far(const Request& request, const Device& device);

// Of the eligible devices, for so many items that have as many of the op's points each. Speeds that are about equal are made
// equal, so that noise in what was measured does not cut every op another way.
Pace pace_of(const Request& request, std::int64_t items);

}  // namespace tilewise::place
