// Philox in vectors: each 64-bit lane carries one block's word in its low half; MulEven gives the 64-bit products, and
// what is left in the high halves never reaches a low half, so it is masked only once, at the end.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_random.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <tilewise/kernels/random_spec.h>

#include <algorithm>
#include <cstring>

#include "map/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;
using ir::TapeOp;

constexpr std::int64_t kChunk = 64;  // Philox blocks generated at a time

// Whole chunks only: writes 2 * kChunk values.
#if HWY_TARGET == HWY_SCALAR
void philox_chunk(std::uint64_t key, std::uint64_t first, std::uint64_t* HWY_RESTRICT out) {
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const random_spec::Words x = random_spec::block(key, first + static_cast<std::uint64_t>(i));
    out[2 * i] = x.w[0] | (std::uint64_t{x.w[1]} << 32);
    out[2 * i + 1] = x.w[2] | (std::uint64_t{x.w[3]} << 32);
  }
}
#else
void philox_chunk(std::uint64_t key, std::uint64_t first, std::uint64_t* HWY_RESTRICT out) {
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> d32;
  const auto m0 = hn::BitCast(d32, hn::Set(d, random_spec::kMultiplier0));
  const auto m1 = hn::BitCast(d32, hn::Set(d, random_spec::kMultiplier1));
  const auto low = hn::Set(d, 0xFFFFFFFFull);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (std::int64_t i = 0; i < kChunk; i += lanes) {
    auto c0 = hn::Iota(d, first + static_cast<std::uint64_t>(i));
    auto c1 = hn::ShiftRight<32>(c0);
    auto c2 = hn::Zero(d), c3 = hn::Zero(d);
    std::uint32_t k0 = key0, k1 = key1;
    for (int round = 0; round < random_spec::kRounds; ++round) {
      const auto p0 = hn::MulEven(hn::BitCast(d32, c0), m0);
      const auto p1 = hn::MulEven(hn::BitCast(d32, c2), m1);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
      c1 = p1;
      c3 = p0;
      k0 += random_spec::kWeyl0;
      k1 += random_spec::kWeyl1;
    }
    const auto even = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
    const auto odd = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(even, odd, d, out + 2 * i);
  }
}
#endif

void philox_words(std::uint64_t key, std::uint64_t first, std::int64_t n, std::uint64_t* out) {
  std::uint64_t chunk[2 * kChunk];
  for (std::int64_t i = 0; i < n; i += kChunk) {
    if (n - i >= kChunk) {
      philox_chunk(key, first + static_cast<std::uint64_t>(i), out + 2 * i);
    } else {
      philox_chunk(key, first + static_cast<std::uint64_t>(i), chunk);
      std::memcpy(out + 2 * i, chunk, static_cast<std::size_t>(n - i) * 16);
    }
  }
}

// Turns a chunk of words into kPerBlock elements a block; Convert::run reads 2 * kChunk words.
template <class T, int kPerBlock, class Convert>
void generate(std::uint64_t key, std::uint64_t first, std::int64_t n, void* to) {
  T* out = static_cast<T*>(to);
  constexpr std::int64_t kElements = kChunk * kPerBlock;
  alignas(64) std::uint64_t words[2 * kChunk];
  alignas(64) T values[kElements];
  std::uint64_t number = first / kPerBlock;
  auto skip = static_cast<std::int64_t>(first % kPerBlock);
  while (n > 0) {
    philox_chunk(key, number, words);
    const std::int64_t take = std::min(n, kElements - skip);
    if (take == kElements) {
      Convert::run(words, out);
    } else {
      Convert::run(words, values);
      std::memcpy(out, values + skip, static_cast<std::size_t>(take) * sizeof(T));
    }
    out += take;
    n -= take;
    number += kChunk;
    skip = 0;
  }
}

struct Uniform64 {
  static HWY_INLINE void run(const std::uint64_t* words, double* out) {
    for (int i = 0; i < 2 * kChunk; ++i)
      out[i] = static_cast<double>(static_cast<std::int64_t>(words[i] >> 11)) * 0x1.0p-53;
  }
};
struct Uniform32 {
  static HWY_INLINE void run(const std::uint64_t* words, float* out) {
    std::uint32_t halves[4 * kChunk];
    std::memcpy(halves, words, sizeof(halves));
    for (int i = 0; i < 4 * kChunk; ++i)
      out[i] = static_cast<float>(static_cast<std::int32_t>(halves[i] >> 8)) * 0x1.0p-24f;
  }
};
struct Raw64 {
  static HWY_INLINE void run(const std::uint64_t* words, std::int64_t* out) {
    std::memcpy(out, words, 16 * kChunk);
  }
};
struct Normal64 {
  static HWY_INLINE void run(const std::uint64_t* words, double* out) {
    const hn::ScalableTag<double> d;
    alignas(64) double u[kChunk], v[kChunk];
    for (int i = 0; i < kChunk; ++i) {
      u[i] = static_cast<double>(static_cast<std::int64_t>((1ull << 53) - (words[2 * i] >> 11))) * 0x1.0p-53;
      v[i] = static_cast<double>(static_cast<std::int64_t>(words[2 * i + 1] >> 11)) * 0x1.0p-53;
    }
    for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
      const auto r = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, hn::Load(d, u + i))));
      const auto c = hn::Cos(d, hn::Mul(hn::Set(d, random_spec::kTwoPi), hn::Load(d, v + i)));
      hn::StoreU(hn::Mul(r, c), d, out + i);
    }
  }
};
struct Normal32 {
  static HWY_INLINE void run(const std::uint64_t* words, float* out) {
    const hn::ScalableTag<float> d;
    alignas(64) float u[kChunk], v[kChunk];
    for (int i = 0; i < kChunk; ++i) {
      const auto w0 = static_cast<std::uint32_t>(words[2 * i]),
                 w1 = static_cast<std::uint32_t>(words[2 * i] >> 32);
      u[i] = static_cast<float>(static_cast<std::int32_t>((1u << 24) - (w0 >> 8))) * 0x1.0p-24f;
      v[i] = static_cast<float>(static_cast<std::int32_t>(w1 >> 8)) * 0x1.0p-24f;
    }
    for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
      const auto r = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), hn::Log(d, hn::Load(d, u + i))));
      const auto c = hn::Cos(d, hn::Mul(hn::Set(d, random_spec::kTwoPiF), hn::Load(d, v + i)));
      hn::StoreU(hn::Mul(r, c), d, out + i);
    }
  }
};

RandomFn random_of(TapeOp op, DType dtype) {
  switch (op) {
    case TapeOp::kUniform:
      if (dtype == DType::kFloat64) return generate<double, 2, Uniform64>;
      return dtype == DType::kFloat32 ? generate<float, 4, Uniform32> : nullptr;
    case TapeOp::kNormal:
      if (dtype == DType::kFloat64) return generate<double, 1, Normal64>;
      return dtype == DType::kFloat32 ? generate<float, 1, Normal32> : nullptr;
    case TapeOp::kRandomInt:
    case TapeOp::kRandomBelow: return dtype == DType::kInt64 ? generate<std::int64_t, 2, Raw64> : nullptr;
    default: return nullptr;
  }
}
PhiloxFn philox_of() { return philox_words; }

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(random_of);
HWY_EXPORT(philox_of);
RandomFn find_random(ir::TapeOp op, ir::DType dtype) { return HWY_DYNAMIC_DISPATCH(random_of)(op, dtype); }
PhiloxFn philox_fn() { return HWY_DYNAMIC_DISPATCH(philox_of)(); }
}  // namespace tilewise::kernels::map
#endif
