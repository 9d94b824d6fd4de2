#include "lowering.h"

#include <algorithm>

namespace tilewise::ir {

Result<std::vector<Op>> Lowering::run() {
  switch (op_.kind) {
    case OpKind::kMap:
    case OpKind::kWriteNpy: TW_TRY(elementwise()); break;
    case OpKind::kReduce: TW_TRY(reduce()); break;
    case OpKind::kMatmul: TW_TRY(matmul()); break;
    case OpKind::kCopy: TW_TRY(copy()); break;
    case OpKind::kReshape: TW_TRY(reshape()); break;
    case OpKind::kCall: TW_TRY(call()); break;
    case OpKind::kScan: TW_TRY(scan()); break;
    case OpKind::kReadNpy:
    case OpKind::kFetch:
    case OpKind::kKeep:
    case OpKind::kProvide:
    case OpKind::kReduceBlocks:
    case OpKind::kCombine:
    case OpKind::kMatmulPanels: out_.push_back(op_); break;
  }
  return std::move(out_);
}

Status Lowering::gather(std::size_t i, const std::vector<DimGrid>& space, const std::vector<DimGrid>& cuts,
                        const OperandMap& windows) {
  Operand& operand = op_.operands[i];
  View kept = operand.view, shown;
  std::vector<DimGrid> from, to;
  OperandMap map;
  for (int d = 0; d < operand.view.rank(); ++d) {
    shown.shape.push_back(cuts[d].extent());
    if (!operand.view.source_of(d)) continue;
    const auto at = static_cast<std::int8_t>(from.size());
    map.push_back({DimMap::Kind::kSpan, at, 1, 1, windows[d].before, windows[d].after});
    shown.source.push_back({static_cast<std::int8_t>(d), 0, 1});
    from.push_back(space[d]);
    to.push_back(cuts[d]);
  }
  for (int d = operand.view.rank() - 1; d >= 0; --d) {
    if (operand.view.source_of(d)) continue;
    kept.shape.erase(kept.shape.begin() + d);
    for (SourceDim& s : kept.source)
      if (s.dim > d) s.dim = static_cast<std::int8_t>(s.dim - 1);
  }
  // The same operand gathered the same way: once.
  Op op = part(OpKind::kCopy, CopyAttrs{{map}}, Grid(std::move(from)));
  op.operands = {{operand.array, kept}};
  const Grid grid(std::move(to));
  TW_TRY(grid.verify());
  for (const Op& done : out_)
    if (done.kind == OpKind::kCopy && done.attrs == op.attrs && done.operands == op.operands &&
        done.space == op.space && done.outputs[0].grid == grid) {
      op.outputs = done.outputs;
      break;
    }
  const bool fresh = op.outputs.empty();
  if (fresh) op.outputs = {{new_array_(), sources_[i].dtype, grid}};
  operand = {op.outputs[0].array, shown};
  sources_[i].grid = grid;
  if (fresh) out_.push_back(std::move(op));
  return {};
}

Status Lowering::gather(std::size_t i, const std::vector<DimGrid>& cuts) {
  return gather(i, cuts, cuts, OperandMap(cuts.size(), DimMap{}));
}

Status Lowering::align() {
  for (std::size_t i = 0; i < op_.operands.size(); ++i)
    if (!aligned(op_.operands[i].view, sources_[i].grid, op_.space)) TW_TRY(gather(i, op_.space.dims()));
  return {};
}

Status Lowering::elementwise() {
  TW_TRY(align());
  out_.push_back(std::move(op_));
  return {};
}

Status Lowering::fill(std::int64_t value) {
  for (OutputSpec& out : op_.outputs) {
    Tape tape{{{TapeOp::kConst, out.dtype}}};
    if (is_floating(out.dtype) || is_complex(out.dtype)) {
      tape.code[0].imm_f = static_cast<double>(value);
    } else {
      tape.code[0].imm_i = value;
    }
    Op op = part(OpKind::kMap, MapAttrs{std::move(tape)}, out.grid);
    op.outputs.push_back(std::move(out));
    out_.push_back(std::move(op));
  }
  return {};
}

Status Lowering::moments_of_elements(const Tape& tape) {
  TW_TRY(align());
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
    Tape code = tape;  // the sum is the element, what it is off the mean 0, or NaN
    const auto last = static_cast<std::uint16_t>(tape.code.size() - 1);
    if (i == 0) {
      code.code.push_back({.op = TapeOp::kSub, .dtype = tape.result(), .a = last, .b = last});
      if (tape.result() != DType::kFloat64)
        code.code.push_back(
            {.op = TapeOp::kCast, .dtype = DType::kFloat64, .a = static_cast<std::uint16_t>(last + 1)});
    }
    Op op = part(OpKind::kMap, MapAttrs{std::move(code)}, op_.outputs[i].grid);
    op.operands = op_.operands;
    op.outputs = {op_.outputs[i]};
    out_.push_back(std::move(op));
  }
  return {};
}

