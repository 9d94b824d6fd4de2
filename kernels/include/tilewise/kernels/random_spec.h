// The exact definition of array random numbers, for the host, the reference and generated CUDA source alike.
//
// Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//   key     = (low, high) 32 bits of the instruction's imm_i
//   counter = (low, high, 0, 0) of a 64-bit block number; a block yields four 32-bit words w0..w3
// `i` is the element's C-order position in the op's space (space_shape), so numbers do not depend on the grid.
//
//   draw64(i): block i / 2; words (w0, w1) for even i, (w2, w3) for odd i; value = low word | high word << 32
//   kUniform float64   (draw64(i) >> 11) * 2^-53
//   kUniform float32   (word i % 4 of block i / 4, >> 8) * 2^-24
//   kRandomInt         draw64(i), as int64
//   kRandomBelow       (draw64(i) * a) >> 64, product of 128 bits; 0 where a <= 0
//   kNormal float64    block i: u = draw of (w0, w1) >> 11, v = draw of (w2, w3) >> 11;
//                      sqrt(-2 * log((2^53 - u) * 2^-53)) * cos(6.283185307179586 * (v * 2^-53))
//   kNormal float32    block i: u = w0 >> 8, v = w1 >> 8;
//                      sqrtf(-2 * logf((2^24 - u) * 2^-24)) * cosf(6.2831855f * (v * 2^-24))
// Every operation above rounds once, in the instruction's type. Integers and uniforms agree bit for bit on all devices;
// normals within the accuracy of log and cos there. Both logarithms' arguments are in (0, 1]: no infinity, no rejection.
//
// Includes nothing when compiled by NVRTC, so that generated source may contain this file as text.
#pragma once
#ifndef __CUDACC_RTC__
#include <cstdint>
#endif
#ifdef __CUDACC__
#define TILEWISE_SPEC __host__ __device__ inline
#else
#define TILEWISE_SPEC constexpr inline
#endif

namespace tilewise::kernels::random_spec {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr u32 kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

struct Words {
  u32 w[4];
};

TILEWISE_SPEC Words philox(Words counter, u32 key0, u32 key1) {
  for (int round = 0; round < kRounds; ++round) {
    const u64 p0 = u64{kMultiplier0} * counter.w[0];
    const u64 p1 = u64{kMultiplier1} * counter.w[2];
    counter = Words{{static_cast<u32>(p1 >> 32) ^ counter.w[1] ^ key0, static_cast<u32>(p1),
                     static_cast<u32>(p0 >> 32) ^ counter.w[3] ^ key1, static_cast<u32>(p0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

TILEWISE_SPEC Words block(u64 key, u64 number) {
  return philox(Words{{static_cast<u32>(number), static_cast<u32>(number >> 32), 0, 0}},
                static_cast<u32>(key), static_cast<u32>(key >> 32));
}

TILEWISE_SPEC u64 draw64(u64 key, u64 element) {
  const Words x = block(key, element / 2);
  const int at = static_cast<int>(element % 2) * 2;
  return x.w[at] | (u64{x.w[at + 1]} << 32);
}

TILEWISE_SPEC double uniform64(u64 key, u64 element) {
  return static_cast<double>(draw64(key, element) >> 11) * 0x1.0p-53;
}

TILEWISE_SPEC float uniform32(u64 key, u64 element) {
  return static_cast<float>(block(key, element / 4).w[element % 4] >> 8) * 0x1.0p-24f;
}

constexpr double kTwoPi = 6.283185307179586;
constexpr float kTwoPiF = 6.2831855f;

}  // namespace tilewise::kernels::random_spec
