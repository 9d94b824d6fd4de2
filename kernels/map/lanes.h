// Vector loops behind tape instructions: one function for each (op, dtype), chosen once per program for the best
// instruction set of this machine. Not thread-bound; no state.
#pragma once
#include <tilewise/ir/tape.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewise::kernels::map {

// Loops advance by whole blocks of this many elements (chains by half of that where vectors are short), and pass a ragged end through a padded block, so that an
// element's bits never depend on where it stands. A splat is one block that holds the same value throughout.
constexpr int kLaneBlock = 32;

constexpr int kMaxLaneArgs = 8;  // of a chain; of other loops three

struct ChainStep;
struct LaneArgs {
  void* out = nullptr;                // n elements; may be one of `in` when sizes are equal
  const void* in[kMaxLaneArgs] = {};  // n elements, or one block for splats
  bool splat[kMaxLaneArgs] = {};
  std::int64_t n = 0;
  // For the loop of chains (chain.h).
  std::span<const ChainStep> steps;
  bool past_caches = false;  // the result goes past the caches; `out` is aligned to kStreamed
};
using LaneFn = void (*)(const LaneArgs&);

// The loop for a unary, binary or ternary op with result dtype `out` and arguments of dtype `arg` (kWhere: of b and c), both
// of those that kernels compute in (ir::compute_dtype). Null when the op does not accept them. bool arrays hold 0 or 1 in
// bytes.
LaneFn find_lane(ir::TapeOp op, ir::DType out, ir::DType arg);

// For narrow dtypes: from memory to the dtype computed in, back, and to the nearest value that the narrow one has. Null for
// dtypes that are not narrow.
LaneFn find_widen(ir::DType from);
LaneFn find_narrow(ir::DType to);
LaneFn find_fit(ir::DType to);
// From a dtype computed in to the nearest number of a 16-bit float, as a float32. Null for other `to`, and where float32 holds all
// of `from`, so that a cast to float32 and find_fit round once.
LaneFn find_round(ir::DType to, ir::DType from);
LaneFn find_truth(ir::DType from);   // from memory to bool: what is not zero
LaneFn find_nextafter(ir::DType t);  // of 16-bit floats, on float32

// Copies past the caches; `to` is aligned to kStreamed. What was stored so is seen by other threads after stream_end() only.
constexpr std::size_t kStreamed = 64;
bool can_stream();  // whether this machine's stores can do that
void stream_copy(void* to, const void* from, std::size_t bytes);
void stream_end();

// Philox blocks [first, first + n) as their little-endian words, two 64-bit values a block. See random_spec.h.
using PhiloxFn = void (*)(std::uint64_t key, std::uint64_t first, std::int64_t n, std::uint64_t* out);
PhiloxFn philox_fn();
// Fill n elements of kUniform, kNormal, kRandomInt (dtype says which) from counter `first`.
using RandomFn = void (*)(std::uint64_t key, std::uint64_t first, std::int64_t n, void* out);
RandomFn find_random(ir::TapeOp op, ir::DType dtype);  // kRandomBelow: the raw draws

const char* lane_target();  // "AVX3": the instruction set in use

}  // namespace tilewise::kernels::map
