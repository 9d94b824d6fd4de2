#include <tilewise/ir/lower.h>

#include "alignment.h"
#include "infer_common.h"

#include <algorithm>

namespace tilewise::ir {
namespace {

class Lowering {
 public:
  Lowering(const Op& op, std::span<const SourceArray> sources, const NewArray& new_array)
      : op_(op), sources_(sources.begin(), sources.end()), new_array_(new_array) {}

  Result<std::vector<Op>> run() {
    switch (op_.kind) {
      case OpKind::kMap: case OpKind::kWriteNpy: TW_TRY(elementwise()); break;
      case OpKind::kReduce: TW_TRY(reduce()); break;
      case OpKind::kMatmul: TW_TRY(matmul()); break;
      case OpKind::kCopy: TW_TRY(copy()); break;
      case OpKind::kReshape: TW_TRY(reshape()); break;
      case OpKind::kCall: TW_TRY(call()); break;
      case OpKind::kReadNpy: case OpKind::kFetch: case OpKind::kProvide:
      case OpKind::kReduceBlocks: case OpKind::kCombine: case OpKind::kMatmulPanels: out_.push_back(op_); break;
    }
    return std::move(out_);
  }

 private:
  // A new op that goes where the original does.
  Op part(OpKind kind, OpAttrs attrs, Grid space) const {
    Op op;
    op.kind = kind;
    op.attrs = std::move(attrs);
    op.space = std::move(space);
    op.hint = op_.hint;
    op.label = op_.label;
    return op;
  }

