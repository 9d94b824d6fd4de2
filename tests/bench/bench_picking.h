// Operations that read where other arrays say, or as much as they say: gathers, masks, the best of many.
#pragma once
#include "report.h"

namespace tilewise::bench {

void bench_picking(const Settings& settings, Report& report);

}  // namespace tilewise::bench
