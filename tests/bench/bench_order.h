// Operations in which every element meets every other: sorting and transforms.
#pragma once
#include "report.h"

namespace tilewise::bench {

void bench_sort(const Settings& settings, Report& report);
void bench_fft(const Settings& settings, Report& report);

}  // namespace tilewise::bench
