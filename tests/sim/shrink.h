// Makes a failing world smaller, as long as it fails in the same way.
#pragma once
#include "sanitizers.h"
#include "world.h"

#include <functional>
#include <string>

namespace tilewise::sim {

// "clients=1 duplicate=0": knobs by name, in place of a seed's own. Unknown names are an error, told in `wrong`.
Knobs with(Knobs knobs, const std::string& changes, std::string& wrong);

// What kind of violation this is: its text up to the first details, without its time and with no number in it.
std::string kind_of(const std::string& violation);

struct Shrinking {
  int worlds = 60;  // at most so many are run, each in a process of its own
  TimeNs each_ns =
      20 * testing::kTimesSlower * kSecond;  // what takes longer of the processor's time does not end
  std::function<std::string(const Knobs&)> run = [](const Knobs& knobs) {
    return World(knobs).run().violation;
  };
};

// Changes under which the world still fails as it does, that is with a violation of the same kind, at the same check of a core, by the
// same signal, or by not coming to an end: each knob as low as it goes, one after the other. Empty: as it is, or it does not fail.
std::string shrink(const Knobs& knobs, const Shrinking& how = {});

}  // namespace tilewise::sim
