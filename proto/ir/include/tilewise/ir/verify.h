// The verifier: everything that later stages rely on, checked once where an op enters. Ops come from the wire, so
// nothing is taken for granted but that Grid and DimGrid were made by their own constructors; nothing here aborts.
#pragma once
#include <tilewise/ir/geometry.h>

namespace tilewise::ir {

enum class Stage : std::uint8_t {
  kSubmitted,  // kinds as users write them; regions may cross blocks, lower() gathers
  kLowered,    // kinds that workers run (all but kReduce); Geometry::make checks alignment on top
};

constexpr std::size_t kMaxStepOperands = 16;  // of what a kernel runs; submitted copies may have kMaxOperands

// `sources[i]` describes operand i. kInvalidArgument for values that can never be right, kShapeMismatch for shapes,
// grids and dtypes that do not go together, kOutOfRange for views and products, kLimitExceeded for counted limits,
// kUnsupported for a kind of the other stage. The text starts with the op's kind.
Status verify(const Op& op, std::span<const SourceArray> sources, Stage stage = Stage::kSubmitted);

// Reduced to bool: which tape results a reduction takes, and what it gives. Nothing where it takes none.
std::optional<DType> reduced_dtype(ReduceKind kind, DType of);
constexpr std::int64_t kMaxKParts = 65'536;  // of one product

// Dtypes that kMatmul takes: int32, int64, float16, bfloat16, float32, float64, complex64, complex128. Others are cast first.
bool multiplies(DType t);
// Of the product: that of the factors, or float32 of 16-bit floats, which are summed in it.
DType product_dtype(DType t);
// How many arrays lowered ops of this kind write: argmin and argmax the value and its position, moments MomentPart's.
constexpr std::size_t parts_of(ReduceKind kind) {
  return kind == ReduceKind::kMoments                                 ? kMomentParts
         : kind == ReduceKind::kArgMin || kind == ReduceKind::kArgMax ? 2
                                                                      : 1;
}
// Their dtypes where elements are `of`; reduced_dtype() takes it.
std::vector<DType> part_dtypes(ReduceKind kind, DType of);
constexpr bool is_arg(ReduceKind kind) { return kind == ReduceKind::kArgMin || kind == ReduceKind::kArgMax; }

}  // namespace tilewise::ir
