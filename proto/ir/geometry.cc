// The queries of Geometry. They run once or more per task, so: no allocation, no division where cuts agree.
#include <tilewise/ir/geometry.h>

#include <algorithm>
#include <utility>

namespace tilewise::ir {
namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 62;

// floor(x * mul / div), kept within +-2^62: further out everything is clipped alike. mul, div > 0.
std::int64_t scale_floor(std::int64_t x, std::int64_t mul, std::int64_t div) {
  std::int64_t product;
  if (!__builtin_mul_overflow(x, mul, &product)) return std::clamp(floor_div(product, div), -kFar, kFar);
  const __int128 wide = static_cast<__int128>(x) * mul;
  const __int128 q = wide / div - (wide % div < 0);
  return q > kFar ? kFar : q < -kFar ? -kFar : static_cast<std::int64_t>(q);
}
std::int64_t scale_ceil(std::int64_t x, std::int64_t mul, std::int64_t div) {
  return -scale_floor(-x, mul, div);
}

}  // namespace

void apply_span(const DimMap& map, std::int64_t& lo, std::int64_t& hi) {
  if (map.mul != map.div) {
    lo = scale_floor(lo, map.mul, map.div);
    hi = scale_ceil(hi, map.mul, map.div);
  }
  lo -= map.before;
  hi += map.after;
}

Geometry::Span Geometry::dim_span(const DimAccess& a, const Index& point, std::int64_t step) const {
  switch (a.map.kind) {
    case DimMap::Kind::kSpan: {
      const DimGrid& cut = space_.dim(a.map.dim);
      const std::int64_t p = point[a.map.dim];
      std::int64_t lo = cut.begin(p), hi = cut.end(p);
      if (a.plain) return {lo, hi};
      apply_span(a.map, lo, hi);
      return {std::max<std::int64_t>(lo, 0), std::min(hi, a.walk.extent())};
    }
    case DimMap::Kind::kWhole: return {0, a.walk.extent()};
    case DimMap::Kind::kStep:
      if (step_grid_.count() == 0) return {0, 0};
      if (split_) step += first_step(point);
      return {step_grid_.begin(step), step_grid_.end(step)};
    case DimMap::Kind::kBlock: return {a.walk.begin(point[a.map.dim]), a.walk.end(point[a.map.dim])};
  }
  return {};
}

std::int64_t Geometry::first_step(const Index& point) const {
  return split_evenly_ ? point[0] : step_grid_.find(space_.dim(0).begin(point[0]));
}

std::int64_t Geometry::step_count(const Index& point) const {
  if (!split_) return std::max<std::int64_t>(1, step_grid_.count());
  return split_evenly_ ? 1 : step_grid_.find(space_.dim(0).end(point[0]) - 1) - first_step(point) + 1;
}

Geometry::Span Geometry::task_span(const DimAccess& a, const Index& point) const {
  if (a.map.kind == DimMap::Kind::kStep) {
    if (split_) return {space_.dim(0).begin(point[0]), space_.dim(0).end(point[0])};
    return {0, a.walk.extent()};
  }
  return dim_span(a, point, 0);
}

std::int64_t Geometry::parts(const Access& a, const Index& point) const {
  std::int64_t n = 1;
  for (const DimAccess& dim : a.dims) {
    const Span s = dim_span(dim, point, 0);
    if (s.lo >= s.hi) return 0;
    if (!dim.direct) n *= dim.walk.part_of(s.hi - 1) - dim.walk.part_of(s.lo) + 1;
  }
  return n;
}

std::int64_t Geometry::steps(const Index& point) const {
  switch (mode_) {
    case StepMode::kSingle: return 1;
    case StepMode::kPanels: return step_count(point);
    case StepMode::kJointParts: {
      const Span s = dim_span(access_[0].dims[static_cast<std::size_t>(joint_dim_)], point, 0);
      return std::max<std::int64_t>(1, s.hi - s.lo);
    }
    case StepMode::kSequentialParts: {
      std::int64_t n = 0;
      for (const Access& a : access_) n += parts(a, point);
      return std::max<std::int64_t>(1, n);
    }
    case StepMode::kRuns: return run_steps(point);
  }
  return 1;
}

