// For the references of built-in kernels: elements by their whole indices, one after the other. Shares nothing with the
// lines, slabs and keys (builtin.h, sort/keys.h) that the fast versions are made of.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>
#include <tilewise/kernels/plugin_abi.h>

#include <cmath>
#include <cstring>

namespace tilewise::kernels::plain {

inline ir::Shape extents(const tilewise_view_v1& view) {
  ir::Shape shape;
  for (int d = 0; d < view.rank; ++d) shape.push_back(view.shape[d]);
  return shape;
}

inline std::size_t bytes_each(const tilewise_view_v1& view) {
  return ir::size_of(static_cast<ir::DType>(view.dtype));
}

inline std::byte* address(const tilewise_view_v1& view, const ir::Index& at) {
  std::int64_t position = 0;
  for (std::size_t d = 0; d < at.size(); ++d) position += at[d] * view.strides[d];
  return static_cast<std::byte*>(view.data) + position * static_cast<std::int64_t>(bytes_each(view));
}

template <class T> T& element(const tilewise_view_v1& view, const ir::Index& at) {
  return *reinterpret_cast<T*>(address(view, at));
}

// Bytes of one element; memmove, because a result may lie where an operand was.
inline void copy_element(const tilewise_view_v1& to, const ir::Index& at, const tilewise_view_v1& from,
                         const ir::Index& i) {
  std::memmove(address(to, at), address(from, i), bytes_each(to));
}

// visit(index) for each index below `shape`, in C order.
template <class Visit> void for_each(const ir::Shape& shape, Visit&& visit) {
  const std::int64_t n = ir::volume(shape);
  for (std::int64_t e = 0; e < n; ++e) visit(ir::unravel(e, shape));
}

// visit(T()) for a dtype whose numbers are compared as C++ compares them; false for others.
template <class Visit> bool with_comparable(std::int32_t dtype, Visit&& visit) {
  switch (static_cast<ir::DType>(dtype)) {
    case ir::DType::kBool: visit(std::uint8_t{}); return true;
    case ir::DType::kInt8: visit(std::int8_t{}); return true;
    case ir::DType::kInt16: visit(std::int16_t{}); return true;
    case ir::DType::kInt32: visit(std::int32_t{}); return true;
    case ir::DType::kInt64: visit(std::int64_t{}); return true;
    case ir::DType::kUInt8: visit(std::uint8_t{}); return true;
    case ir::DType::kUInt16: visit(std::uint16_t{}); return true;
    case ir::DType::kUInt32: visit(std::uint32_t{}); return true;
    case ir::DType::kUInt64: visit(std::uint64_t{}); return true;
    case ir::DType::kFloat32: visit(float{}); return true;
    case ir::DType::kFloat64: visit(double{}); return true;
    default: return false;
  }
}

// `at` with `i` in place of dimension `axis`.
inline ir::Index replaced(ir::Index at, int axis, std::int64_t i) {
  at[static_cast<std::size_t>(axis)] = i;
  return at;
}

}  // namespace tilewise::kernels::plain
