// Inference of elementwise ops, files, calls and fetches, and the cuts of results.
#include "infer_common.h"

#include <algorithm>

namespace tilewise::ir {

Operand operand_of(const Source& s) { return {s.array, s.view}; }

Result<int> normal_axis(int axis, int rank, const Shape& shape) {
  const int a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank)
    return error(Errc::kOutOfRange,
                 "axis " + std::to_string(axis) + " of an array of shape " + to_string(shape));
  return a;
}

Result<Inferred> inferred(Op op, std::span<const Source> operands) {
  std::vector<SourceArray> sources;
  for (const Source& s : operands) sources.push_back({s.dtype, s.grid});
  TW_TRY(verify(op, sources, Stage::kSubmitted));
  Inferred r;
  if (!op.outputs.empty()) {
    r.dtype = op.outputs[0].dtype;
    r.view = View::identity(op.outputs[0].grid.shape());
  }
  r.op = std::move(op);
  return r;
}

Result<Grid> result_grid(std::span<const Source> operands, const Shape& shape, std::size_t element_bytes) {
  TW_ASSIGN(const Grid standard, Grid::by_default(shape, element_bytes));
  const int rank = static_cast<int>(shape.size());
  // A column in the default's cuts must not decide those of a matrix that is added to it.
  const auto whole = [&](const Source& s) {
    bool all = s.shape() == shape;
    for (int d = 0; all && d < rank; ++d) all = shape[d] <= 1 || s.view.source_of(d);
    return all;
  };
  if (const auto at = std::find_if(operands.begin(), operands.end(), whole); at != operands.end())
    operands = operands.subspan(static_cast<std::size_t>(at - operands.begin()), 1);
  std::vector<DimGrid> dims;
  const Source* last = nullptr;  // whose cuts were taken; null: the default's
  bool any = false, mixed = false;
  for (int d = 0; d < rank; ++d) {
    const Source* from = nullptr;
    int at = 0;
    for (const Source& s : operands) {
      at = d - (rank - s.view.rank());
      if (shape[d] > 1 && at >= 0 && s.view.shape[at] == shape[d] && s.view.source_of(at)) {
        from = &s;
        break;
      }
    }
    dims.push_back(from != nullptr ? Walk::of(from->view, from->grid, at).cuts_or_similar()
                                   : standard.dim(d));
    if (shape[d] <= 1) continue;
    mixed |= any && from != last;
    any = true;
    last = from;
  }
  Grid grid(std::move(dims));
  if (mixed) {
    // An outer product of two long vectors must not take blocks of both their lengths.
    std::int64_t most = kDefaultBlockBytes / static_cast<std::int64_t>(element_bytes);
    for (const Source& s : operands) most = std::max(most, volume(s.grid.max_block_shape()));
    const Result<std::int64_t> block = checked_volume(grid.max_block_shape());
    if (!block || *block > most || !grid.verify()) return standard;
  }
  TW_TRY(grid.verify());
  return grid;
}

Result<Inferred> infer_map(std::span<const Source> operands, const BuildTape& build) {
  Shape shape;
  std::vector<Source> distinct;
  std::vector<std::size_t> which;
  for (const Source& s : operands) {
    TW_ASSIGN(shape, broadcast(shape, s.shape()));
    std::size_t i = 0;
    while (i < distinct.size() && !(distinct[i].array == s.array && distinct[i].view == s.view)) ++i;
    if (i == distinct.size()) distinct.push_back(s);
    which.push_back(i);
  }
  if (distinct.empty()) return error(Errc::kInvalidArgument, "a map needs operands to take its shape from");
  TapeBuilder builder;
  std::vector<TapeValue> loads;
  for (const std::size_t i : which) loads.push_back(builder.load(static_cast<int>(i), distinct[i].dtype));
  TW_ASSIGN(Tape tape, builder.finish(build(builder, loads)));

  Op op;
  op.kind = OpKind::kMap;
  TW_ASSIGN(op.space, result_grid(operands, shape, size_of(tape.result())));
  op.outputs = {{0, tape.result(), op.space}};
  // Operands that the tape does not load (isnan of integers) would only be moved about.
  std::vector<Source> used;
  std::vector<int> renamed(distinct.size(), -1);
  for (TapeInstr& in : tape.code) {
    if (in.op != TapeOp::kLoad) continue;
    const auto i = static_cast<std::size_t>(in.imm_i);
    if (renamed[i] < 0) {
      renamed[i] = static_cast<int>(used.size());
      used.push_back(distinct[i]);
      TW_ASSIGN(View view, distinct[i].view.broadcast_to(shape));
      op.operands.push_back({distinct[i].array, std::move(view)});
    }
    in.imm_i = renamed[i];
  }
  op.attrs = MapAttrs{std::move(tape)};
  return inferred(std::move(op), used);
}

