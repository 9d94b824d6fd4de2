// Makes a failing world smaller, as long as it fails.
#pragma once
#include "world.h"

#include <string>

namespace tilewise::sim {

// "clients=1 duplicate=0": knobs by name, in place of a seed's own. Unknown names are an error, told in `wrong`.
Knobs with(Knobs knobs, const std::string& changes, std::string& wrong);

// Changes under which the world still fails, with a violation or by ending its process: each knob as low as it goes, one after the
// other. Worlds run in processes of their own, at most so many and for at most 20 s each. Empty: as it is, or it does not fail.
std::string shrink(const Knobs& knobs, int worlds = 60);

}  // namespace tilewise::sim
