// Element types, and the Array API standard's promotion among them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tilewise::ir {

// Stable on the wire: append only.
enum class DType : std::uint8_t { kBool = 0, kInt32 = 1, kInt64 = 2, kFloat32 = 3, kFloat64 = 4 };
constexpr int kDTypeCount = 5;

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::kBool: return 1;
    case DType::kInt32:
    case DType::kFloat32: return 4;
    case DType::kInt64:
    case DType::kFloat64: return 8;
  }
  return 0;
}
constexpr bool is_floating(DType t) { return t == DType::kFloat32 || t == DType::kFloat64; }
constexpr bool is_integer(DType t) { return t == DType::kInt32 || t == DType::kInt64; }

std::string_view name_of(DType t);                        // "float64"
std::optional<DType> dtype_named(std::string_view name);  // "float64"; also NumPy's "<f8" codes

// The standard's table for two arrays. Nothing for mixed kinds it leaves undefined: bool with a number,
// int64/int32 with floats. (A Python scalar, by contrast, adopts the array's dtype where its kind permits: see
// promote_scalar.)
std::optional<DType> promote(DType a, DType b);

// A scalar of the host language next to an array: it adopts the array's dtype where its kind permits. Nothing for an
// integer or float beside bool, or a float beside integers.
enum class ScalarKind : std::uint8_t { kBool, kInt, kFloat };
std::optional<DType> promote_scalar(DType array, ScalarKind scalar);

template <class T> struct dtype_of;
template <> struct dtype_of<bool> { static constexpr DType value = DType::kBool; };
template <> struct dtype_of<std::int32_t> { static constexpr DType value = DType::kInt32; };
template <> struct dtype_of<std::int64_t> { static constexpr DType value = DType::kInt64; };
template <> struct dtype_of<float> { static constexpr DType value = DType::kFloat32; };
template <> struct dtype_of<double> { static constexpr DType value = DType::kFloat64; };
template <class T> constexpr DType dtype_of_v = dtype_of<T>::value;

}  // namespace tilewise::ir
