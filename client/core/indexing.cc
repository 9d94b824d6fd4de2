// Indexing by arrays, and updates: shapes are known at once, what is read depends on data.
#include <tilewise/functions.h>

#include <algorithm>
#include <bit>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::axis_of;
using client::block_volume;
using client::extent;
using client::kDefaultBlockBytes;
using client::refuse;

// As int64; kInvalidArgument for what is no integer.
Array indices_of(const Array& indices, const char* function) {
  if (!is_integer(indices.dtype()))
    refuse(Errc::kInvalidArgument,
           std::string(function) + ": indices of dtype " + std::string(name_of(indices.dtype())), indices);
  return client::as_positions(indices);
}

// x's cuts with those of `along` in the axis' place, cut finer there, the first ones first, where blocks would be larger than both
// the default and x's own.
Grid replaced_axis(const Array& x, int axis, const Grid& along) {
  const Grid cuts = client::computed_cuts(x);
  const std::vector<ir::DimGrid>& own = cuts.dims();
  std::int64_t others = 1;
  for (int d = 0; d < x.rank(); ++d)
    if (d != axis) others *= std::max<std::int64_t>(1, own[static_cast<std::size_t>(d)].max_size());
  const std::int64_t most =
      std::max(kDefaultBlockBytes / static_cast<std::int64_t>(size_of(x.dtype())), block_volume(cuts));
  std::int64_t room = std::max<std::int64_t>(1, most / others);
  std::vector<ir::DimGrid> dims = along.dims();
  for (std::size_t d = dims.size(); d-- > 0;) {
    if (dims[d].max_size() > room)
      dims[d] = client::value_or_throw(ir::DimGrid::uniform(
          dims[d].extent(), static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(room)))));
    room = std::max<std::int64_t>(1, room / std::max<std::int64_t>(1, dims[d].max_size()));
  }
  dims.insert(dims.begin(), own.begin(), own.begin() + axis);
  dims.insert(dims.end(), own.begin() + axis + 1, own.end());
  Grid grid(std::move(dims));
  if (const Status good = grid.verify(); !good) throw ArrayError(good.error());
  return grid;
}

// A sweep of more steps puts the indices in order first, rather than look at all of them in each.
constexpr std::int64_t kFewSteps = 3;

// Blocks of one element along all dimensions but `axis`, as many as there are in the grid.
Grid one_a_line(const Grid& grid, int axis) {
  std::vector<ir::DimGrid> dims = grid.dims();
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (static_cast<int>(d) != axis)
      dims[d] = client::value_or_throw(ir::DimGrid::uniform(dims[d].count(), 1));
  return Grid(std::move(dims));
}

}  // namespace

Array take(const Array& x, const Array& indices, std::optional<int> axis) {
  if (!axis && x.rank() != 1) refuse(Errc::kInvalidArgument, "take wants an axis", x);
  const int along = axis_of(x, axis.value_or(0), "take");
  if (x.rank() - 1 + indices.rank() > limits::kMaxRank)
    refuse(Errc::kLimitExceeded,
           "take at indices of shape " + ir::to_string(indices.shape()) + ": more than " +
               std::to_string(limits::kMaxRank) + " dimensions",
           x);
  const Array index = indices_of(indices, "take");
  const Grid grid = replaced_axis(x, along, client::computed_cuts(index));
  const auto kernel = client::builtin_kernel(ir::builtin::Take{along, extent(x, along)},
                                             4.0 * static_cast<double>(block_volume(grid)));
  // Dimensions of the indices are the result's from the axis on; x's behind the axis are shifted.
  ir::OperandMap at, from = client::swept_map(x.rank(), along);
  for (int d = 0; d < index.rank(); ++d)
    at.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(along + d)});
  for (int d = along + 1; d < x.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    from[i].dim = static_cast<std::int8_t>(d - 1 + index.rank());
  }
  const Array arrays[] = {index, x};
  std::vector<OutputLike> outputs = {{x.dtype(), grid}};
  if (index.rank() == 1 && x.grid().dim(along).count() > kFewSteps)
    outputs.push_back({DType::kInt64, one_a_line(grid, along)});
  return map_blocks(kernel, arrays, {at, from}, outputs).front();
}

Array take_along_axis(const Array& x, const Array& indices, int axis) {
  const int along = axis_of(x, axis, "take_along_axis");
  if (indices.rank() != x.rank())
    refuse(Errc::kShapeMismatch,
           "take_along_axis wants indices of rank " + std::to_string(x.rank()) + ", not of shape " +
               ir::to_string(indices.shape()),
           x);
  // All but the axis broadcast against each other.
  Shape shape_x = x.shape(), shape_i = indices.shape();
  const auto at = static_cast<std::size_t>(along);
  shape_x[at] = shape_i[at] = 1;
  const Shape common = client::value_or_throw(ir::broadcast(shape_x, shape_i));
  shape_x = shape_i = common;
  shape_x[at] = x.shape()[at];
  shape_i[at] = indices.shape()[at];
  const Array from = x.broadcast_to(shape_x);
  const Array index = indices_of(indices, "take_along_axis").broadcast_to(shape_i);
  const Grid grid = replaced_axis(from, along, Grid({client::computed_cuts(index).dim(along)}));
  const auto kernel = client::builtin_kernel(ir::builtin::TakeAlong{along, extent(x, along)},
                                             4.0 * static_cast<double>(block_volume(grid)));
  const Array arrays[] = {index, from};
  return map_blocks(kernel, arrays, {client::span_map(x.rank()), client::swept_map(x.rank(), along)},
                    {{x.dtype(), grid}})
      .front();
}

