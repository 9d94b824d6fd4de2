#include "task_bench.h"

namespace tilewise::bench {

double compute(std::int64_t iterations) {
  alignas(64) double a[64];
  for (double& x : a) x = 1.2345;
  for (std::int64_t i = 0; i < iterations; ++i) {
    for (double& x : a) x = x * x + x;
    asm volatile("" : : "r"(a) : "memory");  // each pass is done, and stays in this order
  }
  double sum = 0;
  for (const double x : a) sum += x;
  return sum;
}

}  // namespace tilewise::bench
