// What moving points that have not been begun is worth where one worker is slower than the plan takes it for.
#pragma once
#include "report.h"

namespace tilewise::bench {

void bench_rebalance(const Settings& settings, Report& report);

}  // namespace tilewise::bench
