// Host kernels on single blocks, one core, beside loops and NumPy.
#pragma once
#include "report.h"

namespace tilewise::bench {

void block_functions(const Settings& settings, Report& report);  // exp, log, sin, tanh in cache, beside NumPy
// Reductions of many shapes beside reading memory, transposed operands beside copying, running sums, one block's product.
void bench_block(const Settings& settings, Report& report);

}  // namespace tilewise::bench
