// A frame from one thread to another and back, as between two workers, each bound to a core.
#pragma once
#include "report.h"

namespace tilewise::bench {

// One way in microseconds, median of five: over a Unix socket and through shared memory, polled and parked.
void bench_hop(Report& report);

}  // namespace tilewise::bench
