// kMap on the host: the tape is interpreted tile by tile, each instruction a vector loop over a tile in cache. No
// temporary of the block's size exists.
#include "map/evaluator.h"
#include "map/map.h"

namespace tilewise::kernels::map {

Status supports(const ir::Op& op, const PluginTable*) {
  const auto program = Program::make(op.get<ir::MapAttrs>().tape);
  if (!program) return program.error();
  return {};
}

Status host(const KernelCall& call, const PluginTable*) {
  const TensorView& out = call.outputs[0];
  const std::int64_t total = call.box.volume();
  if (total == 0) return {};
  TW_ASSIGN(const Program program, Program::make(call.op->get<ir::MapAttrs>().tape, out.dtype));
  TW_ASSIGN(TileEvaluator evaluator, TileEvaluator::make(program, call.inputs, call.box, call.space_shape));
  const auto size = static_cast<std::int64_t>(ir::size_of(out.dtype));
  auto* to = static_cast<std::byte*>(out.data);
  for (std::int64_t begin = 0; begin < total;) {
    const std::int64_t n = evaluator.tile_at(begin, total);
    evaluator.eval(begin, n, to + begin * size);
    begin += n;
  }
  return {};
}

}  // namespace tilewise::kernels::map
