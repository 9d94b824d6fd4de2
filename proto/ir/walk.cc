#include <tilewise/ir/walk.h>

#include <algorithm>
#include <bit>

namespace tilewise::ir {
namespace {

std::int64_t min_inner_size(const DimGrid& g) {  // of explicit cuts
  std::int64_t m = g.extent();
  for (std::int64_t i = 0; i < g.count(); ++i) m = std::min(m, g.size(i));
  return m;
}

}  // namespace

Walk Walk::broadcast(std::int64_t extent) {
  Walk w;
  w.extent_ = extent;
  w.count_ = extent > 0 ? 1 : 0;
  return w;
}

Walk Walk::over(const DimGrid& source, std::int64_t start, std::int64_t step, std::int64_t extent) {
  Walk w;
  w.mode_ = Mode::kDense;
  w.source_ = source;
  w.start_ = start;
  w.step_ = step;
  w.extent_ = extent;
  if (extent == 0) return w;
  w.first_ = source.find(start);
  const std::int64_t stride = step < 0 ? -step : step;
  const std::int64_t last = source.find(start + step * (extent - 1));
  if (source.is_uniform()) {
    if (stride <= source.block()) {
      w.count_ = (last > w.first_ ? last - w.first_ : w.first_ - last) + 1;
    } else {
      w.mode_ = Mode::kSparse;
      w.count_ = extent;
    }
    return w;
  }
  if (stride <= min_inner_size(source)) {
    w.count_ = (last > w.first_ ? last - w.first_ : w.first_ - last) + 1;
    return w;
  }
  w.mode_ = Mode::kListed;
  for (std::int64_t i = 0; i < extent;) {
    const std::int64_t block = source.find(start + step * i);
    w.begins_.push_back(i);
    w.blocks_.push_back(block);
    // The first index past this block.
    i = step > 0 ? ceil_div(source.end(block) - start, step)
                 : floor_div(start - source.begin(block), stride) + 1;
  }
  w.count_ = static_cast<std::int64_t>(w.begins_.size());
  return w;
}

Walk Walk::of(const View& view, const Grid& source, int d) {
  const std::optional<int> s = view.source_of(d);
  if (!s) return broadcast(view.shape[d]);
  return over(source.dim(*s), view.source[*s].start, view.source[*s].step, view.shape[d]);
}

std::int64_t Walk::begin(std::int64_t part) const {
  if (part == 0) return 0;
  switch (mode_) {
    case Mode::kRepeat: return 0;
    case Mode::kDense:
      if (step_ == 1) return source_.begin(first_ + part) - start_;
      if (step_ > 0) return ceil_div(source_.begin(first_ + part) - start_, step_);
      return ceil_div(start_ + 1 - source_.end(first_ - part), -step_);
    case Mode::kSparse: return part;
    case Mode::kListed: return begins_[static_cast<std::size_t>(part)];
  }
  return 0;
}

std::int64_t Walk::part_of(std::int64_t index) const {
  switch (mode_) {
    case Mode::kRepeat: return 0;
    case Mode::kDense: {
      const std::int64_t moved = source_.find(start_ + step_ * index) - first_;
      return moved < 0 ? -moved : moved;
    }
    case Mode::kSparse: return index;
    case Mode::kListed: return std::upper_bound(begins_.begin(), begins_.end(), index) - begins_.begin() - 1;
  }
  return 0;
}

std::int64_t Walk::block(std::int64_t part) const {
  switch (mode_) {
    case Mode::kRepeat: return 0;
    case Mode::kDense: return step_ > 0 ? first_ + part : first_ - part;
    case Mode::kSparse: return source_.find(start_ + step_ * part);
    case Mode::kListed: return blocks_[static_cast<std::size_t>(part)];
  }
  return 0;
}

std::int64_t Walk::part_of_block(std::int64_t block) const {
  if (count_ == 0) return -1;
  switch (mode_) {
    case Mode::kRepeat: return 0;
    case Mode::kDense: {
      const std::int64_t part = step_ > 0 ? block - first_ : first_ - block;
      return part >= 0 && part < count_ ? part : -1;
    }
    case Mode::kSparse: {
      const std::int64_t lo = source_.begin(block), hi = source_.end(block);
      const std::int64_t i = step_ > 0 ? ceil_div(lo - start_, step_) : ceil_div(start_ + 1 - hi, -step_);
      if (i < 0 || i >= extent_) return -1;
      const std::int64_t at = start_ + step_ * i;
      return at >= lo && at < hi ? i : -1;
    }
    case Mode::kListed: {
      const auto at = step_ > 0 ? std::lower_bound(blocks_.begin(), blocks_.end(), block)
                                : std::lower_bound(blocks_.begin(), blocks_.end(), block, std::greater<>());
      return at != blocks_.end() && *at == block ? at - blocks_.begin() : -1;
    }
  }
  return -1;
}

std::optional<DimGrid> Walk::cuts() const {
  if (count_ <= 1) return DimGrid::whole(extent_);
  std::int64_t block = 0;
  if (mode_ == Mode::kSparse) {
    block = 1;
  } else if (mode_ == Mode::kDense && source_.is_uniform()) {
    const std::int64_t stride = step_ < 0 ? -step_ : step_;
    if (source_.block() % stride == 0) block = source_.block() / stride;
  }
  // begin(1) lies in (0, block], so this phase is in [0, block).
  if (block > 0) return *DimGrid::uniform(extent_, block, block - begin(1));
  if (count_ > limits::kMaxExplicitCuts) return std::nullopt;
  std::vector<std::int64_t> starts;
  starts.reserve(static_cast<std::size_t>(count_));
  for (std::int64_t p = 0; p < count_; ++p) starts.push_back(begin(p));
  return *DimGrid::cuts(extent_, std::move(starts));
}

DimGrid Walk::cuts_or_similar() const {
  if (std::optional<DimGrid> exact = cuts()) return *exact;
  const auto mean = static_cast<std::uint64_t>(ceil_div(extent_, count_));
  return *DimGrid::uniform(extent_, static_cast<std::int64_t>(std::bit_ceil(mean)));
}

bool aligned(const Walk& walk, const DimGrid& space) {
  if (walk.count() <= 1) return true;
  if (space.count() < walk.count()) return false;  // by pigeonhole some block meets two parts
  if (const std::optional<DimGrid> cuts = walk.cuts()) {
    if (*cuts == space) return true;
    if (cuts->is_uniform() && space.is_uniform() && cuts->count() > 2)
      // Every inner cut of the walk must be a cut of the space.
      return cuts->block() % space.block() == 0 && (cuts->phase() - space.phase()) % space.block() == 0;
  }
  if (walk.count() <= limits::kMaxExplicitCuts) {
    for (std::int64_t p = 1; p < walk.count(); ++p) {
      const std::int64_t at = walk.begin(p);
      if (space.begin(space.find(at)) != at) return false;
    }
    return true;
  }
  // More parts than can be listed, at irregular places: uniform blocks above one element cannot all avoid them.
  return space.is_uniform() && space.block() == 1;
}

bool refines(const DimGrid& fine, const DimGrid& coarse) {
  return fine == coarse || aligned(Walk::over(coarse, 0, 1, coarse.extent()), fine);
}

std::optional<DimGrid> common_refinement(const DimGrid& a, const DimGrid& b) {
  if (refines(a, b)) return a;
  if (refines(b, a)) return b;
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0, j = 0; i < a.count() || j < b.count();) {
    if (starts.size() == static_cast<std::size_t>(limits::kMaxExplicitCuts)) return std::nullopt;
    const std::int64_t x = i < a.count() ? a.begin(i) : INT64_MAX, y = j < b.count() ? b.begin(j) : INT64_MAX;
    starts.push_back(std::min(x, y));
    i += x == starts.back();
    j += y == starts.back();
  }
  return *DimGrid::cuts(a.extent(), std::move(starts));
}

}  // namespace tilewise::ir
