// The common tape, whose operands are all contiguous or repeated: what can be decided before the first tile is, so that
// a tile costs little more than its vector loops.
#pragma once
#include <boost/container/small_vector.hpp>

#include "map/program.h"

#include <span>

namespace tilewise::kernels::map {

class StraightTape {
 public:
  struct Operand {
    const std::byte* data = nullptr;  // of element 0
    bool repeated = false;
  };
  // False where the tape is not of this kind: with other sources than loads and constants, or with a result that needs no
  // loop. `operands[k]` belongs to the program's source k. `blocks`: a splat block for each instruction; `tiles`: the
  // slots, `tile_bytes` apart. Computes what depends on constants alone.
  bool build(const Program& program, const Operand* operands, std::byte* blocks, std::byte* tiles,
             std::int64_t tile_bytes);
  // This result stays in its slot until the tile's last loop has run, and is copied then.
  void stage(std::size_t result) { results_[result].staged = true; }
  // This result goes past the caches. Only where no later loop reads it; false: it stays as it was.
  bool store_past_caches(std::size_t result);
  // Elements [begin, begin + n) of each result at its `outs`, `tile` at a time: what moves is set once and then moves on.
  void sweep(std::int64_t begin, std::int64_t n, std::int64_t tile, std::span<std::byte* const> outs);

 private:
  struct Moving {  // an argument that moves with the tile
    std::uint16_t lane = 0;
    std::uint8_t arg = 0;
    const std::byte* data = nullptr;  // of element 0
    std::int64_t size = 1;            // of an element
  };
  struct Lane {
    LaneFn fn = nullptr;
    LaneArgs args;  // complete but for what moves
  };
  struct Result {
    std::uint16_t lane = 0;
    std::int64_t size = 1;  // of an element
    const void* slot = nullptr;
    bool staged = false, past_caches = false;  // the latter: as it is copied from its slot
  };
  struct Reader {  // an argument that is a result: read where that is written
    std::uint16_t lane = 0;
    std::uint8_t arg = 0, result = 0;
  };

  boost::container::small_vector<Moving, 16> moving_;
  boost::container::small_vector<Lane, 16> lanes_;
  boost::container::static_vector<Result, limits::kMaxOutputs> results_;
  boost::container::small_vector<Reader, 8> readers_;
};

}  // namespace tilewise::kernels::map