bool Geometry::read_whole(std::size_t operand, const Index& point, std::int64_t step, Read& read) const {
  const Access& a = access_[operand];
  read.operand = static_cast<std::uint8_t>(operand);
  std::int64_t block = a.base;
  const auto rank = static_cast<int>(a.dims.size());
  read.region.lo.resize(rank, boost::container::default_init);
  read.region.hi.resize(rank, boost::container::default_init);
  for (int d = 0; d < rank; ++d) {
    const DimAccess& dim = a.dims[static_cast<std::size_t>(d)];
    Span s = dim_span(dim, point, step);
    if (d == joint_dim_) s = {s.lo + step, std::min(s.hi, s.lo + step + 1)};
    if (s.lo >= s.hi) return false;
    if (dim.block_stride != 0)
      block += dim.walk.block(dim.direct ? point[dim.map.dim] : dim.walk.part_of(s.lo)) * dim.block_stride;
    read.region.lo[d] = s.lo;
    read.region.hi[d] = s.hi;
  }
  read.block = block;
  return true;
}

void Geometry::read_part(const Index& point, std::int64_t step, std::vector<Read>& out) const {
  for (std::size_t o = 0; o < access_.size(); ++o) {
    const Access& a = access_[o];
    const std::int64_t n = parts(a, point);
    if (step >= n) {
      step -= n;
      continue;
    }
    const auto rank = static_cast<int>(a.dims.size());
    Read& read = out.emplace_back();
    read.operand = static_cast<std::uint8_t>(o);
    read.block = a.base;
    read.region.lo.resize(rank, boost::container::default_init);
    read.region.hi.resize(rank, boost::container::default_init);
    for (int d = rank - 1; d >= 0; --d) {
      const DimAccess& dim = a.dims[static_cast<std::size_t>(d)];
      Span s = dim_span(dim, point, 0);
      std::int64_t part = !dim.direct ? dim.walk.part_of(s.lo) : point[dim.map.dim];
      if (!dim.direct) {
        const std::int64_t along = dim.walk.part_of(s.hi - 1) - part + 1;
        part += step % along;
        step /= along;
        s = {std::max(s.lo, dim.walk.begin(part)), std::min(s.hi, dim.walk.end(part))};
      }
      read.block += dim.walk.block(part) * dim.block_stride;
      read.region.lo[d] = s.lo;
      read.region.hi[d] = s.hi;
    }
    return;
  }
}

void Geometry::read_explicit(const Index& point, std::vector<Read>& out) const {
  const auto p = static_cast<std::size_t>(ravel(point, counts_));
  for (std::size_t o = 0; o < explicit_.size(); ++o) {
    const ExplicitMap& map = explicit_[o].reads;
    for (std::uint32_t k = map.offsets[p]; k < map.offsets[p + 1]; ++k) {
      Read& read = out.emplace_back();
      read.operand = static_cast<std::uint8_t>(o);
      read.block = map.blocks[k];
      const Grid& grid = explicit_grids_[o];
      std::int64_t at = read.block;
      read.region.lo.resize(grid.rank(), boost::container::default_init);
      read.region.hi.resize(grid.rank(), boost::container::default_init);
      for (int d = grid.rank() - 1; d >= 0; --d) {
        const DimGrid& dim = grid.dim(d);
        const std::int64_t part = d == 0 ? at : at % dim.count();
        if (d > 0) at /= dim.count();
        read.region.lo[d] = dim.begin(part);
        read.region.hi[d] = dim.end(part);
      }
    }
  }
}

void Geometry::reads(const Index& point, std::int64_t step, std::vector<Read>& out) const {
  out.clear();
  if (!explicit_.empty()) return read_explicit(point, out);
  if (mode_ == StepMode::kSequentialParts) return read_part(point, step, out);
  if (mode_ == StepMode::kRuns) return read_run(point, step, out);
  for (std::size_t o = 0; o < access_.size(); ++o)
    if (!read_whole(o, point, step, out.emplace_back())) out.pop_back();
}