namespace {

Array written(const Array& x, const Array& indices, const Array& values, std::optional<int> axis, bool add) {
  const std::string function = add ? "put_add" : "put";
  if (!axis && x.rank() != 1) refuse(Errc::kInvalidArgument, function + " wants an axis", x);
  const int along = axis_of(x, axis.value_or(0), function.c_str());
  if (indices.rank() != 1) refuse(Errc::kShapeMismatch, function + " wants a vector of indices", indices);
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(along)] = indices.size();
  const Array index = indices_of(indices, function.c_str());
  const Array value = values.astype(x.dtype()).broadcast_to(shape);
  const Grid grid = client::computed_cuts(x);
  const auto kernel = client::builtin_kernel(ir::builtin::Put{along, extent(x, along), add},
                                             4.0 * static_cast<double>(block_volume(grid)));
  const Array arrays[] = {x, index, value};
  return map_blocks(kernel, arrays,
                    {client::span_map(x.rank()), client::swept_map(1, 0), client::swept_map(x.rank(), along)},
                    {{x.dtype(), grid}})
      .front();
}

}  // namespace

Array put(const Array& x, const Array& indices, const Array& values, std::optional<int> axis) {
  return written(x, indices, values, axis, false);
}

Array put_add(const Array& x, const Array& indices, const Array& values, std::optional<int> axis) {
  client::check_addable(x, "put_add");
  if (ir::is_half(x.dtype()))
    return put_add(x.astype(DType::kFloat32), indices, values.astype(x.dtype()), axis).astype(x.dtype());
  return written(x, indices, values, axis, true);
}

Array set(const Array& x, const std::vector<Slice>& where, const Array& value) {
  std::vector<std::optional<Slice>> by_axis(static_cast<std::size_t>(x.rank()));
  Array shown = x;
  for (const Slice& s : where) {
    const int axis = axis_of(x, s.axis, "set");
    if (std::exchange(by_axis[static_cast<std::size_t>(axis)], s))
      refuse(Errc::kInvalidArgument, "set: axis " + std::to_string(s.axis) + " twice", x);
    shown = shown.slice(axis, s.start, s.stop, s.step);
  }
  const Array given = value.astype(x.dtype()).broadcast_to(shown.shape());
  // With steps of 1 the slice is a box. A longer step is put by index, into what the other slices leave.
  const Shape& extents = x.shape();
  for (int d = 0; d < x.rank(); ++d) {
    std::optional<Slice>& s = by_axis[static_cast<std::size_t>(d)];
    const std::int64_t count = extent(shown, d);
    if (!s || s->step == 1 || count == 0) continue;
    const ir::SourceDim walk =
        client::value_or_throw(
            ir::View::identity({extents[static_cast<std::size_t>(d)]}).slice(0, s->start, s->stop, s->step))
            .source[0];
    const Array indices = Access::record(
        Access::state(x), nullptr, ir::infer_generate({count}, std::nullopt, [&](ir::TapeBuilder& t, auto) {
          return t.binary(ir::TapeOp::kAdd, t.binary(ir::TapeOp::kMul, t.iota(0), ir::Scalar(walk.step)),
                          ir::Scalar(walk.start));
        }));
    std::vector<Slice> others;
    for (const Slice& o : where)
      if (axis_of(x, o.axis, "set") != d) others.push_back(o);
    const Array inside = others.empty() ? given : set(x.slice(d, s->start, s->stop, s->step), others, given);
    return put(x, indices, inside, d);
  }
  ir::Box box = ir::box_of(extents);
  for (int d = 0; d < x.rank(); ++d) {
    const std::optional<Slice>& s = by_axis[static_cast<std::size_t>(d)];
    if (!s) continue;
    const auto at = static_cast<std::size_t>(d);
    const ir::View view =
        client::value_or_throw(ir::View::identity({extents[at]}).slice(0, s->start, s->stop, s->step));
    box.lo[at] = view.shape[0] == 0 ? 0 : view.source[0].start;
    box.hi[at] = box.lo[at] + view.shape[0];
  }
  return Access::record(x,
                        ir::infer_patch(Access::source(x), box, Access::sources(std::vector{x, given})[1]));
}

Array searchsorted(const Array& x1, const Array& x2, std::string_view side, const Array& sorter) {
  if (side != "left" && side != "right")
    refuse(Errc::kInvalidArgument, "searchsorted on side '" + std::string(side) + "', not left or right", x2);
  if (x1.rank() != 1) refuse(Errc::kShapeMismatch, "searchsorted wants a sorted vector", x1);
  if (sorter.valid()) return searchsorted(take(x1, sorter), x2, side);
  DType common = ir::common_dtype(x1.dtype(), x2.dtype());
  if (is_complex(common)) refuse(Errc::kInvalidArgument, "searchsorted: complex numbers have no order", x2);
  if (ir::is_half(common)) common = DType::kFloat32;
  const Array arrays[] = {x2.astype(common), x1.astype(common)};
  const Grid grid = client::computed_cuts(x2);
  const auto kernel = client::builtin_kernel(ir::builtin::SearchSorted{side == "right"},
                                             64.0 * static_cast<double>(block_volume(grid)));
  return map_blocks(kernel, arrays, {client::span_map(x2.rank()), client::swept_map(1, 0)},
                    {{DType::kInt64, grid}})
      .front();
}

}  // namespace tilewise
