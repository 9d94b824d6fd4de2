// What a programmer with two threads writes by hand, to compare with; compiled with -O3 -march=native.
#pragma once
#include <cstdint>

namespace tilewise::bench {

// out = (a*b + c)*d - sqrt(abs(a)), elements [begin, end).
void fused_store(const double* a, const double* b, const double* c, const double* d, double* out,
                 std::int64_t begin, std::int64_t end);
// ((a + b) * a - b) * 0.5 + a, five operations; and again with its result in place of a.
void chain5(const double* a, const double* b, double* out, std::int64_t begin, std::int64_t end);
void chain10(const double* a, const double* b, double* out, std::int64_t begin, std::int64_t end);
// a > b ? a * 2 + 1 : b * 0.5.
void choice(const double* a, const double* b, double* out, std::int64_t begin, std::int64_t end);
// Reads memory and does as little with it as can be: what bandwidth there is.
std::uint64_t read_only(const double* x, std::int64_t begin, std::int64_t end);
// The sum of what fused_store stores.
double fused_sum(const double* a, const double* b, const double* c, const double* d, std::int64_t begin,
                 std::int64_t end);

}  // namespace tilewise::bench
