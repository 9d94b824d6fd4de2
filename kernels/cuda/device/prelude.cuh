// Common ground of all generated kernels: Tilewise's arithmetic on the device, and walks over strided boxes.
// Compiled by NVRTC; includes nothing. tape.h and the reference kernels say what each operation means.

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;

constexpr int kThreads = 256;

// A complex number; arithmetic is in complex.cuh.
template <class T> struct alignas(2 * sizeof(T)) Cx {
  T re, im;
  Cx() = default;
  __device__ Cx(T r, T i) : re(r), im(i) {}
  __device__ explicit Cx(double r) : re((T)r), im(0) {}
  template <class U> __device__ explicit Cx(const Cx<U>& z) : re((T)z.re), im((T)z.im) {}
};
typedef Cx<float> c64;
typedef Cx<double> c128;

// ---- arithmetic ---------------------------------------------------------------------------------------------

template <class T> struct UnsignedOf { typedef T type; };
template <> struct UnsignedOf<int> { typedef u32 type; };
template <> struct UnsignedOf<i64> { typedef u64 type; };
template <class T> constexpr bool kIsComplex = false;
template <class T> constexpr bool kIsComplex<Cx<T>> = true;
template <class T> constexpr bool kIsFloat = false;
template <> constexpr bool kIsFloat<float> = true;
template <> constexpr bool kIsFloat<double> = true;
template <class A, class B> constexpr bool kSame = false;
template <class A> constexpr bool kSame<A, A> = true;

// Integers wrap; unsigned arithmetic says so without undefined behaviour. (bool never gets here.)
#define TW_WRAP(name, op) \
  template <class T> __device__ __forceinline__ T name(T a, T b) { \
    typedef typename UnsignedOf<T>::type U; \
    return (T)((U)a op(U) b); \
  }
TW_WRAP(tw_add, +)
TW_WRAP(tw_sub, -)
TW_WRAP(tw_mul, *)

template <class T> __device__ __forceinline__ T tw_neg(T a) {
  typedef typename UnsignedOf<T>::type U;
  if constexpr (kIsFloat<T>)
    return -a;
  else
    return (T)(U(0) - (U)a);
}
template <class T> __device__ __forceinline__ T tw_abs(T a) {
  if constexpr (kSame<T, double>)
    return fabs(a);
  else if constexpr (kSame<T, float>)
    return fabsf(a);
  else if constexpr (kSame<T, u64>)
    return a;
  else
    return a < 0 ? tw_neg(a) : a;
}
template <class T> __device__ __forceinline__ T tw_sign(T a) {
  if constexpr (kIsFloat<T>)
    return a != a ? a : (T)((a > 0) - (a < 0));
  else
    return (T)((a > 0) - (a < 0));
}
// NaN wins (the sum makes it quiet); of two zeros minimum takes -0 and maximum +0, so the order never matters.
template <class T, bool kMin> __device__ __forceinline__ T tw_extremum(T a, T b) {
  if constexpr (kSame<T, double>) {
    const i64 x = __double_as_longlong(a), y = __double_as_longlong(b);
    const double tie = __longlong_as_double(kMin ? (x | y) : (x & y));
    const double pick = (kMin ? a < b : a > b) ? a : b;
    return a != a || b != b ? a + b : (a == b ? tie : pick);
  } else if constexpr (kSame<T, float>) {
    const int x = __float_as_int(a), y = __float_as_int(b);
    const float tie = __int_as_float(kMin ? (x | y) : (x & y));
    const float pick = (kMin ? a < b : a > b) ? a : b;
    return a != a || b != b ? a + b : (a == b ? tie : pick);
  } else {
    return (kMin ? a < b : a > b) ? a : b;
  }
}
template <class T> __device__ __forceinline__ T tw_min(T a, T b) { return tw_extremum<T, true>(a, b); }
template <class T> __device__ __forceinline__ T tw_max(T a, T b) { return tw_extremum<T, false>(a, b); }

// Counts outside [0, width) shift everything out: 0, or the sign.
template <class T> __device__ __forceinline__ T tw_shl(T a, T b) {
  typedef typename UnsignedOf<T>::type U;
  return (U)b < (U)(sizeof(T) * 8) ? (T)((U)a << b) : T(0);
}
template <class T> __device__ __forceinline__ T tw_shr(T a, T b) {
  typedef typename UnsignedOf<T>::type U;
  if constexpr (kSame<T, u64>)
    return b < 64 ? a >> b : 0;
  else
    return a >> ((U)b < (U)(sizeof(T) * 8) ? b : T(sizeof(T) * 8 - 1));
}

