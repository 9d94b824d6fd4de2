// Geometry of kReshape: both sides are cut into runs of one C order, so a point reads the runs that meet its own.
#include <tilewise/ir/geometry.h>

#include <algorithm>

namespace tilewise::ir {

Status Geometry::set_runs(const Op& op) {
  mode_ = StepMode::kRuns;
  if (point_count_ == 0) return {};
  const Access& a = access_[0];
  const Shape& shape = op.operands[0].view.shape;
  Shape parts;
  for (const DimAccess& dim : a.dims) parts.push_back(dim.walk.count());
  const std::optional<RunOrder> from = RunOrder::of(shape, parts), to = RunOrder::of(space_.shape(), counts_);
  if (!from || !to)
    return error(Errc::kShapeMismatch,
                 "reshape: its operand must be cut into runs of its C order; needs a gather");
  runs_.emplace(
      RunPair{{*from, from->dim < 0 ? Walk::broadcast(1) : a.dims[static_cast<std::size_t>(from->dim)].walk},
              {*to, to->dim < 0 ? DimGrid::whole(1) : space_.dim(to->dim)}});
  return {};
}

std::int64_t Geometry::run_steps(const Index& point) const {
  const std::int64_t run = ravel(point, counts_);
  return runs_->from.find(runs_->to.end(run) - 1) - runs_->from.find(runs_->to.begin(run)) + 1;
}

void Geometry::read_run(const Index& point, std::int64_t step, std::vector<Read>& out) const {
  const std::int64_t run = ravel(point, counts_), begin = runs_->to.begin(run), end = runs_->to.end(run);
  const RunOrder& order = runs_->from.order();
  const std::int64_t part = runs_->from.find(begin) + step;
  const std::int64_t lo = std::max(begin, runs_->from.begin(part)), hi = std::min(end, runs_->from.end(part));
  const Access& a = access_[0];
  const auto rank = static_cast<int>(a.dims.size());
  Read& read = out.emplace_back();
  read.block = a.base;
  read.region.lo.resize(rank, 0);
  read.region.hi.resize(rank, 0);
  std::int64_t row = part / order.per_row;
  for (int d = rank - 1; d >= 0; --d) {
    const Walk& walk = a.dims[static_cast<std::size_t>(d)].walk;
    std::int64_t at = 0;  // the part along d
    if (d < order.dim) {
      at = row % walk.extent();
      row /= walk.extent();
      read.region.lo[d] = at;
      read.region.hi[d] = at + 1;
    } else if (d == order.dim) {  // whole indices of it, though the run may want less of the first and last
      at = part % order.per_row;
      const std::int64_t first = part / order.per_row * order.row;
      read.region.lo[d] = (lo - first) / order.inner;
      read.region.hi[d] = ceil_div(hi - first, order.inner);
    } else {
      read.region.hi[d] = walk.extent();
    }
    read.block += walk.block(at) * a.dims[static_cast<std::size_t>(d)].block_stride;
  }
}

void Geometry::run_users(std::int64_t block, std::vector<Users>& out) const {
  const Access& a = access_[0];
  const RunOrder& order = runs_->from.order();
  Index parts(a.dims.size(), 0);
  for (int s = static_cast<int>(a.slots.size()) - 1; s >= 0; --s) {
    const SourceSlot& slot = a.slots[s];
    const std::int64_t at = s == 0 ? block : block % slot.count;
    block /= slot.count;
    if (slot.dim < 0
            ? at != slot.fixed
            : (parts[slot.dim] = a.dims[static_cast<std::size_t>(slot.dim)].walk.part_of_block(at)) < 0)
      return;
  }
  std::int64_t part = 0;
  for (int d = 0; d < order.dim; ++d)
    part = part * a.dims[static_cast<std::size_t>(d)].walk.extent() + parts[d];
  if (order.dim >= 0) part = part * order.per_row + parts[order.dim];
  boxes_of_range(runs_->to.find(runs_->from.begin(part)), runs_->to.find(runs_->from.end(part) - 1) + 1,
                 counts_, [&](const Box& points) {
                   out.push_back({points, 1});
                 });
}

}  // namespace tilewise::ir