  // Copies what operand i shows into an array of its own, block p from the region of `space` block p widened by its map;
  // `cuts` are those of the new array. Dimensions that repeat are not copied but repeat again. Same sizes: no windows.
  Status gather(std::size_t i, const std::vector<DimGrid>& space, const std::vector<DimGrid>& cuts,
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
      if (done.kind == OpKind::kCopy && done.attrs == op.attrs && done.operands == op.operands && done.space == op.space &&
          done.outputs[0].grid == grid) {
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
  Status gather(std::size_t i, const std::vector<DimGrid>& cuts) {
    return gather(i, cuts, cuts, OperandMap(cuts.size(), DimMap{}));
  }

  Walk walk(std::size_t i, int d) const { return Walk::of(op_.operands[i].view, sources_[i].grid, d); }

  // Every operand shows the space; gathers those whose blocks do not hold its blocks.
  Status align() {
    for (std::size_t i = 0; i < op_.operands.size(); ++i)
      if (!aligned(op_.operands[i].view, sources_[i].grid, op_.space)) TW_TRY(gather(i, op_.space.dims()));
    return {};
  }

  Status elementwise() {
    TW_TRY(align());
    out_.push_back(std::move(op_));
    return {};
  }

  // The reduction of nothing, or a position among one: the same everywhere.
  Status fill(std::int64_t value) {
    const DType t = op_.outputs[0].dtype;
    Tape tape{{{TapeOp::kConst, t}}};
    if (is_floating(t)) {
      tape.code[0].imm_f = static_cast<double>(value);
    } else {
      tape.code[0].imm_i = value;
    }
    Op op = part(OpKind::kMap, MapAttrs{std::move(tape)}, op_.outputs[0].grid);
    op.outputs = std::move(op_.outputs);
    out_.push_back(std::move(op));
    return {};
  }

  Status reduce() {
    const auto a = op_.get<ReduceAttrs>();
    if (op_.space.block_count() == 0) return fill(a.kind == ReduceKind::kProd || a.kind == ReduceKind::kAll);
    if (a.axes == 0) {
      if (is_arg(a.kind)) return fill(0);
      op_.kind = OpKind::kMap;
      op_.attrs = MapAttrs{a.tape};
      op_.space = op_.outputs[0].grid;
      return elementwise();
    }
    TW_TRY(align());
    std::vector<DimGrid> dims = op_.space.dims();
    std::vector<int> levels;  // the axis of each kCombine
    for (int d = 0; d < op_.space.rank(); ++d) {
      if (!(a.axes >> d & 1u)) continue;
      for (std::int64_t n = dims[d].count(); n > 1; n = ceil_div(n, kFanIn)) levels.push_back(d);
      dims[d] = *DimGrid::uniform(dims[d].count(), 1);
    }
    Op blocks = part(OpKind::kReduceBlocks, a, op_.space);
    blocks.operands = op_.operands;
    const std::vector<DType> dtypes =
        is_arg(a.kind) ? std::vector{a.tape.result(), DType::kInt64} : std::vector{op_.outputs[0].dtype};
    blocks.outputs = partials(dtypes, Grid(dims), levels.empty());
    out_.push_back(std::move(blocks));
    combine(a.kind, levels, std::move(dims), dtypes, true);
    return {};
  }

  // Outputs of one stage of a reduction. The last one's answer has the original name: of two, the position.
  std::vector<OutputSpec> partials(const std::vector<DType>& dtypes, const Grid& grid, bool last) {
    std::vector<OutputSpec> specs;
    for (std::size_t i = 0; i < dtypes.size(); ++i)
      specs.push_back({last && i + 1 == dtypes.size() ? op_.outputs[0].array : new_array_(), dtypes[i], grid});
    return specs;
  }

  // Levels of the tree over the partials that the op before wrote.
  void combine(ReduceKind kind, const std::vector<int>& levels, std::vector<DimGrid> dims,
               const std::vector<DType>& dtypes, bool last_is_answer) {
    for (std::size_t level = 0; level < levels.size(); ++level) {
      const int axis = levels[level];
      const Grid from(dims);
      dims[axis] = *DimGrid::uniform(ceil_div(dims[axis].extent(), kFanIn), 1);
      Op op = part(OpKind::kCombine, CombineAttrs{kind, static_cast<std::int8_t>(axis), kFanIn}, Grid(dims));
      for (const OutputSpec& in : out_.back().outputs) op.operands.push_back({in.array, View::identity(from.shape())});
      op.outputs = partials(dtypes, op.space, last_is_answer && level + 1 == levels.size());
      out_.push_back(std::move(op));
    }
  }

  // Has one of two dimensions unit stride in every block, and the other a positive one? Then BLAS reads it in place.
  // What repeats is left to the kernel too: gathering would not change it.
  static bool strided(const View& v, const Grid& source) {
    int unit = source.rank() - 1;
    while (unit >= 0 && source.dim(unit).extent() == 1) --unit;
    for (int d = 0; d < 2; ++d) {
      const std::optional<int> s = v.source_of(d);
      if (v.shape[d] <= 1) continue;
      if (!s) return true;
      if (v.source[*s].step < 1) return false;
    }
    if (unit < 0) return true;
    const SourceDim& s = v.source[unit];
    return v.shape[0] <= 1 || v.shape[1] <= 1 || (s.dim >= 0 && s.step == 1);
  }

  Status matmul() {
    const std::int64_t m = op_.operands[0].view.shape[0], k = op_.operands[0].view.shape[1], n = op_.operands[1].view.shape[1];
    for (std::size_t i = 0; i < 2; ++i) {
      const int outer = i == 0 ? 0 : 1, inner = 1 - outer;
      const bool good = strided(op_.operands[i].view, sources_[i].grid) && walk(i, inner).cuts() &&
                        aligned(walk(i, outer), op_.space.dim(outer));
      if (good) continue;
      std::vector<DimGrid> cuts(2);
      cuts[outer] = op_.space.dim(outer);
      cuts[inner] = inner_cuts(i, inner);
      TW_TRY(gather(i, cuts));
    }
    // Where neither side's panels hold the other's and all cuts are too many to list, the right side follows the left.
    std::optional<DimGrid> panels = common_refinement(*walk(0, 1).cuts(), *walk(1, 0).cuts());
    if (!panels) {
      TW_TRY(gather(1, {*walk(0, 1).cuts(), op_.space.dim(1)}));
      panels = walk(0, 1).cuts();
    }
    if (!splits_k(m, n, k, op_.space.block_count(), panels->count())) {
      out_.push_back(std::move(op_));
      return {};
    }
    std::vector<DimGrid> dims{*DimGrid::uniform(panels->count(), 1), op_.space.dim(0), op_.space.dim(1)};
    const DType t = op_.outputs[0].dtype;
    Op product = part(OpKind::kMatmulPanels, MatmulAttrs{}, Grid({*panels, op_.space.dim(0), op_.space.dim(1)}));
    product.operands = op_.operands;
    product.outputs = {{new_array_(), t, Grid(dims)}};
    out_.push_back(std::move(product));
    std::vector<int> levels;
    for (std::int64_t c = panels->count(); c > 1; c = ceil_div(c, kFanIn)) levels.push_back(0);
    combine(ReduceKind::kSum, levels, std::move(dims), {t}, false);
    Op squeeze = part(OpKind::kCopy, CopyAttrs{{{{DimMap::Kind::kSpan, 0}, {DimMap::Kind::kSpan, 1}}}}, op_.space);
    TW_ASSIGN(View view, View::identity({1, m, n}).at(0, 0));
    squeeze.operands = {{out_.back().outputs[0].array, std::move(view)}};
    squeeze.outputs = op_.outputs;
    out_.push_back(std::move(squeeze));
    return {};
  }

  // Panels of a gathered operand: its own, or the other's where it repeats along k and has none.
  DimGrid inner_cuts(std::size_t i, int inner) const {
    const Walk own = walk(i, inner);
    if (op_.operands[i].view.source_of(inner)) return own.cuts_or_similar();
    return walk(1 - i, 1 - inner).cuts_or_similar();
  }

  Status copy() {
    const auto a = op_.get<CopyAttrs>();
    if (op_.operands.size() <= kMaxStepOperands) {
      out_.push_back(std::move(op_));
      return {};
    }
    // A long concat: all operands show the same extents but along one axis, where they stand in a row.
    std::vector<std::size_t> order(op_.operands.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (op_.space.block_count() == 0) return fill(0);
    int axis = -1;
    bool row = true;
    for (const Operand& operand : op_.operands)
      for (int d = 0; d < op_.space.rank(); ++d) {
        if (operand.view.shape[d] == op_.space.dim(d).extent()) continue;
        row &= axis < 0 || axis == d;
        axis = d;
      }
    if (!row || axis < 0)
      return error(Errc::kLimitExceeded, "copy: more than " + std::to_string(kMaxStepOperands) +
                                             " operands that do not stand in one row");
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t x, std::size_t y) { return a.maps[x][axis].before < a.maps[y][axis].before; });
    Op joined = part(OpKind::kCopy, CopyAttrs{}, op_.space);
    CopyAttrs maps;
    const std::size_t groups = (order.size() + kMaxStepOperands - 1) / kMaxStepOperands;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t from = g * order.size() / groups, to = (g + 1) * order.size() / groups;
      const std::int64_t at = a.maps[order[from]][axis].before;
      std::int64_t extent = 0;
      CopyAttrs attrs;
      Op op = part(OpKind::kCopy, {}, {});
      for (std::size_t j = from; j < to; ++j) {
        const Operand& operand = op_.operands[order[j]];
        OperandMap map = a.maps[order[j]];
        if (map[axis].before != at + extent) return error(Errc::kUnsupported, "copy: operands of a long copy leave gaps");
        map[axis].before = extent;
        map[axis].after = -extent;
        extent += operand.view.shape[axis];
        attrs.maps.push_back(map);
        op.operands.push_back(operand);
      }
      std::vector<DimGrid> dims = op_.space.dims();
      dims[axis] = *DimGrid::uniform(extent, std::max<std::int64_t>(1, op_.space.dim(axis).max_size()));
      op.space = Grid(std::move(dims));
      TW_TRY(op.space.verify());
      op.outputs = {{new_array_(), op_.outputs[0].dtype, op.space}};
      op.attrs = std::move(attrs);
      joined.operands.push_back({op.outputs[0].array, View::identity(op.space.shape())});
      OperandMap map = a.maps[order[from]];
      map[axis].before = at;
      map[axis].after = -at;
      maps.maps.push_back(map);
      out_.push_back(std::move(op));
    }
    joined.attrs = std::move(maps);
    joined.outputs = std::move(op_.outputs);
    out_.push_back(std::move(joined));
    return {};
  }

