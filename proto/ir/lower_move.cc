// Lowering of what moves elements, and of calls.
#include "alignment.h"
#include "lowering.h"

#include <tilewise/ir/runs.h>

#include <algorithm>

namespace tilewise::ir {

Status Lowering::copy() {
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
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    return a.maps[x][axis].before < a.maps[y][axis].before;
  });
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
      if (map[axis].before != at + extent)
        return error(Errc::kUnsupported, "copy: operands of a long copy leave gaps");
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

Status Lowering::reshape() {
  const View view = op_.operands[0].view;
  Shape parts;
  for (int d = 0; d < view.rank(); ++d) parts.push_back(walk(0, d).count());
  if (op_.space.block_count() > 0 && !RunOrder::of(view.shape, parts)) {
    const Grid runs = run_grid(view.shape, volume(op_.space.max_block_shape()));
    TW_TRY(runs.verify());
    bool repeats = false;  // a dimension that repeats before one that is cut: each of its indices is a run
    for (int d = 0; d < view.rank(); ++d)
      repeats |= !view.source_of(d) && view.shape[d] > 1 && runs.dim(d).count() == view.shape[d];
    if (repeats) {
      Op whole = recut(op_.operands[0], {new_array_(), sources_[0].dtype, runs});
      op_.operands[0] = {whole.outputs[0].array, View::identity(view.shape)};
      out_.push_back(std::move(whole));
    } else {
      TW_TRY(gather(0, runs.dims()));
    }
  }
  out_.push_back(std::move(op_));
  return {};
}

Status Lowering::call() {
  auto a = op_.get<CallAttrs>();
  if (a.explicit_maps.empty() && op_.space.block_count() > 0) {
    for (std::size_t i = 0; i < op_.operands.size(); ++i) TW_TRY(unroll(i, a.maps[i]));
    op_.attrs = std::move(a);
  }
  out_.push_back(std::move(op_));
  return {};
}

Status Lowering::unroll(std::size_t i, OperandMap& maps) {
  const int rank = op_.operands[i].view.rank();
  bool good = true;
  for (int d = 0; d < rank; ++d) {
    const Walk w = walk(i, d);
    switch (maps[d].kind) {
      case DimMap::Kind::kWhole: good &= w.count() <= 1; break;
      case DimMap::Kind::kStep: good &= w.cuts().has_value(); break;
      default: good &= spans_aligned(w, op_.space.dim(maps[d].dim), maps[d]);
    }
  }
  if (good) return {};
  std::vector<DimGrid> space, cuts;
  OperandMap windows = maps;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t n = op_.operands[i].view.shape[d];
    const bool repeats = !op_.operands[i].view.source_of(d);
    if (repeats || maps[d].kind == DimMap::Kind::kWhole || maps[d].kind == DimMap::Kind::kStep) {
      // A repeating dimension keeps its map; it always lies in one part.
      const bool swept = !repeats && maps[d].kind == DimMap::Kind::kStep;
      cuts.push_back(swept ? walk(i, d).cuts_or_similar() : DimGrid::whole(n));
      space.push_back(cuts.back());
      windows[d] = DimMap{};
      continue;
    }
    TW_TRY(unroll_dim(i, d, n, maps[d], windows[d], space, cuts));
    maps[d] = {DimMap::Kind::kBlock, maps[d].dim};
  }
  return gather(i, space, cuts, windows);
}

Status Lowering::unroll_dim(std::size_t i, int d, std::int64_t n, const DimMap& map, DimMap& window,
                            std::vector<DimGrid>& space, std::vector<DimGrid>& cuts) {
  const DimGrid& points = op_.space.dim(map.dim);
  const auto fail = [&](const char* what) {
    return error(Errc::kUnsupported,
                 "call: operand " + std::to_string(i) + ", dimension " + std::to_string(d) + ": " + what);
  };
  if (points.count() > limits::kMaxExplicitCuts)
    return error(Errc::kLimitExceeded,
                 "call: windows over " + std::to_string(points.count()) + " blocks cannot be listed");
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
    TW_ASSIGN(op_.operands[i].view,
              op_.operands[i].view.slice(d, std::max<std::int64_t>(0, -map.before),
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

}  // namespace tilewise::ir
