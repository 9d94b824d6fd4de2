#pragma once
#include "report.h"

namespace tilewise::bench {

// Scheduling on paper: makespan, traffic and the scheduler's own cost beside lower bounds and other policies.
void bench_scale(bool quick, Report& report);

}  // namespace tilewise::bench
