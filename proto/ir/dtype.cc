#include <tilewise/ir/dtype.h>

#include <algorithm>
#include <array>
#include <limits>

namespace tilewise::ir {
namespace {

struct Names {
  std::string_view name, code;  // NumPy's type string
};
// In the order of the enumeration.
constexpr std::array<Names, kDTypeCount> kNames = {{{"bool", "|b1"},
                                                    {"int32", "<i4"},
                                                    {"int64", "<i8"},
                                                    {"float32", "<f4"},
                                                    {"float64", "<f8"},
                                                    {"int8", "|i1"},
                                                    {"int16", "<i2"},
                                                    {"uint8", "|u1"},
                                                    {"uint16", "<u2"},
                                                    {"uint32", "<u4"},
                                                    {"uint64", "<u8"},
                                                    {"float16", "<f2"},
                                                    {"bfloat16", ""},
                                                    {"complex64", "<c8"},
                                                    {"complex128", "<c16"}}};

DType signed_of(std::size_t bytes) {
  switch (bytes) {
    case 1: return DType::kInt8;
    case 2: return DType::kInt16;
    case 4: return DType::kInt32;
    default: return DType::kInt64;
  }
}

std::optional<DType> promote_integers(DType a, DType b) {
  const bool same_kind = is_signed_integer(a) == is_signed_integer(b);
  if (same_kind) return size_of(a) > size_of(b) ? a : b;
  const DType plus = is_signed_integer(a) ? b : a, minus = is_signed_integer(a) ? a : b;
  if (plus == DType::kUInt64) return std::nullopt;
  return signed_of(std::max(size_of(minus), 2 * size_of(plus)));
}

}  // namespace

std::string_view name_of(DType t) {
  const auto i = static_cast<std::size_t>(t);
  return i < kNames.size() ? kNames[i].name : "unknown dtype";
}

std::string_view npy_code(DType t) {
  const auto i = static_cast<std::size_t>(t);
  return i < kNames.size() ? kNames[i].code : "";
}

std::optional<DType> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i].name == name) return static_cast<DType>(i);
  if (name.size() < 3) return std::nullopt;
  const char order = name[0];
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].code.empty() || kNames[i].code.substr(1) != name.substr(1)) continue;
    // One byte has no order ('|'); '=' is native. Big endian (">f8") is not ours to swap.
    const auto t = static_cast<DType>(i);
    if (order == '<' || order == '=' || (order == '|' && size_of(t) == 1)) return t;
  }
  return std::nullopt;
}

std::optional<DType> promote(DType a, DType b) {
  if (a == b) return a;
  if (is_integer(a) && is_integer(b)) return promote_integers(a, b);
  if (is_complex(a) || is_complex(b)) {
    const auto inexact = [](DType t) { return is_complex(t) || is_floating(t); };
    if (!inexact(a) || !inexact(b)) return std::nullopt;
    return complex_dtype(a) == DType::kComplex128 || complex_dtype(b) == DType::kComplex128
               ? DType::kComplex128
               : DType::kComplex64;
  }
  if (!is_floating(a) || !is_floating(b)) return std::nullopt;
  if (is_half(a) && is_half(b)) return DType::kFloat32;
  return size_of(a) > size_of(b) ? a : b;
}

std::optional<DType> promote_scalar(DType array, ScalarKind scalar) {
  const bool real = is_floating(array), inexact = real || is_complex(array);
  switch (scalar) {
    case ScalarKind::kBool: return array;
    case ScalarKind::kInt: return array == DType::kBool ? std::nullopt : std::optional(array);
    case ScalarKind::kFloat: return inexact ? std::optional(array) : std::nullopt;
    case ScalarKind::kComplex: return inexact ? std::optional(complex_dtype(array)) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<FloatInfo> finfo(DType t) {
  const auto of = [&]<class T>(T) {
    using Limits = std::numeric_limits<T>;
    return FloatInfo{static_cast<int>(sizeof(T)) * 8,
                     Limits::epsilon(),
                     Limits::max(),
                     Limits::lowest(),
                     Limits::min(),
                     real_dtype(t)};
  };
  switch (real_dtype(t)) {
    case DType::kFloat16: return FloatInfo{16, 0x1p-10, 65504, -65504, 0x1p-14, t};
    case DType::kBFloat16: return FloatInfo{16, 0x1p-7, 0x1.FEp127, -0x1.FEp127, 0x1p-126, t};
    case DType::kFloat32: return of(float{});
    case DType::kFloat64: return of(double{});
    default: return std::nullopt;
  }
}

std::optional<IntegerInfo> iinfo(DType t) {
  if (!is_integer(t)) return std::nullopt;
  const int bits = static_cast<int>(size_of(t)) * 8;
  if (is_unsigned_integer(t)) return IntegerInfo{bits, 0, ~std::uint64_t{0} >> (64 - bits)};
  return IntegerInfo{bits, std::numeric_limits<std::int64_t>::min() >> (64 - bits),
                     ~std::uint64_t{0} >> (65 - bits)};
}

}  // namespace tilewise::ir
