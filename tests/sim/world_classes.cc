// Devices that do not make the same bits: of another kind or numeric class. A task is run by devices of one class only, however often it is run.
#include "world_parts.h"

namespace tilewise::sim {

std::string World::numeric_class(int index) const {
  return "class " + std::to_string(index % knobs_.classes);
}

void World::check_numeric_class(int index, const worker::Launch& launch) {
  if ((knobs_.classes == 1 && knobs_.gpu_every == 0) || oracle_.restores(launch.run.id)) return;
  const std::pair mine{knobs_.kind(launch.device), numeric_class(index)};
  const auto [first, fresh] = run_by_.try_emplace({oracle_.head(launch.run.id).value, launch.point}, mine);
  outcome_.covered["tasks run again where devices differ"] += !fresh && launch.step == 0;
  if (first->second != mine)
    violate("block " + std::to_string(launch.point) + " of op " +
            std::to_string(launch.run.id.value & 0xFFFFFF) + " is made by " + mine.second + ", kind " +
            std::to_string(mine.first) + ", and was made by " + first->second.second + ", kind " +
            std::to_string(first->second.first));
}

}  // namespace tilewise::sim
