// One block to many hosts, beside one block to one host.
#pragma once
#include "report.h"

namespace tilewise::bench {

void bench_broadcast(const Settings& settings, Report& report);

}  // namespace tilewise::bench
