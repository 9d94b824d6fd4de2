// kMap on the host: the tape is interpreted tile by tile, each instruction a vector loop over a tile in cache. No
// temporary of the block's size exists.
#include <array>
#include <cstring>

#include "map/evaluator.h"
#include "map/map.h"

namespace tilewise::kernels::map {

Status supports(const ir::Op& op, const PluginTable*) {
  const auto program = Program::make(op.get<ir::MapAttrs>().tape);
  if (!program) return program.error();
  return {};
}

Status host(const KernelCall& call, const PluginTable*) {
  const std::int64_t total = call.box.volume();
  if (total == 0) return {};
  TW_ASSIGN(const Program program, Program::make(call.op->get<ir::MapAttrs>().tape));
  TW_ASSIGN(TileEvaluator evaluator, TileEvaluator::make(program, call.inputs, call.box, call.space_shape));
  if (evaluator.in_place()) {
    const TensorView& out = call.outputs[0];
    const void* at = evaluator.eval(0, total, out.data);
    if (at != out.data) std::memcpy(out.data, at, static_cast<std::size_t>(total) * ir::size_of(out.dtype));
    return {};
  }
  std::array<std::byte*, limits::kMaxOutputs> outs{};
  for (std::size_t i = 0; i < call.outputs.size(); ++i)
    outs[i] = static_cast<std::byte*>(call.outputs[i].data);
  evaluator.eval_all(total, {outs.data(), call.outputs.size()}, evaluator.outgrows_caches(total));
  return {};
}

}  // namespace tilewise::kernels::map
