// Lowering: from ops as users write them to ops that workers run. Fixed by the expression, its shapes and its grids,
// never by workers, devices or memory, because it decides the order of every floating-point sum (D9).
//
//   kReduce   kReduceBlocks, one partial a block, then kCombine levels of fan_in_of(a partial) along each reduced axis in
//             rising order, until one is left. argmin and argmax carry the value and its int64 position (C order among the
//             reduced axes of the whole array) side by side; equal values: the lower position; NaN: the first.
//             Moments carry four arrays (MomentPart).
//             Over nothing: a fill with the neutral element. Without axes: a map.
//   kMatmul   as it is, or split along k, where the user says into how many parts or shapes ask for it (splits_k):
//             kMatmulPanels, each part panel by panel, kCombine levels over the parts (asked for: in pairs), and a copy that
//             drops their dimension.
//   kCopy     of more than kMaxStepOperands operands (a long concat): joined in groups first.
//   others    as they are.
//
// An operand that a step could not read from one block is first gathered by a kCopy into an array of its own, cut as the
// op wants it: misaligned grids, reshape's runs, products of views whose neither dimension has unit stride, and
// windows of kCall that reach over block borders. The latter are unrolled: block i of the gathered array is the window of
// point i, overlaps and all, and the call reads it through DimMap::kBlock; kUnsupported where some window lies wholly
// outside the array, for blocks are never empty.
#pragma once
#include <tilewise/ir/geometry.h>

#include <functional>

namespace tilewise::ir {

constexpr std::int64_t kFanIn = 16;  // small partials that one kCombine task takes
constexpr std::int64_t kSmallPartialBytes = 64 << 10;

// Of partials of so many elements at most a kCombine task takes so many. Small ones cost little but their tasks. Large ones are summed in
// pairs: whoever has made neighbouring ones, a device or a host, however many, sums them where they are and sends one, and a task
// holds three of them.
constexpr std::int64_t fan_in_of(std::int64_t elements, DType t) {
  return elements <= kSmallPartialBytes / static_cast<std::int64_t>(size_of(t)) ? kFanIn : 2;
}

// Gives a name that no other array of the graph has.
using NewArray = std::function<std::uint64_t()>;

// `op` has passed verify() at Stage::kSubmitted with these sources. The result is in order of dependencies; every op of
// it passes Geometry::make; outputs of the original keep their names and grids, and hint and label go to every part.
// Ops of lowered kinds come back as they are. Errors: kUnsupported above, kLimitExceeded where cuts cannot be listed.
Result<std::vector<Op>> lower(const Op& op, std::span<const SourceArray> sources, const NewArray& new_array);

// Is a product summed over k by a tree? Where there are few output blocks to work on at once (at most 16), enough k panels
// to make a difference (at least 4), and all partial products together take at most a quarter of the operands.
bool splits_k(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t output_blocks,
              std::int64_t panels);

}  // namespace tilewise::ir
