// An op reads pieces instead of an operand's blocks.
#include <tilewise/place/pieces.h>

namespace tilewise::place {
namespace {

// What the operand shows of the box; `repeating`: with the dimensions that repeat.
Result<ir::View> view_of(const ir::View& whole, const ir::Box& box, bool repeating) {
  ir::View view = whole;
  for (int d = 0; d < whole.rank(); ++d) {
    if (!whole.source_of(d)) continue;
    TW_ASSIGN(view, view.slice(d, box.lo[d], box.hi[d], 1));
  }
  if (repeating) return view;
  for (int d = whole.rank() - 1; d >= 0; --d) {
    if (whole.source_of(d)) continue;
    view.shape.erase(view.shape.begin() + d);
    for (ir::SourceDim& s : view.source)
      if (s.dim > d) s.dim = static_cast<std::int8_t>(s.dim - 1);
  }
  return view;
}

// What the pieces' array shows in the operand's stead.
ir::View shown(const ir::View& whole, const ir::Box& box) {
  ir::View view;
  for (int d = 0; d < whole.rank(); ++d) {
    view.shape.push_back(whole.source_of(d) ? box.extent(d) : whole.shape[d]);
    if (whole.source_of(d)) view.source.push_back({static_cast<std::int8_t>(d), 0, 1});
  }
  return view;
}

}  // namespace

Status cut_operand(ir::Op& op, const Cut& cut, const ir::NewArray& new_array, std::vector<ir::Op>& makers) {
  const ir::Operand whole = op.operands[cut.operand];
  std::vector<ir::Operand> operands;
  std::vector<ir::OperandMap> maps;
  const bool copies = op.kind == ir::OpKind::kCopy;
  for (const CutPart& part : cut.parts) {
    if (copies) {
      ir::OperandMap& map = maps.emplace_back(op.get<ir::CopyAttrs>().maps[cut.operand]);
      for (int d = 0; d < part.box.rank(); ++d)
        map[d].before += part.box.lo[d], map[d].after -= part.box.lo[d];
    }
    if (!part.apart) {
      TW_ASSIGN(ir::View view, view_of(whole.view, part.box, true));
      operands.push_back({whole.array, std::move(view)});
      continue;
    }
    ir::Op& maker = makers.emplace_back();
    maker.kind = ir::OpKind::kCopy;
    TW_ASSIGN(ir::View view, view_of(whole.view, part.box, false));
    maker.operands = {{whole.array, std::move(view)}};
    maker.space = part.pieces;
    maker.outputs = {{new_array(), cut.source.dtype, part.pieces}};
    maker.label = op.label;
    ir::OperandMap map;
    for (int d = 0; d < part.pieces.rank(); ++d)
      map.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
    maker.attrs = ir::CopyAttrs{{std::move(map)}};
    operands.push_back({maker.outputs[0].array, shown(whole.view, part.box)});
  }
  const auto at = op.operands.begin() + cut.operand;
  op.operands.insert(op.operands.erase(at), operands.begin(), operands.end());
  if (!copies) return {};
  ir::CopyAttrs attrs = op.get<ir::CopyAttrs>();
  attrs.maps.insert(attrs.maps.erase(attrs.maps.begin() + cut.operand), maps.begin(), maps.end());
  op.attrs = std::move(attrs);
  return {};
}

}  // namespace tilewise::place