Result<Inferred> infer_generate(const Shape& shape, const std::optional<Grid>& grid, const BuildTape& build) {
  TapeBuilder builder;
  TW_ASSIGN(Tape tape, builder.finish(build(builder, {})));
  Op op;
  op.kind = OpKind::kMap;
  if (grid) {
    if (grid->shape() != shape)
      return error(Errc::kShapeMismatch,
                   "a grid over " + to_string(grid->shape()) + " for an array of shape " + to_string(shape));
    op.space = *grid;
  } else {
    TW_ASSIGN(op.space, Grid::by_default(shape, size_of(tape.result())));
  }
  op.outputs = {{0, tape.result(), op.space}};
  op.attrs = MapAttrs{std::move(tape)};
  return inferred(std::move(op), {});
}

Result<Inferred> infer_cast(const Source& a, DType to) {
  if (a.dtype == to) return Inferred{std::nullopt, to, a.view};
  return infer_map({&a, 1}, [to](TapeBuilder& b, std::span<const TapeValue> v) { return b.cast(v[0], to); });
}

Result<Inferred> infer_read_npy(std::string path, DType dtype, const Shape& shape, std::int64_t data_offset,
                                bool fortran_order, const std::optional<Grid>& grid, const FileStamp& stamp) {
  Op op;
  op.kind = OpKind::kReadNpy;
  op.attrs = NpyAttrs{std::move(path), data_offset, fortran_order, 0, stamp};
  if (grid && grid->shape() != shape)
    return error(Errc::kShapeMismatch,
                 "a grid over " + to_string(grid->shape()) + " for a file of shape " + to_string(shape));
  TW_ASSIGN(op.space, grid ? Result<Grid>(*grid) : Grid::by_default(shape, size_of(dtype)));
  op.outputs = {{0, dtype, op.space}};
  return inferred(std::move(op), {});
}

Result<Inferred> infer_write_npy(const Source& a, const Source& begun, std::string path,
                                 std::uint64_t token) {
  Op op;
  op.kind = OpKind::kWriteNpy;
  op.attrs = NpyAttrs{std::move(path), 0, false, token};
  op.operands = {operand_of(a), {begun.array, View{a.shape(), {{-1, 0, 1}}}}};  // the one number, everywhere
  TW_ASSIGN(op.space, result_grid({&a, 1}, a.shape(), size_of(a.dtype)));
  std::vector<DimGrid> dims;
  for (const DimGrid& d : op.space.dims()) dims.push_back(*DimGrid::uniform(d.count(), 1));
  op.outputs = {{0, DType::kInt64, Grid(std::move(dims))}};
  const Source used[] = {a, begun};
  return inferred(std::move(op), used);
}

Result<Inferred> infer_call(std::span<const Source> operands, CallAttrs attrs, const Grid& space,
                            std::vector<OutputSpec> outputs) {
  Op op;
  op.kind = OpKind::kCall;
  op.attrs = std::move(attrs);
  op.space = space;
  op.outputs = std::move(outputs);
  for (OutputSpec& out : op.outputs) out.array = 0;
  for (const Source& s : operands) op.operands.push_back(operand_of(s));
  return inferred(std::move(op), operands);
}

Result<Inferred> infer_fetch(const Source& a) {
  Op op;
  op.kind = OpKind::kFetch;
  op.attrs = FetchAttrs{};
  op.operands = {operand_of(a)};
  op.space = a.grid;
  return inferred(std::move(op), {&a, 1});
}

Result<Inferred> infer_copy(const Source& a) {
  Op op;
  op.kind = OpKind::kCopy;
  op.operands = {operand_of(a)};
  TW_ASSIGN(op.space, result_grid({&a, 1}, a.shape(), size_of(a.dtype)));
  op.outputs = {{0, a.dtype, op.space}};
  OperandMap map;
  for (int d = 0; d < op.space.rank(); ++d) map.push_back({DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
  op.attrs = CopyAttrs{{map}};
  return inferred(std::move(op), {&a, 1});
}

Result<Inferred> infer_provide(DType dtype, const Grid& grid) {
  Op op;
  op.kind = OpKind::kProvide;
  op.attrs = FetchAttrs{};
  op.space = grid;
  op.outputs = {{0, dtype, grid}};
  return inferred(std::move(op), {});
}

}  // namespace tilewise::ir
