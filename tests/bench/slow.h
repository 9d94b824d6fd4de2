// Parameters of bench.slow, as bytes. Shared by the plug-in and by the program that measures.
#pragma once
#include <cstdint>

namespace tilewise::bench {

struct SlowParams {
  std::int64_t row = 0;
  std::int64_t sleep_ns = 0;  // below a second; times $BENCH_SLOWER of the worker's process
};

}  // namespace tilewise::bench