  Status reshape() {
    const Shape shape = op_.operands[0].view.shape;
    bool slabs = true;
    for (std::size_t d = 1; d < shape.size(); ++d) slabs &= walk(0, static_cast<int>(d)).count() <= 1;
    if (!slabs && op_.space.block_count() > 0) TW_TRY(gather(0, slab_grid(shape, size_of(sources_[0].dtype)).dims()));
    out_.push_back(std::move(op_));
    return {};
  }

  Status call() {
    auto a = op_.get<CallAttrs>();
    if (a.explicit_maps.empty() && op_.space.block_count() > 0) {
      for (std::size_t i = 0; i < op_.operands.size(); ++i) TW_TRY(unroll(i, a.maps[i]));
      op_.attrs = std::move(a);
    }
    out_.push_back(std::move(op_));
    return {};
  }

  // Gathers an operand of a call whose regions cross blocks; its map then names the gathered blocks.
  Status unroll(std::size_t i, OperandMap& maps) {
    const int rank = op_.operands[i].view.rank();
    bool good = true;
    for (int d = 0; d < rank; ++d) {
      const Walk w = walk(i, d);
      good &= maps[d].kind == DimMap::Kind::kWhole ? w.count() <= 1 : spans_aligned(w, op_.space.dim(maps[d].dim), maps[d]);
    }
    if (good) return {};
    std::vector<DimGrid> space, cuts;
    OperandMap windows = maps;
    for (int d = 0; d < rank; ++d) {
      const std::int64_t n = op_.operands[i].view.shape[d];
      const bool repeats = !op_.operands[i].view.source_of(d);
      if (repeats || maps[d].kind == DimMap::Kind::kWhole) {
        // A repeating dimension keeps its map; it always lies in one part.
        space.push_back(DimGrid::whole(n));
        cuts.push_back(DimGrid::whole(n));
        windows[d] = DimMap{};
        continue;
      }
      TW_TRY(unroll_dim(i, d, n, maps[d], windows[d], space, cuts));
      maps[d] = {DimMap::Kind::kBlock, maps[d].dim};
    }
    return gather(i, space, cuts, windows);
  }

