#include "cells.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace tilewise::place {
namespace {

constexpr std::size_t kMaxBounds = 512;  // of one dimension

void sort_inside(std::vector<std::int64_t>& bounds, std::int64_t extent) {
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  std::erase_if(bounds, [&](std::int64_t at) { return at <= 0 || at >= extent; });
}

// Where along a dimension points of another device may begin. False: at too many places, or nowhere that a rule tells.
bool rule_bounds(const ir::Placement& placement, int d, std::int64_t count, std::vector<std::int64_t>& out) {
  if (placement.pieces().empty()) return false;
  for (const ir::Piece& piece : placement.pieces()) {
    const std::int64_t lo = piece.box.lo[d], n = piece.box.extent(d), parts = piece.rule.parts[d];
    const bool each = piece.rule.cyclic[d] != 0 || parts > n;
    const std::int64_t stretches = parts == 1 ? 1 : each ? n : parts;
    if (out.size() + static_cast<std::size_t>(stretches) > 2 * kMaxBounds) return false;
    for (std::int64_t c = 0; c < stretches; ++c) out.push_back(lo + (each ? c : ir::ceil_div(c * n, parts)));
    out.push_back(piece.box.hi[d]);
  }
  sort_inside(out, count);
  return out.size() <= kMaxBounds;
}

}  // namespace

Cells::Cells(const ir::Op& op, int operand, const Input& input, const ir::Placement& reader,
             std::int64_t most)
    : op_(op),
      view_(op.operands[static_cast<std::size_t>(operand)].view),
      grid_(input.array->grid),
      owners_(*input.placement),
      readers_(reader) {
  if (op.space.block_count() == 0 || grid_.block_count() == 0) return;
  for (int d = 0; d < view_.rank(); ++d) {
    Dim& dim = dims_.emplace_back();
    if (op.kind != ir::OpKind::kCopy) continue;
    const ir::DimMap& map = op.get<ir::CopyAttrs>().maps[static_cast<std::size_t>(operand)][d];
    dim.before = map.before, dim.after = map.after;
  }
  for (int s = 0; s < grid_.rank(); ++s)
    if (view_.source[s].dim >= 0) dims_[static_cast<std::size_t>(view_.source[s].dim)].source = s;
  good_ = set_dims(most);
}

bool Cells::set_dims(std::int64_t most) {
  std::int64_t cells = 1;
  bool any = false;
  for (int d = 0; d < view_.rank(); ++d) {
    Dim& dim = dims_[static_cast<std::size_t>(d)];
    const std::int64_t extent = view_.shape[d];
    if (extent == 0) return false;
    if (dim.source >= 0) {
      any = true;
      dim.walk = ir::Walk::of(view_, grid_, d);
      if (!owner_bounds(dim, d) || !reader_bounds(dim, d)) return false;
      sort_inside(dim.bounds, extent);
    }
    dim.bounds.insert(dim.bounds.begin(), 0);
    dim.bounds.push_back(extent);
    counts_.push_back(static_cast<std::int64_t>(dim.bounds.size()) - 1);
    cells *= counts_[d];
    if (cells > most) return false;
  }
  return any;
}

bool Cells::owner_bounds(Dim& dim, int) const {
  std::vector<std::int64_t> blocks;
  const ir::DimGrid& cuts = grid_.dim(dim.source);
  if (!rule_bounds(owners_, dim.source, cuts.count(), blocks)) return false;
  const ir::SourceDim& walk = view_.source[dim.source];
  for (const std::int64_t block : blocks) {
    const std::int64_t at = cuts.begin(block);
    dim.bounds.push_back(walk.step > 0 ? ir::ceil_div(at - walk.start, walk.step)
                                       : ir::ceil_div(walk.start - at + 1, -walk.step));
  }
  return true;
}

bool Cells::reader_bounds(Dim& dim, int d) const {
  std::vector<std::int64_t> points;
  const ir::DimGrid& cuts = op_.space.dim(d);
  if (!rule_bounds(readers_, d, cuts.count(), points)) return false;
  const auto add = [&](std::int64_t at) {
    dim.bounds.push_back(at - dim.before);
    dim.bounds.push_back(at + dim.after);
  };
  add(0), add(cuts.extent());
  for (const std::int64_t point : points) add(cuts.begin(point));
  return true;
}

