#pragma once
#include "report.h"

#include <map>
#include <string>

namespace tilewise::bench {

// METG(50 %) of the same patterns in Dask, beside `ours` (microseconds, by the pattern's name). Where `python3` (or
// $BENCH_DASK_PYTHON) has no `distributed`, a note says so. Minutes.
void beside_dask(const std::map<std::string, double>& ours, bool quick, Report& report);

}  // namespace tilewise::bench
