// Geometry::make: the index maps of every kind, and the check that no step reads two blocks of one operand.
#include "alignment.h"

#include <tilewise/ir/geometry.h>
#include <tilewise/ir/verify.h>

#include <algorithm>

namespace tilewise::ir {
namespace {

// Cost of one element of a tape. Transcendental functions weigh what they cost next to an addition.
double tape_flops(const Tape& tape) {
  double flops = 0;
  for (const TapeInstr& in : tape.code) switch (in.op) {
      case TapeOp::kLoad:
      case TapeOp::kConst: break;
      case TapeOp::kExp:
      case TapeOp::kExpm1:
      case TapeOp::kLog:
      case TapeOp::kLog1p:
      case TapeOp::kSin:
      case TapeOp::kCos:
      case TapeOp::kTan:
      case TapeOp::kTanh:
      case TapeOp::kPow:
      case TapeOp::kAtan2:
      case TapeOp::kUniform:
      case TapeOp::kRandomInt:
      case TapeOp::kRandomBelow: flops += 16; break;
      case TapeOp::kNormal: flops += 48; break;
      default: flops += 1;
    }
  return flops;
}

DimMap span_of(int dim, std::int64_t mul = 1, std::int64_t div = 1) {
  return {DimMap::Kind::kSpan, static_cast<std::int8_t>(dim), mul, div, 0, 0};
}
constexpr DimMap kWholeDim{DimMap::Kind::kWhole};
constexpr DimMap kStepDim{DimMap::Kind::kStep};

OperandMap elementwise(int rank) {
  OperandMap map;
  for (int d = 0; d < rank; ++d) map.push_back(span_of(d));
  return map;
}

std::vector<OperandMap> maps_of(const Op& op) {
  const int rank = op.space.rank();
  switch (op.kind) {
    case OpKind::kMatmul: {
      OperandMap left = elementwise(rank), right = left;  // leading dimensions: a stack of products
      left[rank - 1] = right[rank - 2] = kStepDim;
      return {left, right};
    }
    case OpKind::kMatmulPanels: return {{span_of(1), kStepDim}, {kStepDim, span_of(2)}};
    case OpKind::kCombine: {
      const auto& a = op.get<CombineAttrs>();
      OperandMap map = elementwise(rank);
      map[a.axis] = span_of(a.axis, a.fan_in);
      return std::vector<OperandMap>(op.operands.size(), map);
    }
    case OpKind::kScan: {
      OperandMap carry = elementwise(rank);  // one element a block
      const std::int8_t axis = op.get<ScanAttrs>().axis;
      carry[axis] = {DimMap::Kind::kBlock, axis};
      std::vector<OperandMap> maps{elementwise(rank)};
      if (op.operands.size() > 1) maps.push_back(std::move(carry));
      return maps;
    }
    case OpKind::kCopy: return op.get<CopyAttrs>().maps;
    case OpKind::kReshape:
      return {OperandMap(op.operands[0].view.shape.size(), kWholeDim)};  // see set_runs()
    case OpKind::kCall: {
      const auto& a = op.get<CallAttrs>();
      return a.explicit_maps.empty() ? a.maps : std::vector<OperandMap>(op.operands.size());
    }
    default: return std::vector<OperandMap>(op.operands.size(), elementwise(rank));
  }
}

}  // namespace

void Geometry::set_maps(const Op& op) {
  const std::vector<OperandMap> maps = maps_of(op);
  for (std::size_t i = 0; i < access_.size(); ++i)
    for (std::size_t d = 0; d < access_[i].dims.size(); ++d) {
      DimAccess& a = access_[i].dims[d];
      if (maps[i].empty()) continue;
      a.map = maps[i][d];
      if (a.map.mul == a.map.div) a.map.mul = a.map.div = 1;
      if (a.map.kind != DimMap::Kind::kSpan) continue;
      const DimGrid& cut = space_.dim(a.map.dim);
      a.plain =
          a.map.mul == a.map.div && a.map.before == 0 && a.map.after == 0 && cut.extent() <= a.walk.extent();
      // Not worth a list of 65,536 cuts to find out: equal counts come first.
      a.direct =
          a.plain && a.walk.count() == cut.count() && aligned(a.walk, cut) && cut.extent() == a.walk.extent();
    }
}

Status Geometry::set_step_grid() {
  std::optional<DimGrid> all;
  for (const Access& a : access_)
    for (const DimAccess& dim : a.dims) {
      if (dim.map.kind != DimMap::Kind::kStep) continue;
      std::optional<DimGrid> cuts = dim.walk.cuts();
      if (all && cuts) cuts = common_refinement(*all, *cuts);
      if (!cuts)
        return error(Errc::kShapeMismatch, "the panels of the operands have too many cuts; needs a gather");
      all = std::move(cuts);
    }
  if (!all) return {};
  mode_ = StepMode::kPanels;
  step_grid_ = std::move(*all);
  return {};
}

// Parts of k end where steps end: where they would not, panels are cut there.
Status Geometry::split_steps() {
  TW_TRY(set_step_grid());
  std::optional<DimGrid> steps = common_refinement(step_grid_, space_.dim(0));
  if (!steps) return error(Errc::kShapeMismatch, "the parts of k have too many cuts; needs a gather");
  step_grid_ = std::move(*steps);
  split_ = true;
  split_evenly_ = step_grid_.count() == space_.dim(0).count();
  return {};
}

Status Geometry::check_one_part(const Op& op) const {
  for (std::size_t i = 0; i < access_.size(); ++i)
    for (std::size_t d = 0; d < access_[i].dims.size(); ++d) {
      const DimAccess& a = access_[i].dims[d];
      bool good = true;
      switch (a.map.kind) {
        case DimMap::Kind::kWhole: good = a.walk.count() <= 1; break;
        case DimMap::Kind::kStep: break;  // the step grid refines it
        case DimMap::Kind::kBlock: good = a.walk.count() == space_.dim(a.map.dim).count(); break;
        case DimMap::Kind::kSpan:
          if (mode_ == StepMode::kJointParts && static_cast<int>(d) == joint_dim_) {
            good = a.walk.count() == a.walk.extent();  // one partial a block
          } else if (!a.direct) {
            good = spans_aligned(a.walk, space_.dim(a.map.dim), a.map);
          }
      }
      if (!good)
        return error(Errc::kShapeMismatch,
                     std::string(name_of(op.kind)) + ": a step reads several blocks of operand " +
                         std::to_string(i) + " along dimension " + std::to_string(d) + "; needs a gather");
    }
  return {};
}

Result<Geometry> Geometry::make(const Op& op, std::vector<SourceArray> sources) {
  TW_TRY(verify(op, sources, Stage::kLowered));
  Geometry g;
  g.space_ = op.space;
  g.counts_ = op.space.counts();
  g.point_count_ = op.space.block_count();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const View& view = op.operands[i].view;
    const Grid& grid = sources[i].grid;
    const Strides block_strides = c_order_strides(grid.counts());
    Access a;
    a.element_bytes = static_cast<std::int64_t>(size_of(sources[i].dtype));
    for (int d = 0; d < view.rank(); ++d) a.dims.push_back({kWholeDim, Walk::of(view, grid, d)});
    for (int s = 0; s < grid.rank(); ++s) {
      const SourceDim& dim = view.source[s];
      SourceSlot slot{grid.dim(s).count(), dim.dim, 0};
      if (dim.dim >= 0) {
        a.dims[static_cast<std::size_t>(dim.dim)].block_stride = block_strides[s];
      } else if (grid.dim(s).extent() > 0) {
        slot.fixed = grid.dim(s).find(dim.start);
        a.base += slot.fixed * block_strides[s];
      }
      a.slots.push_back(slot);
    }
    g.access_.push_back(std::move(a));
  }
  g.set_maps(op);
  for (const OutputSpec& out : op.outputs)
    g.output_bytes_ = saturating_add(
        g.output_bytes_, volume(out.grid.max_block_shape()) * static_cast<std::int64_t>(size_of(out.dtype)));

