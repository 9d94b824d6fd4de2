// Shared by the files of inference.
#pragma once
#include <tilewise/ir/infer.h>
#include <tilewise/ir/verify.h>

namespace tilewise::ir {

constexpr std::int64_t kDefaultBlockBytes = std::int64_t{8} << 20;
constexpr std::int64_t kSharedBlockBytes = std::int64_t{1}
                                           << 20;  // up to which rows are joined into one block

// The op, verified, seen whole through its first output.
Result<Inferred> inferred(Op op, std::span<const Source> operands);
Operand operand_of(const Source& s);
// NumPy's negative axis in [0, rank), or kOutOfRange naming the shape.
Result<int> normal_axis(int axis, int rank, const Shape& shape);

}  // namespace tilewise::ir
