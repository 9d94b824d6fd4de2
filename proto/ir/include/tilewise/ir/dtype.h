// Element types, and the Array API standard's promotion among them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tilewise::ir {

// Stable on the wire: append only.
enum class DType : std::uint8_t {
  kBool = 0,
  kInt32 = 1,
  kInt64 = 2,
  kFloat32 = 3,
  kFloat64 = 4,
  kInt8 = 5,
  kInt16 = 6,
  kUInt8 = 7,
  kUInt16 = 8,
  kUInt32 = 9,
  kUInt64 = 10,
  kFloat16 = 11,
  kBFloat16 = 12,
  kComplex64 = 13,  // two float32: real, imaginary
  kComplex128 = 14,
};
constexpr int kDTypeCount = 15;

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kUInt8: return 1;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kFloat32: return 4;
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat64:
    case DType::kComplex64: return 8;
    case DType::kComplex128: return 16;
  }
  return 0;
}
constexpr bool is_signed_integer(DType t) {
  return t == DType::kInt8 || t == DType::kInt16 || t == DType::kInt32 || t == DType::kInt64;
}
constexpr bool is_unsigned_integer(DType t) { return t >= DType::kUInt8 && t <= DType::kUInt64; }
constexpr bool is_integer(DType t) { return is_signed_integer(t) || is_unsigned_integer(t); }
constexpr bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }  // 16 bits
constexpr bool is_floating(DType t) {                                                      // real ones
  return t == DType::kFloat32 || t == DType::kFloat64 || is_half(t);
}
constexpr bool is_complex(DType t) { return t == DType::kComplex64 || t == DType::kComplex128; }

// The dtype that kernels compute a dtype in: narrower ones are widened when loaded and made to fit (integers wrap,
// floats round) after each operation, so that every result is what arithmetic in the narrow dtype gives.
constexpr DType compute_dtype(DType t) {
  switch (t) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt8:
    case DType::kUInt16: return DType::kInt32;
    case DType::kUInt32: return DType::kInt64;
    case DType::kFloat16:
    case DType::kBFloat16: return DType::kFloat32;
    default: return t;
  }
}
constexpr bool is_narrow(DType t) { return compute_dtype(t) != t; }

// An integer modulo 2^bits, in the dtype's range (uint64: its bits). Other dtypes: unchanged.
constexpr std::int64_t wrapped(DType t, std::int64_t v) {
  switch (t) {
    case DType::kInt8: return static_cast<std::int8_t>(v);
    case DType::kInt16: return static_cast<std::int16_t>(v);
    case DType::kInt32: return static_cast<std::int32_t>(v);
    case DType::kUInt8: return static_cast<std::uint8_t>(v);
    case DType::kUInt16: return static_cast<std::uint16_t>(v);
    case DType::kUInt32: return static_cast<std::uint32_t>(v);
    default: return v;
  }
}

// Parts of a complex number (other dtypes: themselves), and the complex dtype with parts that hold a float's digits.
constexpr DType real_dtype(DType t) {
  return t == DType::kComplex64 ? DType::kFloat32 : (t == DType::kComplex128 ? DType::kFloat64 : t);
}
constexpr DType complex_dtype(DType t) {
  return t == DType::kFloat64 || t == DType::kComplex128 || is_integer(t) ? DType::kComplex128
                                                                          : DType::kComplex64;
}

std::string_view name_of(DType t);  // "float64"
std::optional<DType> dtype_named(
    std::string_view name);          // "float64"; also NumPy's "<f8" codes (bfloat16 has none)
std::string_view npy_code(DType t);  // NumPy's type string, "<f8"; empty for bfloat16

// The standard's table for two arrays; float16 with bfloat16 gives float32. Nothing for mixed kinds it leaves undefined:
// bool with a number, integers with floats, uint64 with signed integers. (A scalar of the host language, by contrast,
// adopts the array's dtype where its kind permits: see promote_scalar.)
std::optional<DType> promote(DType a, DType b);

// A scalar of the host language next to an array: it adopts the array's dtype where its kind permits. Nothing for an
// integer or float beside bool, a float beside integers, a complex beside what is not complex.
enum class ScalarKind : std::uint8_t { kBool, kInt, kFloat, kComplex };
std::optional<DType> promote_scalar(DType array, ScalarKind scalar);

// Limits of the standard's finfo (complex dtypes: of their parts) and iinfo. Nothing for other kinds.
struct FloatInfo {
  int bits = 0;  // of a complex dtype: of one of its parts
  double eps = 0, max = 0, min = 0, smallest_normal = 0;
  DType dtype = DType::kFloat64;  // of the parts
};
struct IntegerInfo {
  int bits = 0;
  std::int64_t min = 0;
  std::uint64_t max = 0;
};
std::optional<FloatInfo> finfo(DType t);
std::optional<IntegerInfo> iinfo(DType t);

template <class T> struct dtype_of;  // half and complex types: element_types.h
template <> struct dtype_of<bool> { static constexpr DType value = DType::kBool; };
template <> struct dtype_of<std::int8_t> { static constexpr DType value = DType::kInt8; };
template <> struct dtype_of<std::int16_t> { static constexpr DType value = DType::kInt16; };
template <> struct dtype_of<std::int32_t> { static constexpr DType value = DType::kInt32; };
template <> struct dtype_of<std::int64_t> { static constexpr DType value = DType::kInt64; };
template <> struct dtype_of<std::uint8_t> { static constexpr DType value = DType::kUInt8; };
template <> struct dtype_of<std::uint16_t> { static constexpr DType value = DType::kUInt16; };
template <> struct dtype_of<std::uint32_t> { static constexpr DType value = DType::kUInt32; };
template <> struct dtype_of<std::uint64_t> { static constexpr DType value = DType::kUInt64; };
template <> struct dtype_of<float> { static constexpr DType value = DType::kFloat32; };
template <> struct dtype_of<double> { static constexpr DType value = DType::kFloat64; };
template <class T> constexpr DType dtype_of_v = dtype_of<T>::value;

}  // namespace tilewise::ir