Status Lowering::reduce() {
  const auto a = op_.get<ReduceAttrs>();
  if (op_.space.block_count() == 0) return fill(a.kind == ReduceKind::kProd || a.kind == ReduceKind::kAll);
  if (a.axes == 0) {
    if (is_arg(a.kind)) return fill(0);
    if (a.kind == ReduceKind::kMoments) return moments_of_elements(a.tape);
    op_.kind = OpKind::kMap;
    op_.attrs = MapAttrs{a.tape};
    op_.space = op_.outputs[0].grid;
    return elementwise();
  }
  TW_TRY(align());
  std::vector<DimGrid> dims = op_.space.dims();
  Shape partial = op_.space.max_block_shape();
  for (int d = 0; d < op_.space.rank(); ++d)
    if (a.axes >> d & 1u) partial[d] = 1;
  // By the value alone, so that a sum has the bits of the one that comes with moments of the same values.
  const std::int64_t fan_in = fan_in_of(volume(partial), a.tape.result());
  std::vector<int> levels;  // the axis of each kCombine
  for (int d = 0; d < op_.space.rank(); ++d) {
    if (!(a.axes >> d & 1u)) continue;
    for (std::int64_t n = dims[d].count(); n > 1; n = ceil_div(n, fan_in)) levels.push_back(d);
    dims[d] = *DimGrid::uniform(dims[d].count(), 1);
  }
  Op blocks = part(OpKind::kReduceBlocks, a, op_.space);
  blocks.operands = op_.operands;
  const std::vector<DType> dtypes = part_dtypes(a.kind, a.tape.result());
  blocks.outputs = partials(dtypes, Grid(dims), levels.empty());
  out_.push_back(std::move(blocks));
  combine(a.kind, levels, std::move(dims), dtypes, true, fan_in);
  return {};
}

std::vector<OutputSpec> Lowering::partials(const std::vector<DType>& dtypes, const Grid& grid, bool last) {
  std::vector<OutputSpec> specs;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    const bool answer = last && i + 1 == dtypes.size();
    const bool sum = last && i == kMomentSum && op_.outputs.size() > 1;
    specs.push_back({answer || sum ? op_.outputs[sum ? 1 : 0].array : new_array_(), dtypes[i], grid});
  }
  return specs;
}

void Lowering::combine(ReduceKind kind, const std::vector<int>& levels, std::vector<DimGrid> dims,
                       const std::vector<DType>& dtypes, bool last_is_answer, std::int64_t fan_in) {
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const int axis = levels[level];
    const Grid from(dims);
    dims[axis] = *DimGrid::uniform(ceil_div(dims[axis].extent(), fan_in), 1);
    Op op = part(OpKind::kCombine, CombineAttrs{kind, static_cast<std::int8_t>(axis), fan_in}, Grid(dims));
    for (const OutputSpec& in : out_.back().outputs)
      op.operands.push_back({in.array, View::identity(from.shape())});
    op.outputs = partials(dtypes, op.space, last_is_answer && level + 1 == levels.size());
    out_.push_back(std::move(op));
  }
}

Op Lowering::recut(const Operand& from, const OutputSpec& to) const {
  Op op = part(OpKind::kCopy, {}, to.grid);
  OperandMap map;
  for (int d = 0; d < to.grid.rank(); ++d) map.push_back({DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
  op.attrs = CopyAttrs{{map}};
  op.operands = {from};
  op.outputs = {to};
  return op;
}

Status Lowering::scan() {
  TW_TRY(align());
  const ScanAttrs a = op_.get<ScanAttrs>();
  scan_blocks(a, op_.operands[0], op_.outputs[0]);
  return {};
}

void Lowering::scan_blocks(const ScanAttrs& a, const Operand& from, const OutputSpec& out) {
  const Grid& space = out.grid;
  const auto axis = static_cast<std::size_t>(a.axis);
  const std::int64_t blocks = space.dims()[axis].count();
  Op scan = part(OpKind::kScan, a, space);
  scan.operands = {from};
  scan.outputs = {out};
  if (blocks > 1 && space.block_count() > 0) {
    // What precedes each block is the exclusive scan of the blocks' totals, which are put side by side for it: as many as
    // make a block. Where that is not all of them the same is done once more.
    std::vector<DimGrid> dims = space.dims();
    dims[axis] = *DimGrid::uniform(blocks, 1);
    const Grid singles(dims);
    Shape line = space.max_block_shape();
    line[axis] = 1;
    const std::int64_t line_bytes = volume(line) * static_cast<std::int64_t>(size_of(out.dtype));
    dims[axis] = *DimGrid::uniform(
        blocks, std::clamp<std::int64_t>(kDefaultBlockBytes / line_bytes, kFanIn, limits::kMaxExplicitCuts));
    const Grid together(std::move(dims));
    Op totals = part(OpKind::kScan, ScanAttrs{a.kind, a.axis, ScanMode::kTotal}, space);
    totals.operands = {from};
    totals.outputs = {{new_array_(), out.dtype, singles}};
    const OutputSpec joined{new_array_(), out.dtype, together}, carry{new_array_(), out.dtype, together},
        before{new_array_(), out.dtype, singles};
    const View all = View::identity(singles.shape());
    const std::uint64_t parts = totals.outputs[0].array;
    out_.push_back(std::move(totals));
    out_.push_back(recut({parts, all}, joined));
    scan_blocks({a.kind, a.axis, ScanMode::kExclusive}, {joined.array, all}, carry);
    out_.push_back(recut({carry.array, all}, before));
    scan.operands.push_back({before.array, all});
  }
  out_.push_back(std::move(scan));
}

Result<std::vector<Op>> lower(const Op& op, std::span<const SourceArray> sources, const NewArray& new_array) {
  return Lowering(op, sources, new_array).run();
}

}  // namespace tilewise::ir
