#pragma once
#include "report.h"

namespace tilewise::bench {

// Scheduling on paper: makespan, traffic and the scheduler's own cost beside lower bounds and other policies.
void bench_scale(bool quick, Report& report);
// The same with 10,000 workers and as many tasks of every family as the machine can hold.
void bench_scale_large(bool quick, Report& report);

}  // namespace tilewise::bench
