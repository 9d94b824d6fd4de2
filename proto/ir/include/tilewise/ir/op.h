// Ops: the nodes of the expression graph, as users write them and as passes lower them.
#pragma once
#include <tilewise/base/file_stamp.h>
#include <tilewise/base/id.h>
#include <tilewise/ir/tape.h>
#include <tilewise/ir/view.h>

#include <string>
#include <variant>
#include <vector>

namespace tilewise::ir {

// clang-format off
enum class OpKind : std::uint8_t {
  kMap,           // outs[..][i] = tape(operands[i]), one output or several; no operands: fill, ranges, random
  kReduce,        // as users write it: whole reduction over axes, reduced extents become 1. Lowered away
  kReduceBlocks,  // lowered: each block of the space reduced to extent 1 along axes (out has one element per block)
  kCombine,       // lowered: one level of the fixed tree over such partials, `fan_in` blocks at a time
  kMatmul,        // (..., M,K) x (..., K,N), k panel by panel in rising order into one output block
  kMatmulPanels,  // lowered: out[(part,) M, N] = the product of one part of k, panel by panel, summed later by kCombine
  kCopy,          // gathers: out box from any source blocks (reblock, materialised views, concat, halo windows)
  kReshape,       // C-order reshape: both sides cut into runs of their C order (runs.h)
  kReadNpy,       // out block = that box of a .npy file
  kWriteNpy,      // writes each operand block into a .npy file; out: int64, one element per block (bytes written)
  kCall,          // a plug-in kernel
  kFetch,         // the client's wish: its operand's blocks are pushed to a client's device. No output, no kernel
  kProvide,       // blocks that a client's memory holds and offers; placed on the client's device. No operands, no kernel
  kScan,          // running sums or products along an axis. Lowered: of each block alone, after a carry if there are two operands
  kKeep,          // the scheduler's: copies of its operand's blocks on other devices, kept while the array is held. No output, no kernel
};
// clang-format on
std::string_view name_of(OpKind kind);

enum class ReduceKind : std::uint8_t { kSum, kProd, kMin, kMax, kAny, kAll, kArgMin, kArgMax, kMoments };
std::string_view name_of(ReduceKind kind);

// kMoments: what mean and variance of real floats are made of, in one pass. Lowered ops write and join four arrays: the
// number of elements, their sum (in their dtype, bit for bit what kSum gives), the mean less sum / number, and the
// sum of squares of what is left after the mean. As users write it: the squares, and the sum if there is a second output.
enum MomentPart : std::uint8_t { kMomentCount, kMomentSum, kMomentShift, kMomentSquares };
constexpr std::size_t kMomentParts = 4;

// What a scan writes for elements x0, x1, ... of a line: kInclusive x0, x0 + x1, ...; lowered only: kExclusive the carry
// (or the neutral element), carry + x0, ...; kTotal one element a block and line, the last that kInclusive would write.
enum class ScanMode : std::uint8_t { kInclusive, kExclusive, kTotal };

// One operand: an array read through a view. `array` is whatever names arrays at this stage: a session's number in a
// submission, an ArrayId in a plan.
struct Operand {
  std::uint64_t array = 0;
  View view;
  friend bool operator==(const Operand&, const Operand&) = default;
};

// How the region of one logical operand dimension follows from a point of the op's iteration space.
//   kSpan: the span [lo, hi) of space dimension `dim` becomes [floor(lo*mul/div) - before, ceil(hi*mul/div) + after)
//   kWhole: everything      kStep: the span of the current step (k panel)
//   kBlock: the operand's own block with the point's index along `dim` (lowered only; counts are equal)
// then clipped to the operand's extent. `before`/`after` may be negative: {before=-o, after=o} shifts by o; their sum
// may not, so that no region is empty but by clipping.
struct DimMap {
  enum class Kind : std::uint8_t { kSpan, kWhole, kStep, kBlock } kind = Kind::kSpan;
  std::int8_t dim = 0;
  std::int64_t mul = 1, div = 1, before = 0, after = 0;
  friend bool operator==(const DimMap&, const DimMap&) = default;
};
using OperandMap = PerDim<DimMap>;  // one per logical operand dimension

// An explicit index map: point p reads blocks list[offsets[p]..offsets[p+1]) of the operand, in that order.
struct ExplicitMap {
  std::vector<std::uint32_t> offsets;
  std::vector<std::int64_t> blocks;
  friend bool operator==(const ExplicitMap&, const ExplicitMap&) = default;
};

struct MapAttrs {
  Tape tape;
  friend bool operator==(const MapAttrs&, const MapAttrs&) = default;
};
struct ReduceAttrs {  // kReduce, kReduceBlocks
  Tape tape;          // applied to the operands first (fused); has one output, which is reduced
  ReduceKind kind = ReduceKind::kSum;
  std::uint32_t axes = 0;  // bit d: dimension d is reduced
  friend bool operator==(const ReduceAttrs&, const ReduceAttrs&) = default;
};
struct CombineAttrs {
  ReduceKind kind = ReduceKind::kSum;
  std::int8_t axis = 0;
  std::int64_t fan_in = 16;
  friend bool operator==(const CombineAttrs&, const CombineAttrs&) = default;
};
struct ScanAttrs {
  ReduceKind kind = ReduceKind::kSum;  // or kProd
  std::int8_t axis = 0;
  ScanMode mode = ScanMode::kInclusive;
  friend bool operator==(const ScanAttrs&, const ScanAttrs&) = default;
};
struct MatmulAttrs {
  // kMatmul: how many partial products along k are made apart and summed: their number decides the last bits. 1: none;
  // 0: as shapes say (splits_k, lower.h). Lowered away.
  std::int64_t k_parts = 0;
  bool tf32 = false;  // float32 only: GPUs may round factors to 10 bits of mantissa. Hosts compute as without
  friend bool operator==(const MatmulAttrs&, const MatmulAttrs&) = default;
};
struct CopyAttrs {
  std::vector<OperandMap> maps;  // one per operand; several operands: disjoint parts of the output (concat)
  friend bool operator==(const CopyAttrs&, const CopyAttrs&) = default;
};
struct ReshapeAttrs {
  friend bool operator==(const ReshapeAttrs&, const ReshapeAttrs&) = default;
};
struct NpyAttrs {                // kReadNpy, kWriteNpy
  std::string path;              // as the workers see it
  std::int64_t data_offset = 0;  // bytes before the first element
  bool fortran_order = false;    // reading only
  std::uint64_t token = 0;       // writing: names the temporary file that all blocks of this op share
  FileStamp stamp = {};          // reading: of the version that is meant
  friend bool operator==(const NpyAttrs&, const NpyAttrs&) = default;
};
struct CallAttrs {
  std::string kernel, version;             // checked at join against every worker's plug-ins
  std::string params;                      // opaque bytes for the kernel
  std::vector<OperandMap> maps;            // one per operand, unless explicit
  std::vector<ExplicitMap> explicit_maps;  // empty, or one per operand
  double flops_per_point = 0;
  std::int64_t scratch_bytes = 0;
  friend bool operator==(const CallAttrs&, const CallAttrs&) = default;
};
struct
    FetchAttrs {  // kFetch: where to; kProvide: where from; of kKeep nothing. Filled in by the scheduler: a client names only itself
  DeviceId to;
  friend bool operator==(const FetchAttrs&, const FetchAttrs&) = default;
};
// Copied and destroyed in one place: each source that has ops would compile that for all alternatives.
struct OpAttrs : std::variant<MapAttrs, ReduceAttrs, CombineAttrs, MatmulAttrs, CopyAttrs, ReshapeAttrs,
                              NpyAttrs, CallAttrs, FetchAttrs, ScanAttrs> {
  using variant::variant;
  OpAttrs();
  OpAttrs(const OpAttrs&);
  OpAttrs(OpAttrs&&) noexcept;
  OpAttrs& operator=(const OpAttrs&);
  OpAttrs& operator=(OpAttrs&&) noexcept;
  ~OpAttrs();
};

// Explicit placement, as the user wrote it. Empty devices: automatic.
struct DeviceHint {
  std::vector<DeviceId> devices;  // one: that device; several: a subset, tiled over contiguously
  // Given (a mesh with a partition spec): parts of each dimension of the result, as in Rule, with `copies` devices each.
  // product(parts) * copies == devices.size(). Ops of another rank that the op is lowered to use the devices alone.
  PerDim<std::int32_t> parts = {};
  std::int32_t copies = 1;
  friend bool operator==(const DeviceHint&, const DeviceHint&) = default;
};

struct OutputSpec {
  std::uint64_t array = 0;  // its name, as in Operand
  DType dtype = DType::kFloat64;
  Grid grid;
  friend bool operator==(const OutputSpec&, const OutputSpec&) = default;
};

// The iteration space of an op is the blocks of `space`, a grid over the op's own index domain. Block index of each
// output = point (their counts are those of `space`).
struct Op {
  OpKind kind = OpKind::kMap;
  std::vector<Operand> operands;
  std::vector<OutputSpec> outputs;
  Grid space;
  OpAttrs attrs;
  DeviceHint hint;
  std::string label;  // the user's name for it, for people; may be empty

  template <class A> const A& get() const { return std::get<A>(attrs); }
  friend bool operator==(const Op&, const Op&) = default;
};

std::string title_of(const Op& op);  // for people: its label, its kernel's name, or its kind

const Tape* tape_of(const Op& op);  // null: it has none
Tape* tape_of(Op& op);

}  // namespace tilewise::ir
