// The words of CUDA C++ that the kernels use, as C++: included before the text of programs by programs.cc. Everything here
// means what it means on a GPU; what is not here does not compile, which says so.
#pragma once
#include <cstdint>

#include <math.h>

#include "entry.h"

#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
// One block runs at a time, in one thread of the host, so a block's shared memory is the program's.
#define __shared__ static

#define threadIdx tilewise_emulated_index.thread
#define blockIdx tilewise_emulated_index.block
#define blockDim tilewise_emulated_index.block_dim
#define gridDim tilewise_emulated_index.grid_dim
#define __syncthreads tilewise_emulated_barrier

namespace {

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <class To, class From> inline To emulated_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}
inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
inline int __float_as_int(float x) { return emulated_bits<int>(x); }
inline float __int_as_float(int x) { return emulated_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
// Towards zero: `outwards` says that the nearest float32 is further from it than the value.
inline float emulated_cut(float nearest, bool outwards) {
  return __uint_as_float(__float_as_uint(nearest) - (outwards ? 1u : 0u));
}
inline float __double2float_rz(double x) {
  const float nearest = (float)x;
  return emulated_cut(nearest, fabs((double)nearest) > fabs(x));
}
inline float __ll2float_rz(long long x) {
  const float nearest = (float)x;
  const __int128 back = (__int128)nearest;
  return emulated_cut(nearest, x < 0 ? back < x : back > x);
}
inline float __ull2float_rz(unsigned long long x) {
  const float nearest = (float)x;
  return emulated_cut(nearest, (__int128)nearest > (__int128)x);
}
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }

// Nothing else runs while a kernel does.
template <class T> inline T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T> inline T atomicCAS(T* at, T expected, T value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}
template <class T> inline T atomicMax(T* at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}

}  // namespace
