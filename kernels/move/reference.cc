// Copies, element by element.
#include <algorithm>

#include "map/reference.h"
#include "move/move.h"

namespace tilewise::kernels::move {
namespace {

// Output index of operand element `at` (logical coordinates), by the maps' meaning: an output index x of a shifted
// operand shows element x - before; a window's first output element is the first element that exists, in the array that
// the operands tile.
ir::Index target_of(const KernelCall& call, std::size_t operand, const ir::Index& at) {
  const std::vector<ir::OperandMap>& maps = call.op->get<ir::CopyAttrs>().maps;
  const ir::OperandMap& map = maps[operand];
  ir::Index to = at;
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (map[d].kind != ir::DimMap::Kind::kSpan) continue;
    const bool shift = map[d].before + map[d].after == 0;
    const std::int64_t first = call.box.lo[d] - map[d].before;
    std::int64_t begins = 0;  // in that array
    for (const ir::OperandMap& other : maps) begins = std::max(begins, map[d].before - other[d].before);
    to[d] = at[d] - (shift ? first : std::max(first, -begins));
  }
  return to;
}

}  // namespace

Status reference(const KernelCall& call, const PluginTable*) {
  const TensorView& out = call.outputs[0];
  bool any = false;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorView& in = call.inputs[i];
    if (in.data == nullptr) continue;
    any = true;
    const std::int64_t total = ir::volume(in.shape);
    for (std::int64_t e = 0; e < total; ++e) {
      const ir::Index local = ir::unravel(e, in.shape);
      ir::Index at = local;
      for (std::size_t d = 0; d < at.size(); ++d) at[d] += call.input_boxes[i].lo[d];
      std::int64_t position;
      if (call.op->kind == ir::OpKind::kReshape) {
        // Same C-order position in both whole arrays.
        ir::Index first = call.output_boxes[0].lo;
        position = ir::ravel(at, call.op->operands[i].view.shape) - ir::ravel(first, call.space_shape);
        if (position < 0 || position >= ir::volume(out.shape)) continue;
      } else {
        position = ir::ravel(target_of(call, i, at), out.shape);
      }
      map::ref_store(out, position, map::ref_load(in, local));
    }
  }
  if (!any && call.step == 0) {
    for (std::int64_t e = 0; e < ir::volume(out.shape); ++e) map::ref_store(out, e, {});
  }
  return {};
}

}  // namespace tilewise::kernels::move
