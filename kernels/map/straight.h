// The common tape, whose operands are all contiguous or repeated: what can be decided before the first tile is, so that
// a tile costs little more than its vector loops.
#pragma once
#include <boost/container/small_vector.hpp>

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
  // Elements [begin, begin + n) at `out`, `tile` at a time: what moves is set once and then moves on.
  void sweep(std::int64_t begin, std::int64_t n, std::int64_t tile, std::byte* out);

 private:
  struct Stream {  // an argument that moves with the tile
    std::uint16_t lane = 0;
    std::uint8_t arg = 0;
    const std::byte* data = nullptr;  // of element 0
    std::int64_t size = 1;            // of an element
  };
  struct Lane {
    LaneFn fn = nullptr;
    LaneArgs args;  // complete but for what moves
  };

  boost::container::small_vector<Stream, 16> streams_;
  boost::container::small_vector<Lane, 16> lanes_;
  std::int64_t out_size_ = 1;  // of an element of it
};

}  // namespace tilewise::kernels::map