  Status unroll_dim(std::size_t i, int d, std::int64_t n, const DimMap& map, DimMap& window, std::vector<DimGrid>& space,
                    std::vector<DimGrid>& cuts) {
    const DimGrid& points = op_.space.dim(map.dim);
    const auto fail = [&](const char* what) {
      return error(Errc::kUnsupported, "call: operand " + std::to_string(i) + ", dimension " + std::to_string(d) + ": " + what);
    };
    if (points.count() > limits::kMaxExplicitCuts)
      return error(Errc::kLimitExceeded, "call: windows over " + std::to_string(points.count()) + " blocks cannot be listed");
    // The cuts of the copy's own space are the scaled ones of the points, which must meet.
    std::vector<std::int64_t> starts, sizes;
    std::int64_t extent = 0, total = 0;
    for (std::int64_t p = 0; p < points.count(); ++p) {
      std::int64_t lo = points.begin(p), hi = points.end(p);
      const DimMap scale{map.kind, map.dim, map.mul, map.div, 0, 0};
      apply_span(scale, lo, hi);
      if (lo != extent || hi <= lo) return fail("scaled regions overlap and cross blocks");
      starts.push_back(lo);
      extent = hi;
      const std::int64_t first = std::max<std::int64_t>(0, lo - map.before), last = std::min(n, hi + map.after);
      if (first >= last) return fail("a window lies outside the array, and others cross blocks");
      sizes.push_back(last - first);
      if (__builtin_add_overflow(total, sizes.back(), &total)) return fail("the windows are too long");
    }
    if (map.before + map.after == 0 && map.before != 0) {
      // A shift: regions lie side by side, so a slice cut there does, without windows.
      TW_ASSIGN(op_.operands[i].view, op_.operands[i].view.slice(d, std::max<std::int64_t>(0, -map.before),
                                                                  std::max<std::int64_t>(0, -map.before) + total, 1));
      window.before = window.after = 0;
    }
    std::vector<std::int64_t> at;
    std::int64_t sum = 0;
    for (const std::int64_t s : sizes) at.push_back(sum), sum += s;
    TW_ASSIGN(DimGrid unrolled, DimGrid::cuts(total, std::move(at)));
    if (window.before == 0 && window.after == 0) {
      space.push_back(unrolled);
    } else {
      TW_ASSIGN(DimGrid core, DimGrid::cuts(extent, std::move(starts)));
      space.push_back(std::move(core));
    }
    cuts.push_back(std::move(unrolled));
    return {};
  }

  Op op_;
  std::vector<SourceArray> sources_;
  const NewArray& new_array_;
  std::vector<Op> out_;
};

}  // namespace

bool splits_k(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t output_blocks, std::int64_t panels) {
  if (output_blocks < 1 || output_blocks > 4 || panels < 4 || m == 0 || n == 0 || k == 0) return false;
  // Each product is of one array's extents, so below 2^63; their sums are not.
  const auto wide = [](std::int64_t x) { return static_cast<__int128>(x); };
  return wide(m) * n * panels <= (wide(m) * k + wide(k) * n) / 4;
}

Result<std::vector<Op>> lower(const Op& op, std::span<const SourceArray> sources, const NewArray& new_array) {
  return Lowering(op, sources, new_array).run();
}

}  // namespace tilewise::ir
