// The meaning of each arithmetic instruction on one element, written so that compilers turn it into straight vector
// code: no branches on data, no undefined overflow, one rounding an operation. Included once per Highway target.
#if defined(TILEWISE_SCALAR_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEWISE_SCALAR_OPS_INL_H_
#undef TILEWISE_SCALAR_OPS_INL_H_
#else
#define TILEWISE_SCALAR_OPS_INL_H_
#endif
#include <hwy/highway.h>

#include <bit>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

template <class T> constexpr bool is_float = std::is_floating_point_v<T>;
template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Integers go through the unsigned type: wraps at the dtype's width.
#define TILEWISE_WRAPPING(Name, sign) \
  struct Name { \
    template <class O, class T> static HWY_INLINE O apply(T a, T b) { \
      if constexpr (is_float<T>) \
        return a sign b; \
      else \
        return static_cast<T>(static_cast<Unsigned<T>>(a) sign static_cast<Unsigned<T>>(b)); \
    } \
  };
TILEWISE_WRAPPING(Add, +)
TILEWISE_WRAPPING(Sub, -)
TILEWISE_WRAPPING(Mul, *)
#undef TILEWISE_WRAPPING

struct Div {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return a / b; }
};

struct Neg {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (is_float<T>)
      return -a;
    else
      return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
  }
};
struct Abs {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (std::is_same_v<T, double>)
      return __builtin_fabs(a);
    else if constexpr (std::is_same_v<T, float>)
      return __builtin_fabsf(a);
    else if constexpr (std::is_unsigned_v<T>)
      return a;
    else
      return a < 0 ? Neg::apply<T>(a) : a;
  }
};
struct Sign {  // NaN stays, both zeros become +0
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (is_float<T>)
      return a != a ? a : static_cast<T>(static_cast<T>(a > 0) - static_cast<T>(a < 0));
    else
      return static_cast<T>((a > 0) - (a < 0));
  }
};
struct Sqrt {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (std::is_same_v<T, double>)
      return __builtin_sqrt(a);
    else
      return __builtin_sqrtf(a);
  }
};

#define TILEWISE_ROUNDING(Name, function) \
  struct Name { \
    template <class O, class T> static HWY_INLINE O apply(T a) { \
      if constexpr (std::is_same_v<T, double>) \
        return function(a); \
      else if constexpr (std::is_same_v<T, float>) \
        return function##f(a); \
      else \
        return a; \
    } \
  };
TILEWISE_ROUNDING(Floor, __builtin_floor)
TILEWISE_ROUNDING(Ceil, __builtin_ceil)
TILEWISE_ROUNDING(Trunc, __builtin_trunc)
TILEWISE_ROUNDING(Round, __builtin_nearbyint)  // half to even
#undef TILEWISE_ROUNDING

// Any NaN wins (a + b makes it quiet); of two zeros, minimum takes -0 and maximum +0: equal numbers have equal bits
// except zeros, so or-ing (and-ing) bits settles ties.
template <class T, bool kMin> HWY_INLINE T extremum(T a, T b) {
  if constexpr (is_float<T>) {
    const auto ba = std::bit_cast<BitsOf<T>>(a), bb = std::bit_cast<BitsOf<T>>(b);
    const T tie = std::bit_cast<T>(kMin ? (ba | bb) : (ba & bb));
    const T pick = (kMin ? a < b : a > b) ? a : b;
    const T number = a == b ? tie : pick;
    return (a != a) | (b != b) ? a + b : number;
  } else {
    return (kMin ? a < b : a > b) ? a : b;
  }
}
struct Minimum {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return extremum<T, true>(a, b); }
};
struct Maximum {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return extremum<T, false>(a, b); }
};

struct Not {
  template <class O, class T> static HWY_INLINE O apply(T a) { return static_cast<O>(a == 0); }
};
struct Invert {
  template <class O, class T> static HWY_INLINE O apply(T a) {
    if constexpr (sizeof(T) == 1)
      return static_cast<O>(a ^ 1);
    else
      return static_cast<O>(~a);
  }
};
struct And {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return static_cast<O>(a & b); }
};
struct Or {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return static_cast<O>(a | b); }
};
struct Xor {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return static_cast<O>(a ^ b); }
};

