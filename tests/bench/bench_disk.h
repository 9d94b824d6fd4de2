// What goes to disk and comes back, beside what the disk itself does.
#pragma once
#include "report.h"

namespace tilewise::bench {

// X.T @ X and a column mean of data three times the arenas.
void bench_spill(const Settings& settings, Report& report);
// save_npy and load_npy; the page cache is dropped before reading, and writing ends when the disk has it.
void bench_npy(const Settings& settings, Report& report);

}  // namespace tilewise::bench
