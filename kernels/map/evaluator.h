// Runs a program over a region, tile by tile, without temporaries larger than a tile.
#pragma once
#include <tilewise/kernels/kernels.h>

#include "common/strided.h"
#include "map/evaluator_memory.h"
#include "map/program.h"
#include "map/straight.h"

#include <array>
#include <span>

namespace tilewise::kernels::map {

// One step of one task on one thread. Elements are numbered in C order of `box`. An element's bits depend neither on
// the tile it falls in nor on its position there.
class TileEvaluator {
 public:
  // `inputs[i]` is operand i, of the box's shape. kShapeMismatch, or kInternal for an operand without memory.
  static Result<TileEvaluator> make(const Program& program, std::span<const TensorView> inputs,
                                    const ir::Box& box, const ir::Shape& space_shape);

  // The program only passes on contiguous memory: eval() returns addresses into it, which stay valid.
  bool in_place() const { return in_place_; }
  // Elements [begin, begin + n), contiguous in the result dtype: where they are if in_place(), else tile by tile at `buffer`,
  // which is returned. `buffer` may be an operand's memory only where that operand is read element by element in place
  // (the same address for the same element). Of a program of one result.
  const void* eval(std::int64_t begin, std::int64_t n, void* buffer);
  // Whether half the last-level cache is too small for `total` elements of what is read in order and of what is written.
  bool outgrows_caches(std::int64_t total) const;
  // The same `total` elements of every result, each at its own memory, to which the same applies; once. `past_caches`: stored
  // past them where that can be done (memory is then not read before it is written); how many results are, is returned.
  int eval_all(std::int64_t total, std::span<std::byte* const> outs, bool past_caches);

 private:
  struct Source {
    Collapsed where;
    const std::byte* data = nullptr;  // loads
    std::int64_t size = 1;            // of their elements
    std::int64_t first = 0;           // value or counter of element 0 (iota, random)
    bool in_order() const { return where.is_flat() && where.stride() == 1; }
    // Loads across the grain of memory (transposed operands): some rows at a time are brought into C order here.
    std::byte* strip = nullptr;
    std::int64_t strip_rows = 0;  // at most; 0: not read in strips
    std::int64_t strip_at = -1;   // first row held
    std::int64_t pitch() const {
      return where.run() + 64 / size;
    }  // keeps rows out of each other's cache sets
    std::int64_t strip_bytes() const { return (strip_rows * pitch() * size + 63) / 64 * 64; }
  };
  struct Value {
    const void* data = nullptr;
    bool splat = false;
  };
  using Outs = std::array<std::byte*, limits::kMaxOutputs>;  // of the results, where the tile begins

  explicit TileEvaluator(const Program& program) : program_(&program) {}
  void allocate();
  // A good number of elements for the tile at `begin`, so that rows are read in place; at most end - begin.
  std::int64_t tile_at(std::int64_t begin, std::int64_t end) const;
  void eval_tile(std::int64_t begin, std::int64_t n, const Outs& outs);
  void sweep(std::int64_t begin, std::int64_t n, Outs outs);
  // Whether an instruction behind the one that gives this result reads the operand whose memory the result takes.
  bool overtakes(std::size_t result, std::int64_t total, const std::byte* out) const;
  int store_past_caches(std::span<std::byte* const> outs);
  Status bind(std::span<const TensorView> inputs, const ir::Box& box, const ir::Shape& space_shape);
  bool build_straight();
  // Where an instruction's result goes: a tile's worth, or one block if it is the same for every element.
  std::byte* block(const ProgramInstr& in) const {
    return memory_.get() + (&in - program_->code.data()) * kLaneBlock * program_->width;
  }
  std::byte* slot(const ProgramInstr& in) const {
    return tiles_ + std::int64_t{in.slot} * tile_ * program_->width;
  }
  Value load(const ProgramInstr& in, std::int64_t begin, std::int64_t n);
  Value load_strips(const ProgramInstr& in, std::int64_t begin, std::int64_t n);
  static void plan_strips(Source& source);
  static const std::byte* strip_row(Source& source, std::int64_t row);
  Value iota(const ProgramInstr& in, std::int64_t begin, std::int64_t n) const;
  Value random(const ProgramInstr& in, std::int64_t begin, std::int64_t n) const;
  Value random_below(const ProgramInstr& in, Value bound, std::int64_t begin, std::int64_t n) const;
  Value lane(const ProgramInstr& in, std::int64_t n, void* out) const;

  const Program* program_;
  TileMemory memory_;  // a block for each instruction; then the slots, then strips
  std::byte* tiles_ = nullptr;
  StraightTape straight_;
  bool is_straight_ = false, in_place_ = false;
  std::int64_t tile_ = 0, row_ = 0;
  boost::container::static_vector<Source, limits::kMaxTapeInstructions> sources_;
  boost::container::small_vector<Value, 64> values_;
  // Results that wait in their slots until the tile's last instruction has run.
  std::array<bool, limits::kMaxOutputs> staged_{};
};

}  // namespace tilewise::kernels::map
