// All kinds of worlds: the test runs each in a case of its own, and the bench all of them.
#pragma once
#include "world.h"

#include <string_view>

namespace tilewise::sim {

struct Family {
  std::string_view name;
  const char* variable;  // of the environment: the one seed to be run
  Knobs (*knobs)(std::uint64_t seed);
};

inline constexpr Family kFamilies[] = {
    {"random", "TILEWISE_SIM_SEED", Knobs::from_seed},
    {"storm", "TILEWISE_SIM_STORM", Knobs::storm},
    {"restarts", "TILEWISE_SIM_RESTARTS", Knobs::restarts},
    {"drain", "TILEWISE_SIM_DRAIN", Knobs::draining},
    {"copies", "TILEWISE_SIM_COPIES", Knobs::copying},
    {"spill", "TILEWISE_SIM_SPILL", Knobs::spilling},
    {"pinned", "TILEWISE_SIM_PINNED", Knobs::pinning},
    {"failures", "TILEWISE_SIM_FAILURES", Knobs::failing},
    {"poison", "TILEWISE_SIM_POISON", Knobs::poisoned},
    {"flaps", "TILEWISE_SIM_FLAPS", Knobs::flapping},
    {"partitions", "TILEWISE_SIM_PARTITIONS", Knobs::partitioned},
    {"fencing", "TILEWISE_SIM_FENCING", Knobs::fencing},
    {"gatherings", "TILEWISE_SIM_GATHERINGS", Knobs::gathering},
    {"silence", "TILEWISE_SIM_SILENCE", Knobs::silent},
    {"acts", "TILEWISE_SIM_ACTS", Knobs::two_acts},
    {"starving", "TILEWISE_SIM_STARVING", Knobs::starving},
    {"large", "TILEWISE_SIM_LARGE", Knobs::large},
    {"trees", "TILEWISE_SIM_TREES", Knobs::trees},
    {"crowds", "TILEWISE_SIM_CROWDS", Knobs::crowding},
    {"moves", "TILEWISE_SIM_MOVES", Knobs::moving},
    {"files", "TILEWISE_SIM_FILES", Knobs::files},
    {"minimum", "TILEWISE_SIM_MINIMUM", Knobs::least},
};
constexpr std::size_t kFamilyCount = std::size(kFamilies);

// Its place in kFamilies; kFamilyCount: there is none of that name.
constexpr std::size_t place_of(std::string_view name) {
  std::size_t at = 0;
  while (at < kFamilyCount && kFamilies[at].name != name) ++at;
  return at;
}

}  // namespace tilewise::sim
