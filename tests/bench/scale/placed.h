// A program as the real core places it, run on paper.
#pragma once
#include "control.h"

namespace tilewise::scale {

struct Placed {
  Unrolled graph;
  std::vector<std::int32_t> owners;
  Outcome outcome;
  double core_s = 0;  // the scheduler core's
  Wire wire;          // what its messages to workers take to encode
};

// Throws where the core does not think that the program is done at the end. BENCH_VERBOSE in the environment: prints each op's
// placement.
Placed place_and_run(Control& control, const Program& program);

}  // namespace tilewise::scale
