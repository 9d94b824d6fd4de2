// Calls of built-in kernels, for the functions that are made of them.
#pragma once
#include <tilewise/ir/builtin.h>
#include <tilewise/kernel.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "access.h"

namespace tilewise::client {

template <class P> Kernel builtin_kernel(const P& params, double flops_per_point) {
  return {.name = std::string(P::kName),
          .version = "1",
          .params = ir::builtin::bytes_of(params),
          .flops_per_point = flops_per_point};
}

inline ir::OperandMap span_map(int rank) {
  ir::OperandMap map;
  for (int d = 0; d < rank; ++d) map.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
  return map;
}
// The same, but swept along `axis`.
inline ir::OperandMap swept_map(int rank, int axis) {
  ir::OperandMap map = span_map(rank);
  map[static_cast<std::size_t>(axis)] = {ir::DimMap::Kind::kStep};
  return map;
}

constexpr std::int64_t kDefaultBlockBytes = std::int64_t{8} << 20;  // as ir's default grids have it
inline std::int64_t block_volume(const Grid& grid) { return ir::volume(grid.max_block_shape()); }

// Those of what is computed from it one by one: a broadcast view's own blocks may be as large as it is.
inline Grid computed_cuts(const Array& x) {
  const ir::Source source = Access::source(x);
  return value_or_throw(
             infer_map(std::span(&source, 1), [](ir::TapeBuilder&, auto loaded) { return loaded[0]; }))
      .op->space;
}

// A join (of two or more) whose result has these cuts instead: its copy reads what each block is made of.
inline ir::Inferred cut_as(ir::Inferred joined, Grid grid) {
  joined.op->space = std::move(grid);
  joined.op->outputs[0].grid = joined.op->space;
  return joined;
}

// Uniform cuts as the user gave them; nothing: the default.
inline std::optional<Grid> grid_of(const Shape& shape, const Shape& block) {
  if (block.empty()) return std::nullopt;
  if (block.size() != shape.size()) {
    throw ArrayError(Errc::kShapeMismatch,
                     "blocks of " + ir::to_string(block) + " for an array of shape " + ir::to_string(shape));
  }
  return value_or_throw(Grid::uniform(shape, block));
}

// A value of the host language as a constant of that dtype; a float beside integers and bool is cut to one.
inline ir::TapeValue filled(ir::TapeBuilder& t, const Scalar& value, DType dtype) {
  const bool whole = !ir::is_floating(dtype) && !ir::is_complex(dtype);
  return value.is_float() && whole ? t.cast(t.constant(value.value(), DType::kFloat64), dtype)
                                   : t.constant(value.value(), dtype);
}

[[noreturn]] inline void refuse(Errc code, const std::string& what, const Array& a) {
  throw ArrayError(code, what + ", of an array of shape " + ir::to_string(a.shape()));
}
// In [0, rank), or kOutOfRange naming function and shape.
inline int axis_of(const Array& a, int axis, const char* function) {
  const int normal = axis < 0 ? axis + a.rank() : axis;
  if (normal < 0 || normal >= a.rank())
    refuse(Errc::kOutOfRange, std::string(function) + ": axis " + std::to_string(axis), a);
  return normal;
}
// `axes` counted from 0, all of them without a list; each once, or kInvalidArgument.
inline std::vector<int> axes_of(const Array& a, const Axes& axes, const char* function) {
  std::vector<int> out;
  if (!axes.list())
    for (int d = 0; d < a.rank(); ++d) out.push_back(d);
  else
    for (const int axis : *axes.list()) {
      const int at = axis_of(a, axis, function);
      if (std::find(out.begin(), out.end(), at) != out.end())
        refuse(Errc::kInvalidArgument, std::string(function) + ": axis " + std::to_string(axis) + " twice",
               a);
      out.push_back(at);
    }
  return out;
}
inline std::int64_t extent(const Array& a, int axis) { return a.shape()[static_cast<std::size_t>(axis)]; }

// Integers as int64. What does not fit is the largest one: out of bounds as it was, and not wrapped to a negative index.
inline Array as_positions(const Array& indices) {
  const bool wide = indices.dtype() == DType::kUInt64;
  return (wide ? minimum(indices, std::numeric_limits<std::int64_t>::max()) : indices).astype(DType::kInt64);
}

inline void check_addable(const Array& a, const char* function) {
  if (a.dtype() == DType::kBool)
    refuse(Errc::kInvalidArgument, std::string(function) + " of bool: cast to a number first", a);
}

// kInvalidArgument unless the mask is bool, kShapeMismatch unless it has the shape of x, or that of its first dimensions, or none.
inline void check_mask(const Array& x, const Array& mask) {
  if (mask.dtype() != DType::kBool)
    refuse(Errc::kInvalidArgument, "a mask of dtype " + std::string(name_of(mask.dtype())), x);
  bool fits = mask.rank() <= x.rank();
  for (int d = 0; fits && d < mask.rank(); ++d) fits = extent(mask, d) == extent(x, d);
  if (!fits) refuse(Errc::kShapeMismatch, "a mask of shape " + ir::to_string(mask.shape()), x);
}

}  // namespace tilewise::client
