#include "zarr_fill.h"

#include <tilewise/ir/element_types.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace tilewise::io {

namespace {

using json::value;

template <class T> bool store(T element, std::byte* to) {
  std::memcpy(to, &element, sizeof(element));
  return true;
}
template <class T> T load(const std::byte* from) {
  T element;
  std::memcpy(&element, from, sizeof(element));
  return element;
}

template <class T> bool read_integer(const value& v, std::byte* to) {
  if (v.is_uint64()) {
    const std::uint64_t n = v.get_uint64();
    return n <= static_cast<std::uint64_t>(std::numeric_limits<T>::max()) && store(static_cast<T>(n), to);
  }
  std::int64_t n = 0;
  if (v.is_int64()) {
    n = v.get_int64();
  } else if (v.is_double() && std::floor(v.get_double()) == v.get_double() &&
             std::abs(v.get_double()) < 9e15) {
    n = static_cast<std::int64_t>(v.get_double());  // 0.0, as some write it
  } else {
    return false;
  }
  if constexpr (std::numeric_limits<T>::is_signed) {
    if (n < static_cast<std::int64_t>(std::numeric_limits<T>::min()) ||
        n > static_cast<std::int64_t>(std::numeric_limits<T>::max()))
      return false;
  } else {
    if (n < 0 || static_cast<std::uint64_t>(n) > static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
      return false;
  }
  return store(static_cast<T>(n), to);
}

std::optional<double> real(const value& v) {
  if (v.is_double()) return v.get_double();
  if (v.is_int64()) return static_cast<double>(v.get_int64());
  if (v.is_uint64()) return static_cast<double>(v.get_uint64());
  if (!v.is_string()) return {};
  const std::string_view s = v.get_string();
  if (s == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (s == "Infinity") return std::numeric_limits<double>::infinity();
  if (s == "-Infinity") return -std::numeric_limits<double>::infinity();
  return {};
}

// Of float16, float32 or float64.
bool read_float(const value& v, std::size_t bytes, std::byte* to) {
  if (v.is_string() && v.get_string().starts_with("0x")) {
    const std::string_view digits = std::string_view(v.get_string()).substr(2);
    std::uint64_t bits = 0;
    const auto [end, ec] = std::from_chars(digits.begin(), digits.end(), bits, 16);
    if (ec != std::errc() || end != digits.end() || digits.size() > 2 * bytes) return false;
    std::memcpy(to, &bits, bytes);  // little-endian hosts only, as everywhere here
    return true;
  }
  const std::optional<double> x = real(v);
  if (!x) return false;
  if (bytes == 8) return store(*x, to);
  if (bytes == 4) return store(static_cast<float>(*x), to);
  return store(ir::Float16(*x), to);
}

value write_float(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
  return x;
}

}  // namespace

bool read_fill(const value& v, ir::DType dtype, FillBytes& out) {
  std::byte* to = out.data();
  switch (dtype) {
    case ir::DType::kBool:
      if (v.is_bool()) return store<std::uint8_t>(v.get_bool() ? 1 : 0, to);
      return v.is_int64() && (v.get_int64() == 0 || v.get_int64() == 1) &&
             store<std::uint8_t>(static_cast<std::uint8_t>(v.get_int64()), to);
    case ir::DType::kInt8: return read_integer<std::int8_t>(v, to);
    case ir::DType::kInt16: return read_integer<std::int16_t>(v, to);
    case ir::DType::kInt32: return read_integer<std::int32_t>(v, to);
    case ir::DType::kInt64: return read_integer<std::int64_t>(v, to);
    case ir::DType::kUInt8: return read_integer<std::uint8_t>(v, to);
    case ir::DType::kUInt16: return read_integer<std::uint16_t>(v, to);
    case ir::DType::kUInt32: return read_integer<std::uint32_t>(v, to);
    case ir::DType::kUInt64: return read_integer<std::uint64_t>(v, to);
    case ir::DType::kFloat16:
    case ir::DType::kFloat32:
    case ir::DType::kFloat64: return read_float(v, ir::size_of(dtype), to);
    case ir::DType::kComplex64:
    case ir::DType::kComplex128: {
      const std::size_t part = ir::size_of(dtype) / 2;
      if (v.is_array())
        return v.get_array().size() == 2 && read_float(v.get_array()[0], part, to) &&
               read_float(v.get_array()[1], part, to + part);
      return read_float(v, part, to);
    }
    case ir::DType::kBFloat16: return false;
  }
  return false;
}

value fill_value(ir::DType dtype, const FillBytes& fill) {
  const std::byte* from = fill.data();
  switch (dtype) {
    case ir::DType::kBool: return load<std::uint8_t>(from) != 0;
    case ir::DType::kInt8: return load<std::int8_t>(from);
    case ir::DType::kInt16: return load<std::int16_t>(from);
    case ir::DType::kInt32: return load<std::int32_t>(from);
    case ir::DType::kInt64: return load<std::int64_t>(from);
    case ir::DType::kUInt8: return load<std::uint8_t>(from);
    case ir::DType::kUInt16: return load<std::uint16_t>(from);
    case ir::DType::kUInt32: return load<std::uint32_t>(from);
    case ir::DType::kUInt64: return load<std::uint64_t>(from);
    case ir::DType::kFloat16:
    case ir::DType::kBFloat16: return write_float(load<ir::Float16>(from));
    case ir::DType::kFloat32: return write_float(load<float>(from));
    case ir::DType::kFloat64: return write_float(load<double>(from));
    case ir::DType::kComplex64:
      return json::array{write_float(load<float>(from)), write_float(load<float>(from + 4))};
    case ir::DType::kComplex128:
      return json::array{write_float(load<double>(from)), write_float(load<double>(from + 8))};
  }
  return nullptr;
}

}  // namespace tilewise::io
