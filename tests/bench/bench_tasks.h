// What a task costs the scheduler, in time and in memory, and how soon the first one runs.
#pragma once
#include "report.h"

namespace tilewise::bench {

void bench_tasks(const Settings& settings, Report& report);     // as points of one op
void bench_explicit(const Settings& settings, Report& report);  // each with two inputs of its own
void bench_start(const Settings& settings, Report& report);

}  // namespace tilewise::bench
