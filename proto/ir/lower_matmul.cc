#include "lowering.h"

#include <algorithm>

namespace tilewise::ir {

bool Lowering::strided(const View& v, const Grid& source) {
  int unit = source.rank() - 1;
  while (unit >= 0 && source.dim(unit).extent() == 1) --unit;
  const int stack = v.rank() - 2;
  for (int d = stack; d < v.rank(); ++d) {
    const std::optional<int> s = v.source_of(d);
    if (v.shape[d] <= 1) continue;
    if (!s) return true;
    if (v.source[*s].step < 1) return false;
  }
  if (unit < 0) return true;
  const SourceDim& s = v.source[unit];
  return v.shape[stack] <= 1 || v.shape[stack + 1] <= 1 || (s.dim >= stack && s.step == 1);
}

namespace {

constexpr std::int64_t kMostSplitBlocks = 16;  // as many devices as one would sum shares of a gradient on

// `parts` runs of panels, as even as can be, the longer ones first.
DimGrid in_parts(const DimGrid& panels, std::int64_t parts) {
  const std::int64_t each = panels.count() / parts, longer = panels.count() % parts;
  std::vector<std::int64_t> starts;
  for (std::int64_t p = 0; p < parts; ++p) starts.push_back(panels.begin(p * each + std::min(p, longer)));
  return *DimGrid::cuts(panels.extent(), std::move(starts));
}

}  // namespace

Status Lowering::matmul() {
  const int stack = op_.space.rank() - 2;
  const std::int64_t m = op_.operands[0].view.shape[stack], k = op_.operands[0].view.shape[stack + 1],
                     n = op_.operands[1].view.shape[stack + 1];
  for (std::size_t i = 0; i < 2; ++i) {
    const int inner = i == 0 ? stack + 1 : stack;
    bool good = strided(op_.operands[i].view, sources_[i].grid) && walk(i, inner).cuts();
    for (int d = 0; good && d < stack + 2; ++d) good = d == inner || aligned(walk(i, d), op_.space.dim(d));
    if (good) continue;
    std::vector<DimGrid> cuts = op_.space.dims();
    cuts[static_cast<std::size_t>(inner)] = inner_cuts(i, inner);
    TW_TRY(gather(i, cuts));
  }
  // Where neither side's panels hold the other's and all cuts are too many to list, the right side follows the left.
  std::optional<DimGrid> panels = common_refinement(*walk(0, stack + 1).cuts(), *walk(1, stack).cuts());
  if (!panels) {
    std::vector<DimGrid> cuts = op_.space.dims();
    cuts[static_cast<std::size_t>(stack)] = *walk(0, stack + 1).cuts();
    TW_TRY(gather(1, cuts));
    panels = walk(0, stack + 1).cuts();
  }
  const auto [asked, tf32] = op_.get<MatmulAttrs>();
  const bool by_shapes =
      stack == 0 && asked == 0 && splits_k(m, n, k, op_.space.block_count(), panels->count());
  const std::int64_t parts = by_shapes ? panels->count() : std::min(asked, panels->count());
  op_.attrs = MatmulAttrs{0, tf32};
  if (parts < 2) {
    out_.push_back(std::move(op_));
    return {};
  }
  std::int64_t products = 0;
  if (__builtin_mul_overflow(parts, op_.space.block_count(), &products) || products > limits::kMaxBlocks)
    return error(Errc::kLimitExceeded, "matmul: " + std::to_string(parts) + " parts of k for each of " +
                                           std::to_string(op_.space.block_count()) +
                                           " blocks; the limit is " + std::to_string(limits::kMaxBlocks) +
                                           " products");
  if (parts < panels->count()) panels = in_parts(*panels, parts);
  std::vector<DimGrid> dims{*DimGrid::uniform(panels->count(), 1), op_.space.dim(0), op_.space.dim(1)};
  const DType t = op_.outputs[0].dtype;
  Op product =
      part(OpKind::kMatmulPanels, MatmulAttrs{0, tf32}, Grid({*panels, op_.space.dim(0), op_.space.dim(1)}));
  product.operands = op_.operands;
  product.outputs = {{new_array_(), t, Grid(dims)}};
  out_.push_back(std::move(product));
  std::vector<int> levels;
  const std::int64_t fan_in = by_shapes ? fan_in_of(volume(op_.space.max_block_shape()), t) : 2;
  for (std::int64_t c = panels->count(); c > 1; c = ceil_div(c, fan_in)) levels.push_back(0);
  combine(ReduceKind::kSum, levels, std::move(dims), {t}, false, fan_in);
  Op squeeze =
      part(OpKind::kCopy, CopyAttrs{{{{DimMap::Kind::kSpan, 0}, {DimMap::Kind::kSpan, 1}}}}, op_.space);
  TW_ASSIGN(View view, View::identity({1, m, n}).at(0, 0));
  squeeze.operands = {{out_.back().outputs[0].array, std::move(view)}};
  squeeze.outputs = op_.outputs;
  out_.push_back(std::move(squeeze));
  return {};
}

DimGrid Lowering::inner_cuts(std::size_t i, int inner) const {
  const Walk own = walk(i, inner);
  if (op_.operands[i].view.source_of(inner)) return own.cuts_or_similar();
  const int last = op_.space.rank() - 1;
  return walk(1 - i, inner == last ? last - 1 : last).cuts_or_similar();
}

bool splits_k(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t output_blocks,
              std::int64_t panels) {
  if (output_blocks < 1 || output_blocks > kMostSplitBlocks || panels < 4 || m == 0 || n == 0 || k == 0)
    return false;
  // Each product is of one array's extents, so below 2^63; their sums are not.
  const auto wide = [](std::int64_t x) { return static_cast<__int128>(x); };
  return wide(m) * n * panels <= (wide(m) * k + wide(k) * n) / 4;
}

}  // namespace tilewise::ir