// Towards minus infinity; the remainder has the divisor's sign. Integers: division by zero gives 0, MIN / -1 wraps.
// Floats: as Python and NumPy.
template <class T> struct DivMod { T quotient, remainder; };
template <class T> __device__ __forceinline__ DivMod<T> tw_divmod(T a, T b) {
  if constexpr (kIsFloat<T>) {
    T r = fmod(a, b);
    if (b == 0) return {a / b, r};
    T q = (a - r) / b;
    if (r != 0) {
      if ((b < 0) != (r < 0)) {
        r += b;
        q -= 1;
      }
    } else {
      r = copysign(T(0), b);
    }
    if (q == q && q != 0) {
      const T f = floor(q);
      q = q - f > T(0.5) ? f + 1 : f;
    } else if (q == q) {
      q = copysign(T(0), a / b);
    }
    return {q, r};
  } else {
    if (b == 0) return {T(0), T(0)};
    if constexpr (!kSame<T, u64>)
      if (b == -1) return {tw_neg(a), T(0)};
    const T q = a / b, r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? DivMod<T>{(T)(q - 1), (T)(r + b)} : DivMod<T>{q, r};
  }
}
template <class T> __device__ __forceinline__ T tw_floor_div(T a, T b) { return tw_divmod(a, b).quotient; }
template <class T> __device__ __forceinline__ T tw_rem(T a, T b) { return tw_divmod(a, b).remainder; }

// Integers by squaring, wrapping; negative exponents give 0 but for the bases 1 and -1. Float squares are exact.
template <class T> __device__ __forceinline__ T tw_pow(T base, T exponent) {
  if constexpr (kIsFloat<T>) {
    return exponent == T(2) ? base * base : pow(base, exponent);
  } else {
    typedef typename UnsignedOf<T>::type U;
    if constexpr (!kSame<T, u64>)
      if (exponent < 0) return base == 1 ? T(1) : (base == -1 ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0));
    U result = 1, square = (U)base;
    for (U e = (U)exponent; e != 0; e >>= 1) {
      if (e & 1) result *= square;
      square *= square;
    }
    return (T)result;
  }
}

// float -> integer as x86 cvttsd2si: truncates; NaN and overflow give the most negative value. To u64 as C casts through
// i64 do, and what does not fit gives 2^63.
template <class To, class From> __device__ __forceinline__ To tw_cast(From a) {
  if constexpr (kIsComplex<From>) {
    if constexpr (kSame<To, bool>)
      return a.re != 0 || a.im != 0;
    else
      return To(a);
  } else if constexpr (kIsComplex<To>) {
    typedef decltype(To::re) Part;
    return To((Part)a, Part(0));
  } else if constexpr (kSame<To, bool>)
    return a != 0;
  else if constexpr (kIsFloat<From> && kSame<To, u64>) {
    if (a >= (From)9223372036854775808.0 && a < (From)18446744073709551616.0) return (u64)a;
    return a >= (From)-9223372036854775808.0 && a < (From)9223372036854775808.0 ? (u64)(i64)a : u64(1) << 63;
  } else if constexpr (kIsFloat<From> && kSame<To, i64>)
    return a >= (From)-9223372036854775808.0 && a < (From)9223372036854775808.0 ? (i64)a
                                                                                : (i64)(u64(1) << 63);
  else if constexpr (kIsFloat<From> && kSame<To, int>) {
    const double x = a;
    return x > -2147483649.0 && x < 2147483648.0 ? (int)x : (int)(1u << 31);
  } else if constexpr (kSame<To, int>)
    return (int)(u32)(u64)a;
  else
    return (To)a;
}

// ---- 16-bit floats: bits in memory, float in registers --------------------------------------------------------

