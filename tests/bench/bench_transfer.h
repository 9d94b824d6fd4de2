// The copying lane beside ucx_perftest.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "report.h"

namespace tilewise::bench {

void bench_copy(const Settings& settings, Report& report);

// One run of ucx_perftest between two processes bound to a core each: its columns, or nothing where it is not installed.
struct Perftest {
  double latency_us = 0;  // median, one way
  double bytes_per_second = 0;
};
std::optional<Perftest> ucx_perftest(const std::string& test, const std::string& tls, std::int64_t bytes,
                                     int count);

// The other process of bench_copy: this program again, with this as its first argument.
inline constexpr const char* kReceiverFlag = "--receive-blocks";
int receive_blocks(int argc, char** argv);

}  // namespace tilewise::bench
