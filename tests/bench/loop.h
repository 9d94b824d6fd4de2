// What a programmer with two threads writes by hand, to compare with; compiled with -O3 -march=native.
#pragma once
#include <cstdint>

namespace tilewise::bench {

// out = (a*b + c)*d - sqrt(abs(a)), elements [begin, end).
void fused_store(const double* a, const double* b, const double* c, const double* d, double* out,
                 std::int64_t begin, std::int64_t end);
// Its sum.
double fused_sum(const double* a, const double* b, const double* c, const double* d, std::int64_t begin,
                 std::int64_t end);

}  // namespace tilewise::bench