// Intersects `users` with the points that read `part`; false when none are left.
bool Geometry::narrow(Users& users, const DimAccess& a, std::int64_t part) const {
  std::int64_t from = part, to = part + 1;
  switch (a.map.kind) {
    case DimMap::Kind::kWhole: return true;
    case DimMap::Kind::kBlock: break;
    case DimMap::Kind::kStep:
      if (split_) {
        users.points.lo[0] = space_.dim(0).find(a.walk.begin(part));
        users.points.hi[0] = space_.dim(0).find(a.walk.end(part) - 1) + 1;
        return true;
      }
      users.steps_each *= step_grid_.find(a.walk.end(part) - 1) - step_grid_.find(a.walk.begin(part)) + 1;
      return true;
    case DimMap::Kind::kSpan: {
      if (a.direct) break;
      // Point p reads [floor(lo*mul/div) - before, ceil(hi*mul/div) + after). It meets [begin, end) when
      //   hi*mul/div > begin - after, so hi - 1 >= floor((begin - after)*div/mul), and
      //   floor(lo*mul/div) < end + before, so lo < ceil((end + before)*div/mul).
      // Both bounds rise with p, and a region is empty only by clipping, so the points are a range.
      const DimGrid& cut = space_.dim(a.map.dim);
      const std::int64_t first = scale_floor(a.walk.begin(part) - a.map.after, a.map.div, a.map.mul);
      const std::int64_t last = scale_ceil(a.walk.end(part) + a.map.before, a.map.div, a.map.mul) - 1;
      from = first < 0 ? 0 : first >= cut.extent() ? cut.count() : cut.find(first);
      to = last < 0 ? 0 : last >= cut.extent() ? cut.count() : cut.find(last) + 1;
    }
  }
  std::int64_t& lo = users.points.lo[a.map.dim];
  std::int64_t& hi = users.points.hi[a.map.dim];
  lo = std::max(lo, from);
  hi = std::min(hi, to);
  return lo < hi;
}

// [lo, hi) of k is read by points of `out`, which has one entry: as many steps each as its part of k has in there.
void Geometry::users_by_part(std::int64_t lo, std::int64_t hi, std::vector<Users>& out) const {
  const Users all = std::move(out[0]);
  out.clear();
  for (std::int64_t part = all.points.lo[0]; part < all.points.hi[0]; ++part) {
    const std::int64_t from = std::max(lo, space_.dim(0).begin(part)),
                       to = std::min(hi, space_.dim(0).end(part));
    Users& users = out.emplace_back(all);
    users.points.lo[0] = part;
    users.points.hi[0] = part + 1;
    users.steps_each = step_grid_.find(to - 1) - step_grid_.find(from) + 1;
  }
}

void Geometry::users_explicit(int operand, std::int64_t block, std::vector<Users>& out) const {
  const Explicit& e = explicit_[static_cast<std::size_t>(operand)];
  auto at = std::lower_bound(e.blocks.begin(), e.blocks.end(), block);
  std::int64_t before = -1;
  for (; at != e.blocks.end() && *at == block; ++at) {
    const std::int64_t point = e.points[static_cast<std::size_t>(at - e.blocks.begin())];
    if (std::exchange(before, point) == point) {
      ++out.back().steps_each;  // its one step reads it once more
      continue;
    }
    Users& users = out.emplace_back();
    users.points.lo = users.points.hi = unravel(point, counts_);
    for (std::int64_t& hi : users.points.hi) ++hi;
  }
}

void Geometry::users(int operand, std::int64_t block, std::vector<Users>& out) const {
  out.clear();
  if (point_count_ == 0) return;
  if (!explicit_.empty()) return users_explicit(operand, block, out);
  if (mode_ == StepMode::kRuns) return run_users(block, out);
  const Access& a = access_[static_cast<std::size_t>(operand)];
  Users& users = out.emplace_back();
  users.points.lo.resize(counts_.size(), 0);
  users.points.hi = counts_;
  // Panels: an operand that is not swept is read in every step.
  if (mode_ == StepMode::kPanels && std::none_of(a.dims.begin(), a.dims.end(), [](const DimAccess& dim) {
        return dim.map.kind == DimMap::Kind::kStep;
      }))
    users.steps_each = std::max<std::int64_t>(1, step_grid_.count());
  bool any = true;
  Span stepped;
  for (int s = static_cast<int>(a.slots.size()) - 1; any && s >= 0; --s) {
    const SourceSlot& slot = a.slots[s];
    const std::int64_t at = s == 0 ? block : block % slot.count;
    block /= slot.count;
    if (slot.dim < 0) {
      any = at == slot.fixed;
      continue;
    }
    const DimAccess& dim = a.dims[static_cast<std::size_t>(slot.dim)];
    const std::int64_t part = dim.walk.part_of_block(at);
    any = part >= 0 && narrow(users, dim, part);
    if (dim.map.kind == DimMap::Kind::kStep && any) stepped = {dim.walk.begin(part), dim.walk.end(part)};
  }
  for (const DimAccess& dim : a.dims)
    if (any && dim.block_stride == 0) any = dim.walk.count() > 0 && narrow(users, dim, 0);
  if (!any) return out.clear();
  // Along a dimension that repeats, all of k is one part.
  if (split_ && !split_evenly_)
    users_by_part(stepped.lo, stepped.hi > 0 ? stepped.hi : space_.dim(0).extent(), out);
}

