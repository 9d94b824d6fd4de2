// Inference of reductions, products, and what moves elements about.
#include "infer_common.h"

#include <tilewise/ir/runs.h>

#include <algorithm>

namespace tilewise::ir {
namespace {

// What is reduced: the operand as the reduction's dtype.
Tape reduction_tape(DType from, DType to) {
  Tape tape{{{TapeOp::kLoad, from}}};
  if (from != to) tape.code.push_back({TapeOp::kCast, to, 0});
  return tape;
}

DType reduced_as(ReduceKind kind, DType t) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProd:
      if (is_unsigned_integer(t)) return DType::kUInt64;
      return is_floating(t) || is_complex(t) ? compute_dtype(t) : DType::kInt64;
    case ReduceKind::kAny:
    case ReduceKind::kAll: return DType::kBool;
    case ReduceKind::kArgMin:
    case ReduceKind::kArgMax: return t == DType::kBool ? DType::kInt32 : compute_dtype(t);
    case ReduceKind::kMin:
    case ReduceKind::kMax: return compute_dtype(t);
    case ReduceKind::kMoments: return is_floating(t) ? compute_dtype(t) : DType::kFloat64;
  }
  return t;
}

Result<std::uint32_t> axis_mask(const Shape& shape, const std::optional<std::vector<int>>& axes) {
  const int rank = static_cast<int>(shape.size());
  if (!axes) return (1u << rank) - 1;
  std::uint32_t mask = 0;
  for (const int axis : *axes) {
    TW_ASSIGN(const int a, normal_axis(axis, rank, shape));
    if (mask >> a & 1u) return error(Errc::kInvalidArgument, "axis " + std::to_string(axis) + " twice");
    mask |= 1u << a;
  }
  return mask;
}

// Extents other than one, in order.
std::vector<std::int64_t> essence(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> s;
  for (const std::int64_t e : shape)
    if (e != 1) s.push_back(e);
  return s;
}

// The view with extents of one removed and inserted where `to` has them. essence() of both is equal.
Result<View> with_ones(View view, const Shape& to) {
  for (int d = view.rank() - 1; d >= 0; --d)
    if (view.shape[d] == 1) {
      TW_ASSIGN(view, view.squeeze(d));
    }
  for (std::size_t d = 0; d < to.size(); ++d)
    if (to[d] == 1) {
      TW_ASSIGN(view, view.expand_dims(static_cast<int>(d)));
    }
  return view;
}

Result<Shape> reshaped(const Shape& from, std::span<const std::int64_t> to) {
  const auto text = [&] {
    std::string s = to_string(from) + " to (";
    for (std::size_t d = 0; d < to.size(); ++d) s += (d ? ", " : "") + std::to_string(to[d]);
    return s + ")";
  };
  if (to.size() > static_cast<std::size_t>(limits::kMaxRank))
    return error(Errc::kLimitExceeded,
                 "reshape: more than " + std::to_string(limits::kMaxRank) + " dimensions");
  Shape shape(to.begin(), to.end()), known;
  int open = -1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != -1) {
      known.push_back(shape[d]);
    } else if (open >= 0) {
      return error(Errc::kInvalidArgument, "reshape: only one extent may be -1: " + text());
    } else {
      open = static_cast<int>(d);
    }
  }
  TW_ASSIGN(const std::int64_t fixed, checked_volume(known));
  TW_ASSIGN(const std::int64_t total, checked_volume(from));
  if (open >= 0) {
    if (fixed == 0 || total % fixed != 0)
      return error(Errc::kShapeMismatch, "reshape: no extent for -1 fits: " + text());
    shape[open] = total / fixed;
  } else if (fixed != total) {
    return error(Errc::kShapeMismatch, "reshape: " + text() + " changes the number of elements");
  }
  return shape;
}

// Runs of about a block of what is reshaped; where the first dimension stays and is the only one cut, its own cuts.
Grid reshaped_grid(const Source& a, const Shape& to) {
  Grid grid = run_grid(to, run_elements(a.view, a.grid, size_of(a.dtype)));
  const Shape from = a.shape();
  bool rows = !to.empty() && !from.empty() && to[0] == from[0] && a.view.source_of(0);
  for (int d = 1; rows && d < a.view.rank(); ++d) rows = Walk::of(a.view, a.grid, d).count() <= 1;
  if (!rows) return grid;
  const int s = *a.view.source_of(0);
  const std::int64_t step = a.view.source[s].step;
  std::optional<DimGrid> cuts;
  if (step == 1 || step == -1) cuts = Walk::of(a.view, a.grid, 0).cuts();
  if (!cuts) return grid;
  std::vector<DimGrid> dims{*std::move(cuts)};
  for (std::size_t d = 1; d < to.size(); ++d) dims.push_back(DimGrid::whole(to[d]));
  return Grid(std::move(dims));
}