  switch (op.kind) {
    case OpKind::kMatmul: TW_TRY(g.set_step_grid()); break;
    case OpKind::kCombine:
      g.mode_ = StepMode::kJointParts;
      g.joint_dim_ = op.get<CombineAttrs>().axis;
      g.flops_of_region_ = true;
      g.flops_per_element_ = 1;
      break;
    case OpKind::kCopy: g.mode_ = StepMode::kSequentialParts; break;
    case OpKind::kReshape: TW_TRY(g.set_runs(op)); break;
    case OpKind::kMap: g.flops_per_element_ = tape_flops(op.get<MapAttrs>().tape); break;
    case OpKind::kReduceBlocks: {
      const auto& a = op.get<ReduceAttrs>();
      g.flops_per_element_ = (a.kind == ReduceKind::kMoments ? 5 : 1) + tape_flops(a.tape);
      break;
    }
    case OpKind::kMatmulPanels:
      TW_TRY(g.split_steps());
      g.flops_per_element_ = 2;
      break;
    case OpKind::kScan: g.flops_per_element_ = 2; break;
    case OpKind::kCall:
      g.flops_per_point_ = op.get<CallAttrs>().flops_per_point;
      TW_TRY(g.set_step_grid());
      break;
    default: break;
  }
  if (op.kind == OpKind::kMatmul)
    g.flops_per_element_ = 2 * static_cast<double>(op.operands[0].view.shape.back());
  if (op.kind == OpKind::kCall && !op.get<CallAttrs>().explicit_maps.empty()) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      Explicit e{op.get<CallAttrs>().explicit_maps[i], {}, {}};
      std::vector<std::pair<std::int64_t, std::uint32_t>> inverse;
      for (std::size_t p = 0; p + 1 < e.reads.offsets.size(); ++p)
        for (std::uint32_t k = e.reads.offsets[p]; k < e.reads.offsets[p + 1]; ++k)
          inverse.emplace_back(e.reads.blocks[k], static_cast<std::uint32_t>(p));
      std::sort(inverse.begin(), inverse.end());  // a point is there as often as it reads the block
      for (const auto& [block, point] : inverse) {
        e.blocks.push_back(block);
        e.points.push_back(point);
      }
      g.explicit_.push_back(std::move(e));
      g.explicit_grids_.push_back(std::move(sources[i].grid));
    }
  } else if (g.mode_ != StepMode::kSequentialParts && g.mode_ != StepMode::kRuns && g.point_count_ > 0) {
    TW_TRY(g.check_one_part(op));
  }
  return g;
}

}  // namespace tilewise::ir