std::int64_t Geometry::output_bytes_bound() const { return output_bytes_; }

double Geometry::flops(const Index& point) const {
  if (flops_per_element_ == 0) return flops_per_point_;
  double elements = 1;
  if (flops_of_region_) {
    for (const DimAccess& dim : access_[0].dims) {
      const Span s = task_span(dim, point);
      elements *= static_cast<double>(std::max<std::int64_t>(0, s.hi - s.lo));
    }
  } else {
    for (int d = 0; d < space_.rank(); ++d) elements *= static_cast<double>(space_.dim(d).size(point[d]));
  }
  return elements * flops_per_element_;
}

std::int64_t Geometry::bytes_read(const Index& point) const {
  std::int64_t bytes = 0;
  if (!explicit_.empty()) {
    const auto p = static_cast<std::size_t>(ravel(point, counts_));
    for (std::size_t o = 0; o < explicit_.size(); ++o) {
      const ExplicitMap& map = explicit_[o].reads;
      for (std::uint32_t k = map.offsets[p]; k < map.offsets[p + 1]; ++k)
        bytes = saturating_add(
            bytes, explicit_grids_[o].box(unravel(map.blocks[k], explicit_grids_[o].counts())).volume() *
                       access_[o].element_bytes);
    }
    return bytes;
  }
  if (mode_ == StepMode::kRuns) return space_.box(point).volume() * access_[0].element_bytes;
  for (const Access& a : access_) {
    std::int64_t elements = 1;
    bool empty = false;
    for (const DimAccess& dim : a.dims) {
      const Span s = task_span(dim, point);
      empty |= s.lo >= s.hi;
      if (dim.block_stride != 0) elements *= s.hi - s.lo;  // what repeats is read once
    }
    if (!empty) bytes = saturating_add(bytes, elements * a.element_bytes);
  }
  return bytes;
}

BlockWindow window(const View& view, const Grid& source, std::int64_t block, const Box& region) {
  BlockWindow w;
  w.strides.resize(view.shape.size(), 0);
  std::int64_t stride = 1;
  for (int s = source.rank() - 1; s >= 0; --s) {
    const DimGrid& grid = source.dim(s);
    const std::int64_t at = s == 0 ? block : block % grid.count();
    block /= grid.count();
    const SourceDim& dim = view.source[s];
    const std::int64_t first = dim.dim < 0 ? dim.start : dim.start + dim.step * region.lo[dim.dim];
    w.offset += (first - grid.begin(at)) * stride;
    if (dim.dim >= 0) w.strides[dim.dim] = dim.step * stride;
    stride *= grid.size(at);
  }
  return w;
}

Box copy_destination(const Op& op, const Box& span, int operand, const Box& region) {
  const auto& all = op.get<CopyAttrs>().maps;
  const OperandMap& map = all[static_cast<std::size_t>(operand)];
  Box to = region;
  for (int d = 0; d < region.rank(); ++d) {
    // Several operands tile one array, and the first index of it is that of the operand with the least shift.
    std::int64_t least = map[d].before;
    for (const OperandMap& other : all) least = std::min(least, other[d].before);
    std::int64_t origin = span.lo[d] - map[d].before;
    if (op.operands.size() == 1 || map[d].before + map[d].after != 0)
      origin = std::max(origin, least - map[d].before);
    to.lo[d] -= origin;
    to.hi[d] -= origin;
  }
  return to;
}

}  // namespace tilewise::ir
