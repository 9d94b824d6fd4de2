#include "move/placing.h"

#include <algorithm>

namespace tilewise::kernels::move {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

Result<ir::Index> copy_position(const KernelCall& call, std::size_t i) {
  const std::vector<ir::OperandMap>& all = call.op->get<ir::CopyAttrs>().maps;
  const ir::OperandMap& map = all[i];
  const ir::Shape& logical = call.op->operands[i].view.shape;
  const ir::Box& part = call.input_boxes[i];
  const ir::Shape& out = call.outputs[0].shape;
  ir::Index position;
  for (std::size_t d = 0; d < map.size(); ++d) {
    std::int64_t lo = 0, hi = logical[d];
    if (map[d].kind == ir::DimMap::Kind::kSpan) {
      const auto from = static_cast<std::size_t>(map[d].dim);
      lo = floor_div(call.box.lo[from] * map[d].mul, map[d].div) - map[d].before;
      hi = -floor_div(-call.box.hi[from] * map[d].mul, map[d].div) + map[d].after;
    }
    std::int64_t least = map[d].before;
    for (const ir::OperandMap& other : all) least = std::min(least, other[d].before);
    const std::int64_t first = hi - lo == out[d] ? lo : std::max(lo, least - map[d].before);
    position.push_back(part.lo[d] - first);
    if (position[d] < 0 || position[d] + part.extent(static_cast<int>(d)) > out[d]) {
      return error(Errc::kShapeMismatch, "part " + ir::to_string(part) + " of a copy into " +
                                             ir::to_string(call.output_boxes[0]) + " lies outside it");
    }
  }
  return position;
}

}  // namespace tilewise::kernels::move