std::pair<std::int64_t, std::int64_t> Cells::points(int d, std::int64_t lo, std::int64_t hi) const {
  const ir::DimGrid& cuts = op_.space.dim(d);
  const Dim& dim = dims_[static_cast<std::size_t>(d)];
  const std::int64_t first = std::max<std::int64_t>(0, lo - dim.after);
  const std::int64_t last = std::min(cuts.extent() - 1, hi + dim.before - 1);
  if (first > last) return {0, 0};
  return {cuts.find(first), cuts.find(last) + 1};
}

Cell Cells::at(std::int64_t cell) const {
  const ir::Index index = ir::unravel(cell, counts_);
  Cell out;
  out.elements = out.block_elements = 1;
  ir::Box read;  // points
  for (int d = 0; d < view_.rank(); ++d) {
    const Dim& dim = dims_[static_cast<std::size_t>(d)];
    const auto i = static_cast<std::size_t>(index[d]);
    const auto [from, to] = points(d, dim.bounds[i], dim.bounds[i + 1]);
    read.lo.push_back(from), read.hi.push_back(to);
    if (dim.source >= 0) out.elements *= static_cast<double>(dim.bounds[i + 1] - dim.bounds[i]);
  }
  for (int s = 0; s < grid_.rank(); ++s) {
    const ir::SourceDim& walk = view_.source[s];
    const ir::DimGrid& cuts = grid_.dim(s);
    std::int64_t from = 0, to = 1, elements = 0;
    if (walk.dim >= 0) {
      const Dim& dim = dims_[static_cast<std::size_t>(walk.dim)];
      const auto i = static_cast<std::size_t>(index[walk.dim]);
      from = dim.walk.part_of(dim.bounds[i]), to = dim.walk.part_of(dim.bounds[i + 1] - 1) + 1;
      const std::int64_t first = dim.walk.block(from), last = dim.walk.block(to - 1);
      if (std::abs(last - first) + 1 == to - from)
        elements = cuts.end(std::max(first, last)) - cuts.begin(std::min(first, last));
      else
        elements = (to - from) * cuts.max_size();
    } else {
      elements = cuts.size(cuts.find(walk.start));
    }
    out.parts.lo.push_back(from), out.parts.hi.push_back(to);
    out.block_elements *= static_cast<double>(elements);
  }
  out.owner = owners_.owner(block(out.parts.lo));
  if (read.volume() == 0) return out;
  std::vector<ir::Placement::Share> shares;
  readers_.shares(read, shares);
  for (const ir::Placement::Share& share : shares) out.readers.push_back(share.device);
  return out;
}

ir::Index Cells::block(const ir::Index& part) const {
  ir::Index out;
  for (int s = 0; s < grid_.rank(); ++s) {
    const ir::SourceDim& walk = view_.source[s];
    out.push_back(walk.dim < 0 ? grid_.dim(s).find(walk.start)
                               : dims_[static_cast<std::size_t>(walk.dim)].walk.block(part[s]));
  }
  return out;
}

ir::Box Cells::box(const ir::Box& cells) const {
  ir::Box out;
  for (int d = 0; d < cells.rank(); ++d) {
    const std::vector<std::int64_t>& bounds = dims_[static_cast<std::size_t>(d)].bounds;
    out.lo.push_back(bounds[static_cast<std::size_t>(cells.lo[d])]);
    out.hi.push_back(bounds[static_cast<std::size_t>(cells.hi[d])]);
  }
  return out;
}