// Counts outside [0, width) shift everything out: 0, or the sign for kShr.
struct Shl {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) {
    constexpr T kBits = sizeof(T) * 8;
    const bool inside = static_cast<Unsigned<T>>(b) < static_cast<Unsigned<T>>(kBits);
    const T value = static_cast<T>(static_cast<Unsigned<T>>(a) << (b & (kBits - 1)));
    return inside ? value : T{0};
  }
};
struct Shr {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) {
    constexpr T kBits = sizeof(T) * 8;
    const bool inside = static_cast<Unsigned<T>>(b) < static_cast<Unsigned<T>>(kBits);
    if constexpr (std::is_unsigned_v<T>)
      return inside ? static_cast<T>(a >> (b & (kBits - 1))) : T{0};
    else
      return static_cast<T>(a >> (inside ? b : kBits - 1));
  }
};

struct Copysign {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) {
    constexpr BitsOf<T> kSign = BitsOf<T>{1} << (sizeof(T) * 8 - 1);
    const auto bits = static_cast<BitsOf<T>>((std::bit_cast<BitsOf<T>>(a) & ~kSign) |
                                             (std::bit_cast<BitsOf<T>>(b) & kSign));
    return std::bit_cast<T>(bits);
  }
};
// Towards b, one step of the representation; equal numbers give b.
struct Nextafter {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) {
    using Bits = BitsOf<T>;
    constexpr Bits kSign = Bits{1} << (sizeof(T) * 8 - 1);
    const Bits bits = std::bit_cast<Bits>(a);
    const bool outwards = (a < b) == (a > 0);  // away from zero
    const Bits step = outwards ? bits + 1 : bits - 1;
    const Bits from_zero = (std::bit_cast<Bits>(b) & kSign) | Bits{1};
    const T moved = std::bit_cast<T>(a == 0 ? from_zero : step);
    const T number = a == b ? b : moved;
    return (a != a) | (b != b) ? a + b : number;
  }
};

// Towards minus infinity. Integers: division by zero gives 0, INT_MIN / -1 wraps. Floats: as Python and NumPy divide,
// which meets the Array API's special cases; fmod is exact, so no bit depends on how it is computed.
template <class T> struct DivMod { T quotient, remainder; };
template <class T> HWY_INLINE DivMod<T> floor_divmod(T a, T b) {
  if constexpr (is_float<T>) {
    T r, q;
    if constexpr (std::is_same_v<T, double>)
      r = __builtin_fmod(a, b);
    else
      r = __builtin_fmodf(a, b);
    if (b == 0) return {a / b, r};
    q = (a - r) / b;
    if (r != 0) {
      if ((b < 0) != (r < 0)) {
        r += b;
        q -= 1;
      }
    } else {
      r = std::is_same_v<T, double> ? static_cast<T>(__builtin_copysign(0.0, b))
                                    : static_cast<T>(__builtin_copysignf(0.0f, static_cast<float>(b)));
    }
    if (q == q && q != 0) {
      const T f = Floor::apply<T>(q);
      q = q - f > T(0.5) ? f + 1 : f;
    } else if (q == q) {
      q = static_cast<T>(__builtin_copysign(0.0, static_cast<double>(a / b)));
    }
    return {q, r};
  } else {
    const bool zero = b == 0;
    const bool minus_one = std::is_signed_v<T> && b == static_cast<T>(-1);
    const T d = zero || minus_one ? T{1} : b;
    const T q = a / d, r = a % d;
    const bool down = r != 0 && (r < 0) != (d < 0);
    const T quotient = down ? q - 1 : q;
    const T remainder = down ? r + d : r;
    return {zero ? T{0} : (minus_one ? Neg::apply<T>(a) : quotient), zero ? T{0} : remainder};
  }
}
struct FloorDiv {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return floor_divmod<T>(a, b).quotient; }
};
struct Rem {
  template <class O, class T> static HWY_INLINE O apply(T a, T b) { return floor_divmod<T>(a, b).remainder; }
};

// Integers, by squaring, wrapping. Negative exponents: exact where the result is an integer (bases 1 and -1), else 0.
template <class T> HWY_INLINE T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == -1) return exponent % 2 == 0 ? 1 : -1;
      return 0;
    }
  }
  Unsigned<T> result = 1, square = static_cast<Unsigned<T>>(base);
  for (auto e = static_cast<Unsigned<T>>(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();
#endif