__device__ __forceinline__ float tw_from_f16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ __forceinline__ unsigned short tw_to_f16(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ __forceinline__ float tw_from_bf16(unsigned short bits) {
  return __uint_as_float((u32)bits << 16);
}
__device__ __forceinline__ unsigned short tw_to_bf16(float value) {
  const u32 x = __float_as_uint(value);
  if (value != value) return (unsigned short)(x >> 16 | 0x40u);
  return (unsigned short)((x + 0x7FFFu + (x >> 16 & 1u)) >> 16);
}
__device__ __forceinline__ float tw_fit_f16(float value) { return tw_from_f16(tw_to_f16(value)); }
__device__ __forceinline__ float tw_fit_bf16(float value) { return tw_from_bf16(tw_to_bf16(value)); }
// To float32 by rounding to odd (rounded_to_odd in element_types.h): a second rounding, to 16 bits, is then as if it were the only one.
__device__ __forceinline__ float tw_odd(float cut, bool exact) {
  return __uint_as_float(__float_as_uint(cut) | (exact ? 0u : 1u));
}
__device__ __forceinline__ float tw_to_odd(double a) {
  const float cut = __double2float_rz(a);
  return tw_odd(cut, (double)cut == a);
}
__device__ __forceinline__ float tw_to_odd(int a) { return tw_to_odd((double)a); }
__device__ __forceinline__ float tw_to_odd(i64 a) {
  const float cut = __ll2float_rz(a);
  return tw_odd(cut, (i64)cut == a);
}
__device__ __forceinline__ float tw_to_odd(u64 a) {
  const float cut = __ull2float_rz(a);
  return tw_odd(cut, (u64)cut == a);
}

// One step of the representation; 16-bit floats step in theirs.
template <bool kBrain> __device__ __forceinline__ float tw_nextafter_half(float a, float b) {
  if (a != a || b != b) return a + b;
  if (a == b) return b;
  const u32 bits = kBrain ? tw_to_bf16(a) : tw_to_f16(a), sign = __float_as_uint(b) >> 16 & 0x8000u;
  const u32 to = a == 0 ? sign | 1u : ((a < b) == (a > 0) ? bits + 1 : bits - 1);
  return kBrain ? tw_from_bf16((unsigned short)to) : tw_from_f16((unsigned short)to);
}

// float32 with float64's digits, for the two terms may cancel.
template <class T> __device__ __forceinline__ T tw_logaddexp(T a, T b) {
  const double high = a > b ? a : b, low = a > b ? b : a;
  if (a != a || b != b) return a + b;
  return isinf(high) ? (T)high : (T)(high + log1p(exp(low - high)));
}

// ---- places -------------------------------------------------------------------------------------------------

// Of a tape, passed with each launch: one whose constants change from step to step is compiled once.
constexpr int kConstantWords = 32;
struct Constants {
  i64 word[kConstantWords];
};

// One operand of a kernel, walked in element steps. For memory `base` is the address of the first element; for a
// number that follows from the position (iota, random) it is its first value.
struct Place {
  i64 base;
  i64 inner;  // map.cuh
  i64 stride[8];
};

// A box of elements in C order; dimension 0 is outermost. `divisor` holds a multiplier and a shift per dimension that
// replace division for boxes below 2^31 elements.
struct Walk {
  i64 count;  // elements to visit, beginning with position `first`
  i64 first;
  int rank;
  int wide;  // 2^31 elements or more: divide plainly
  i64 extent[8];
  u32 multiplier[8];
  u32 shift[8];
};

__device__ __forceinline__ i64 tw_divide(const Walk& walk, i64 i, int d) {
  if (walk.wide) return (i64)((u64)i / (u64)walk.extent[d]);
  const u32 n = (u32)i;
  return walk.extent[d] == 1 ? n : __umulhi(n, walk.multiplier[d]) >> walk.shift[d];
}

// offset[s] += the element offset of position i at place s.
template <int N>
__device__ __forceinline__ void tw_offsets(const Walk& walk, const Place* places, i64 i, i64 (&offset)[N]) {
  for (int d = walk.rank - 1; d > 0; --d) {
    const i64 q = tw_divide(walk, i, d);
    const i64 r = i - q * walk.extent[d];
#pragma unroll
    for (int s = 0; s < N; ++s) offset[s] += r * places[s].stride[d];
    i = q;
  }
#pragma unroll
  for (int s = 0; s < N; ++s) offset[s] += i * places[s].stride[0];
}

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T v[N]; };

// ---- random numbers: random_spec.h says what they are ---------------------------------------------------------

namespace spec = tilewise::kernels::random_spec;

__device__ __forceinline__ u64 tw_draw64(u64 key, u64 i) {
  const spec::Words x = spec::block(key, i / 2);
  return i & 1 ? x.w[2] | (u64)x.w[3] << 32 : x.w[0] | (u64)x.w[1] << 32;
}
__device__ __forceinline__ double tw_uniform64(u64 key, u64 i) {
  return (double)(tw_draw64(key, i) >> 11) * 0x1.0p-53;
}
__device__ __forceinline__ float tw_uniform32(u64 key, u64 i) {
  const spec::Words x = spec::block(key, i / 4);
  const u32 word = i & 2 ? (i & 1 ? x.w[3] : x.w[2]) : (i & 1 ? x.w[1] : x.w[0]);
  return (float)(word >> 8) * 0x1.0p-24f;
}
__device__ __forceinline__ i64 tw_random_below(u64 key, u64 i, i64 bound) {
  return bound <= 0 ? 0 : (i64)__umul64hi(tw_draw64(key, i), (u64)bound);
}
__device__ __forceinline__ double tw_normal64(u64 key, u64 i) {
  const spec::Words x = spec::block(key, i);
  const u64 a = (x.w[0] | (u64)x.w[1] << 32) >> 11, b = (x.w[2] | (u64)x.w[3] << 32) >> 11;
  const double u = (double)((u64(1) << 53) - a) * 0x1.0p-53, v = (double)b * 0x1.0p-53;
  return sqrt(-2.0 * log(u)) * cos(spec::kTwoPi * v);
}
__device__ __forceinline__ float tw_normal32(u64 key, u64 i) {
  const spec::Words x = spec::block(key, i);
  const float u = (float)((1u << 24) - (x.w[0] >> 8)) * 0x1.0p-24f, v = (float)(x.w[1] >> 8) * 0x1.0p-24f;
  return sqrtf(-2.0f * logf(u)) * cosf(spec::kTwoPiF * v);
}
