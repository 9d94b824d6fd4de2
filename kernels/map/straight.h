// The common tape, whose operands are all contiguous or repeated: what can be decided before the first tile is, so that
// a tile costs little more than its vector loops.
#pragma once
#include "map/program.h"

namespace tilewise::kernels::map {

class StraightTape {
 public:
  struct Operand {
    const std::byte* data = nullptr;  // of element 0
    bool repeated = false;
  };
  // False where the tape is not of this kind: with other sources than loads and constants, or a result that needs no
  // loop. `operands[k]` belongs to the program's source k. `blocks`: a splat block for each instruction; `tiles`: the
  // slots, `tile_bytes` apart. Computes what depends on constants alone.
  bool build(const Program& program, const Operand* operands, std::byte* blocks, std::byte* tiles,
             std::int64_t tile_bytes);
  // As TileEvaluator::eval.
  const void* eval(std::int64_t begin, std::int64_t n, void* out);

 private:
  struct Stream {
    const std::byte* data;
    std::int64_t size;
  };
  struct Lane {
    LaneFn fn = nullptr;
    LaneArgs args;                         // complete but for what moves with the tile
    std::int8_t moving[3] = {-1, -1, -1};  // arguments that are streams
  };

  boost::container::static_vector<Stream, limits::kMaxTapeLoads> streams_;
  boost::container::static_vector<Lane, Program::kMaxCode> lanes_;
  void* slot_ = nullptr;  // of the result
};

}  // namespace tilewise::kernels::map