std::optional<ir::Grid> Cells::pieces(const ir::Box& cells, std::int64_t most) const {
  const ir::Box whole = box(cells);
  std::vector<ir::DimGrid> out;
  std::int64_t count = 1;
  for (int d = 0; d < cells.rank(); ++d) {
    const Dim& dim = dims_[static_cast<std::size_t>(d)];
    if (dim.source < 0) continue;
    const ir::SourceDim& walk = view_.source[dim.source];
    const auto blocks = ir::Walk::over(grid_.dim(dim.source), walk.start + walk.step * whole.lo[d], walk.step,
                                       whole.extent(d));
    if (blocks.count() > most) return std::nullopt;
    std::vector<std::int64_t> starts;
    for (std::int64_t i = cells.lo[d]; i < cells.hi[d]; ++i)
      starts.push_back(dim.bounds[static_cast<std::size_t>(i)] - whole.lo[d]);
    const auto bounds = ir::DimGrid::cuts(whole.extent(d), std::move(starts));
    std::optional<ir::DimGrid> cuts = blocks.cuts();
    if (cuts && bounds) cuts = ir::common_refinement(*cuts, *bounds);
    if (!cuts || !bounds) return std::nullopt;
    count *= cuts->count();
    if (count > most) return std::nullopt;
    out.push_back(std::move(*cuts));
  }
  return ir::Grid(std::move(out));
}

ir::Box Cells::pieces_inside(const ir::Box& cells, const ir::Box& inside, const ir::Grid& pieces) const {
  ir::Box out;
  for (int d = 0; d < cells.rank(); ++d) {
    const Dim& dim = dims_[static_cast<std::size_t>(d)];
    if (dim.source < 0) continue;
    const ir::DimGrid& cuts = pieces.dim(out.rank());
    const auto piece_at = [&](std::int64_t cell) {
      const std::int64_t at = dim.bounds[static_cast<std::size_t>(cells.lo[d] + cell)] -
                              dim.bounds[static_cast<std::size_t>(cells.lo[d])];
      return at == cuts.extent() ? cuts.count() : cuts.find(at);
    };
    const std::int64_t lo = piece_at(inside.lo[d]), hi = piece_at(inside.hi[d]);
    out.lo.push_back(lo), out.hi.push_back(hi);
  }
  return out;
}

namespace {

class Joiner {
 public:
  Joiner(const ir::Shape& counts, const std::vector<std::uint64_t>& labels)
      : counts_(counts), labels_(labels), taken_(labels.size(), false) {}

  // Each box grows along its dimensions in this order, as far as it can.
  std::vector<ir::Box> run(const std::vector<int>& order) {
    std::vector<ir::Box> out;
    for (std::size_t first = 0; first < labels_.size(); ++first) {
      if (taken_[first]) continue;
      ir::Box box;
      box.lo = box.hi = ir::unravel(static_cast<std::int64_t>(first), counts_);
      for (std::int64_t& hi : box.hi) ++hi;
      for (const int d : order) {
        while (box.hi[d] < counts_[d]) {
          ir::Box next = box;
          next.lo[d] = box.hi[d], next.hi[d] = box.hi[d] + 1;
          bool like = true;
          each(next, [&](std::size_t i) { like = like && !taken_[i] && labels_[i] == labels_[first]; });
          if (!like) break;
          ++box.hi[d];
        }
      }
      each(box, [&](std::size_t i) { taken_[i] = true; });
      out.push_back(std::move(box));
    }
    return out;
  }

 private:
  template <class F> void each(const ir::Box& box, F&& visit) const {
    const ir::Shape shape = box.shape();
    for (std::int64_t i = 0; i < ir::volume(shape); ++i) {
      ir::Index at = ir::unravel(i, shape);
      for (std::size_t d = 0; d < at.size(); ++d) at[d] += box.lo[d];
      visit(static_cast<std::size_t>(ir::ravel(at, counts_)));
    }
  }

  const ir::Shape& counts_;
  const std::vector<std::uint64_t>& labels_;
  std::vector<bool> taken_;
};

}  // namespace

std::vector<ir::Box> boxes_of_like(const ir::Shape& counts, const std::vector<std::uint64_t>& labels) {
  std::vector<int> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<ir::Box> down = Joiner(counts, labels).run(order);
  std::reverse(order.begin(), order.end());
  std::vector<ir::Box> across = Joiner(counts, labels).run(order);
  return down.size() < across.size() ? down : across;
}

}  // namespace tilewise::place