Op copy_op(const Source& a, const Grid& grid) {
  Op op;
  op.kind = OpKind::kCopy;
  op.operands = {operand_of(a)};
  op.space = grid;
  op.outputs = {{0, a.dtype, grid}};
  OperandMap map;
  for (int d = 0; d < grid.rank(); ++d) map.push_back({DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
  op.attrs = CopyAttrs{{map}};
  return op;
}

// Cuts of a concatenation along its axis: those of each operand, side by side, or nothing past the limit. Neighbours become one
// block while they are not larger than the largest of all, so that an array which grows by a row a step, or has its edges
// put on and cut off again, does not end in blocks of one row.
std::optional<DimGrid> joined_cuts(std::span<const Source> operands, int axis, std::int64_t shared) {
  std::vector<DimGrid> cuts;
  std::int64_t most = 0, count = 0;
  bool cut = false, single = false;
  for (const Source& s : operands) {
    std::optional<DimGrid> own = Walk::of(s.view, s.grid, axis).cuts();
    if (!own) return std::nullopt;
    count += own->count();
    cut |= own->count() > 1;
    single |= own->extent() == 1;
    most = std::max(most, own->max_size());
    cuts.push_back(std::move(*own));
  }
  if (count > limits::kMaxExplicitCuts) return std::nullopt;
  if (!cut && single) most = std::max(most, shared);  // a row is no block that somebody chose
  std::vector<std::int64_t> starts;
  std::int64_t at = 0;
  for (const DimGrid& own : cuts) {
    for (std::int64_t i = 0; i < own.count(); ++i)
      if (starts.empty() || at + own.end(i) - starts.back() > most) starts.push_back(at + own.begin(i));
    at += own.extent();
  }
  Result<DimGrid> grid = DimGrid::cuts(at, std::move(starts));
  return grid ? std::optional(std::move(*grid)) : std::nullopt;
}

}  // namespace

Result<Inferred> infer_reduce(const Source& a, ReduceKind kind, const std::optional<std::vector<int>>& axes,
                              bool keepdims) {
  TW_ASSIGN(const std::uint32_t mask, axis_mask(a.shape(), axes));
  const int rank = a.view.rank();
  const std::uint32_t all = (1u << rank) - 1;
  if (is_arg(kind) && mask != all && (mask == 0 || (mask & (mask - 1)) != 0))
    return error(Errc::kInvalidArgument, std::string(name_of(kind)) + " takes one axis, or all");
  const bool any_all = kind == ReduceKind::kAny || kind == ReduceKind::kAll;
  const bool of_nothing =
      any_all || kind == ReduceKind::kSum || kind == ReduceKind::kProd || kind == ReduceKind::kMoments;
  if (!of_nothing)
    for (int d = 0; d < rank; ++d)
      if ((mask >> d & 1u) && a.shape()[d] == 0)
        return error(Errc::kInvalidArgument, std::string(name_of(kind)) + " over axis " + std::to_string(d) +
                                                 " of shape " + to_string(a.shape()) + ": nothing has no " +
                                                 std::string(name_of(kind)));
  if (is_complex(a.dtype) && kind == ReduceKind::kMoments)
    return error(Errc::kInvalidArgument, "variance of " + std::string(name_of(a.dtype)) +
                                             ": it is of real numbers; take real and imaginary parts");
  if (is_complex(a.dtype) && !any_all && kind != ReduceKind::kSum && kind != ReduceKind::kProd)
    return error(Errc::kInvalidArgument, std::string(name_of(kind)) + " of " + std::string(name_of(a.dtype)) +
                                             ": complex numbers have no order");
  if (a.dtype == DType::kBool && kind == ReduceKind::kMin) kind = ReduceKind::kAll;
  if (a.dtype == DType::kBool && kind == ReduceKind::kMax) kind = ReduceKind::kAny;

  Op op;
  op.kind = OpKind::kReduce;
  op.operands = {operand_of(a)};
  TW_ASSIGN(op.space, result_grid({&a, 1}, a.shape(), size_of(a.dtype)));
  const Tape tape = reduction_tape(a.dtype, reduced_as(kind, a.dtype));
  op.attrs = ReduceAttrs{tape, kind, mask};
  std::vector<DimGrid> dims;
  for (int d = 0; d < rank; ++d) dims.push_back(mask >> d & 1u ? DimGrid::whole(1) : op.space.dim(d));
  op.outputs = {{0, *reduced_dtype(kind, tape.result()), Grid(std::move(dims))}};
  TW_ASSIGN(Inferred r, inferred(std::move(op), {&a, 1}));
  for (int d = rank - 1; d >= 0 && !keepdims; --d)
    if (mask >> d & 1u) {
      TW_ASSIGN(r.view, r.view.squeeze(d));
    }
  return r;
}

Result<Inferred> infer_scan(const Source& a, ReduceKind kind, int axis) {
  TW_ASSIGN(axis, normal_axis(axis, a.view.rank(), a.shape()));
  Op op;
  op.kind = OpKind::kScan;
  op.operands = {operand_of(a)};
  TW_ASSIGN(op.space, result_grid({&a, 1}, a.shape(), size_of(a.dtype)));
  op.attrs = ScanAttrs{kind, static_cast<std::int8_t>(axis), ScanMode::kInclusive};
  op.outputs = {{0, a.dtype, op.space}};
  return inferred(std::move(op), {&a, 1});
}

Result<Inferred> infer_matmul(const Source& a, const Source& b, std::int64_t k_parts, bool tf32) {
  const std::string shapes = to_string(a.shape()) + " x " + to_string(b.shape());
  for (const Source* s : {&a, &b})
    if (s->view.rank() == 0)
      return error(Errc::kShapeMismatch, "matmul: " + shapes + ": a scalar has no rows or columns");
  if (a.dtype != b.dtype)
    return error(Errc::kShapeMismatch, "matmul: " + std::string(name_of(a.dtype)) + " x " +
                                           std::string(name_of(b.dtype)) + ": cast to one dtype first");
  if (!multiplies(a.dtype))
    return error(
        Errc::kShapeMismatch,
        "matmul: of " + std::string(name_of(a.dtype)) +
            ": cast to a dtype that is multiplied first (int32, int64, float16, bfloat16, float32, float64, "
            "complex64, complex128)");
  if (tf32 && a.dtype != DType::kFloat32)
    return error(Errc::kInvalidArgument,
                 "matmul: tf32 is of float32, not of " + std::string(name_of(a.dtype)));
  Source x = a, y = b;
  if (a.view.rank() == 1) {
    TW_ASSIGN(x.view, a.view.expand_dims(0));
  }
  if (b.view.rank() == 1) {
    TW_ASSIGN(y.view, b.view.expand_dims(1));
  }
  const int x_stack = x.view.rank() - 2, y_stack = y.view.rank() - 2;
  const std::int64_t m = x.view.shape[x_stack], ka = x.view.shape[x_stack + 1], kb = y.view.shape[y_stack],
                     n = y.view.shape[y_stack + 1];
  if (ka != kb)
    return error(Errc::kShapeMismatch, "matmul: " + shapes + ": inner extents " + std::to_string(ka) +
                                           " and " + std::to_string(kb) + " differ");
  const auto stack_of = [](const View& v, int stack) {
    return Shape(v.shape.begin(), v.shape.begin() + stack);
  };
  const Result<Shape> stack = broadcast(stack_of(x.view, x_stack), stack_of(y.view, y_stack));
  if (!stack)
    return error(stack.error().code, "matmul: " + shapes + ": the stacks of matrices do not broadcast");
  if (k_parts < 0 || k_parts > kMaxKParts)
    return error(Errc::kInvalidArgument, "matmul: k in " + std::to_string(k_parts) +
                                             " parts; between 1 and " + std::to_string(kMaxKParts) +
                                             " can be asked for, 0 leaves it open");
  if (k_parts > 1 && !stack->empty())
    return error(Errc::kUnsupported, "matmul: " + shapes + ": stacks of matrices are not split along k");
  // Rows as the left operand sees them, columns as the right one: the rule for results, on what each contributes.
  Source sides[2] = {x, y};
  const auto without = [&](Source& side, int d) -> Status {
    if (ka == 0) {  // nothing to take cuts from
      side.view.shape[d] = 1;
      side.view.source.clear();
      side.grid = Grid();
      return {};
    }
    TW_ASSIGN(const View rest, side.view.at(d, 0));
    TW_ASSIGN(side.view, rest.expand_dims(d));
    return {};
  };
  TW_TRY(without(sides[0], x_stack + 1));
  TW_TRY(without(sides[1], y_stack));
  const auto with = [&](std::int64_t rows, std::int64_t columns) {
    Shape shape = *stack;
    shape.push_back(rows);
    shape.push_back(columns);
    return shape;
  };
  Op op;
  op.kind = OpKind::kMatmul;
  op.attrs = MatmulAttrs{k_parts, tf32};
  const DType product = product_dtype(a.dtype);
  TW_ASSIGN(op.space, result_grid(sides, with(m, n), size_of(product)));
  TW_ASSIGN(x.view, x.view.broadcast_to(with(m, ka)));
  TW_ASSIGN(y.view, y.view.broadcast_to(with(ka, n)));
  op.operands = {operand_of(x), operand_of(y)};
  op.outputs = {{0, product, op.space}};
  const Source operands[] = {x, y};
  TW_ASSIGN(Inferred r, inferred(std::move(op), operands));
  if (b.view.rank() == 1) {
    TW_ASSIGN(r.view, r.view.squeeze(r.view.rank() - 1));
  }
  if (a.view.rank() == 1) {
    TW_ASSIGN(r.view, r.view.squeeze(r.view.rank() - (b.view.rank() == 1 ? 1 : 2)));
  }
  return r;
}

Result<Inferred> infer_concat(std::span<const Source> operands, int axis) {
  if (operands.empty()) return error(Errc::kInvalidArgument, "concat: nothing to join");
  const Source& first = operands[0];
  const int rank = first.view.rank();
  if (rank == 0) return error(Errc::kShapeMismatch, "concat: scalars have no axis to join; use stack");
  TW_ASSIGN(axis, normal_axis(axis, rank, first.shape()));
  if (operands.size() == 1) return Inferred{std::nullopt, first.dtype, first.view};
  if (operands.size() > static_cast<std::size_t>(limits::kMaxOperands))
    return error(Errc::kLimitExceeded,
                 "concat: more than " + std::to_string(limits::kMaxOperands) + " arrays at once");
  Shape shape = first.shape();
  shape[axis] = 0;
  Op op;
  op.kind = OpKind::kCopy;
  CopyAttrs attrs;
  for (const Source& s : operands) {
    Shape other = s.shape();
    if (static_cast<int>(other.size()) == rank) other[axis] = shape[axis];
    if (other != shape || s.dtype != first.dtype)
      return error(Errc::kShapeMismatch, "concat along axis " + std::to_string(axis) + ": " +
                                             std::string(name_of(first.dtype)) + " " +
                                             to_string(first.shape()) + " and " +
                                             std::string(name_of(s.dtype)) + " " + to_string(s.shape()));
    OperandMap map;
    for (int d = 0; d < rank; ++d) map.push_back({DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
    map[axis].before = shape[axis];
    map[axis].after = -shape[axis];
    attrs.maps.push_back(map);
    op.operands.push_back(operand_of(s));
    if (__builtin_add_overflow(shape[axis], s.shape()[axis], &shape[axis]))
      return error(Errc::kOutOfRange, "concat: the joined extent passes 2^63 - 1");
  }
  TW_ASSIGN(const Grid standard, Grid::by_default(shape, size_of(first.dtype)));
  TW_ASSIGN(const Grid others, result_grid(operands.first(1), first.shape(), size_of(first.dtype)));
  std::vector<DimGrid> dims = others.dims();
  std::int64_t slice_bytes =
      static_cast<std::int64_t>(size_of(first.dtype));  // of a block, one element along the axis
  for (int d = 0; d < rank; ++d)
    if (d != axis) slice_bytes *= std::max<std::int64_t>(1, dims[static_cast<std::size_t>(d)].max_size());
  dims[static_cast<std::size_t>(axis)] =
      joined_cuts(operands, axis, kSharedBlockBytes / slice_bytes).value_or(standard.dim(axis));
  op.space = Grid(std::move(dims));
  op.outputs = {{0, first.dtype, op.space}};
  op.attrs = std::move(attrs);
  return inferred(std::move(op), operands);
}

Result<Inferred> infer_stack(std::span<const Source> operands, int axis) {
  if (operands.empty()) return error(Errc::kInvalidArgument, "stack: nothing to join");
  TW_ASSIGN(axis, normal_axis(axis, operands[0].view.rank() + 1, operands[0].shape()));
  std::vector<Source> expanded(operands.begin(), operands.end());
  for (Source& s : expanded) {
    if (s.shape() != operands[0].shape())
      return error(Errc::kShapeMismatch,
                   "stack: " + to_string(operands[0].shape()) + " and " + to_string(s.shape()));
    TW_ASSIGN(s.view, s.view.expand_dims(axis));
  }
  return infer_concat(expanded, axis);
}

Result<Inferred> infer_patch(const Source& a, const Box& box, const Source& value) {
  const int rank = a.view.rank();
  const bool inside = box.rank() == rank && intersect(box, box_of(a.shape())) == box;
  if (!inside || value.shape() != box.shape() || value.dtype != a.dtype)
    return error(Errc::kShapeMismatch, "a value of " + std::string(name_of(value.dtype)) + " " +
                                           to_string(value.shape()) + " for " + to_string(box) + " of " +
                                           std::string(name_of(a.dtype)) + " " + to_string(a.shape()));
  Op op;
  op.kind = OpKind::kCopy;
  CopyAttrs attrs;
  std::vector<Source> sources;
  const auto add = [&](Source part, const Index& at) {
    OperandMap map;
    for (int d = 0; d < rank; ++d)
      map.push_back({DimMap::Kind::kSpan, static_cast<std::int8_t>(d), 1, 1, at[d], -at[d]});
    attrs.maps.push_back(std::move(map));
    op.operands.push_back(operand_of(part));
    sources.push_back(std::move(part));
  };
  // Around the box: what lies before and behind it along each dimension, within the box along the ones before.
  Source rest = a;
  Index at(static_cast<std::size_t>(rank), 0);
  for (int d = 0; d < rank; ++d) {
    for (const bool before : {true, false}) {
      const std::int64_t from = before ? 0 : box.hi[d], to = before ? box.lo[d] : a.shape()[d];
      if (from >= to) continue;
      Source part = rest;
      TW_ASSIGN(part.view, rest.view.slice(d, from, to, 1));
      Index corner = at;
      corner[d] = from;
      if (volume(part.shape()) > 0) add(std::move(part), corner);
    }
    TW_ASSIGN(rest.view, rest.view.slice(d, box.lo[d], box.hi[d], 1));
    at[d] = box.lo[d];
  }
  if (volume(box.shape()) > 0) add(value, at);
  if (op.operands.empty()) return Inferred{std::nullopt, a.dtype, a.view};  // of nothing
  TW_ASSIGN(op.space, result_grid({&a, 1}, a.shape(), size_of(a.dtype)));
  op.outputs = {{0, a.dtype, op.space}};
  op.attrs = std::move(attrs);
  return inferred(std::move(op), sources);
}

Result<Inferred> infer_reshape(const Source& a, std::span<const std::int64_t> to) {
  TW_ASSIGN(const Shape shape, reshaped(a.shape(), to));
  if (shape == a.shape()) return Inferred{std::nullopt, a.dtype, a.view};
  if (essence(a.shape()) == essence(shape)) {
    TW_ASSIGN(View view, with_ones(a.view, shape));
    return Inferred{std::nullopt, a.dtype, std::move(view)};
  }
  Op op;
  op.kind = OpKind::kReshape;
  op.attrs = ReshapeAttrs{};
  op.operands = {operand_of(a)};
  op.space = reshaped_grid(a, shape);
  op.outputs = {{0, a.dtype, op.space}};
  return inferred(std::move(op), {&a, 1});
}

Result<Inferred> infer_reblock(const Source& a, const Grid& grid) {
  if (grid.shape() != a.shape())
    return error(Errc::kShapeMismatch, "reblock: a grid over " + to_string(grid.shape()) +
                                           " for an array of shape " + to_string(a.shape()));
  if (grid == a.grid && a.view.is_identity(a.grid.shape())) return Inferred{std::nullopt, a.dtype, a.view};
  return inferred(copy_op(a, grid), {&a, 1});
}

Result<Inferred> infer_materialise(const Source& a) {
  if (a.view.is_identity(a.grid.shape())) return Inferred{std::nullopt, a.dtype, a.view};
  TW_ASSIGN(const Grid grid, result_grid({&a, 1}, a.shape(), size_of(a.dtype)));
  return inferred(copy_op(a, grid), {&a, 1});
}

}  // namespace tilewise::ir
