#include <tilewise/ir/dtype.h>

#include <array>

namespace tilewise::ir {
namespace {

struct Names {
  DType dtype;
  std::string_view name, code;  // NumPy's type string without its byte-order mark
};
constexpr std::array<Names, kDTypeCount> kNames = {{{DType::kBool, "bool", "b1"},
                                                    {DType::kInt32, "int32", "i4"},
                                                    {DType::kInt64, "int64", "i8"},
                                                    {DType::kFloat32, "float32", "f4"},
                                                    {DType::kFloat64, "float64", "f8"}}};

}  // namespace

std::string_view name_of(DType t) {
  for (const Names& n : kNames)
    if (n.dtype == t) return n.name;
  return "unknown dtype";
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const Names& n : kNames)
    if (n.name == name) return n.dtype;
  if (name.size() != 3) return std::nullopt;
  const char order = name[0];
  for (const Names& n : kNames) {
    if (n.code != name.substr(1)) continue;
    // One byte has no order ('|'); '=' is native. Big endian (">f8") is not ours to swap.
    if (order == '<' || order == '=' || (order == '|' && size_of(n.dtype) == 1)) return n.dtype;
  }
  return std::nullopt;
}

std::optional<DType> promote(DType a, DType b) {
  if (a == b) return a;
  if (is_integer(a) && is_integer(b)) return DType::kInt64;
  if (is_floating(a) && is_floating(b)) return DType::kFloat64;
  return std::nullopt;
}

std::optional<DType> promote_scalar(DType array, ScalarKind scalar) {
  switch (scalar) {
    case ScalarKind::kBool: return array;
    case ScalarKind::kInt: return array == DType::kBool ? std::nullopt : std::optional(array);
    case ScalarKind::kFloat: return is_floating(array) ? std::optional(array) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tilewise::ir
