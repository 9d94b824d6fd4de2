// Inference: what a client calls to build ops, so that a mistake is reported at the user's line. Pure functions of
// dtypes, shapes, views and grids; never of the cluster (D9). Every op they return has passed verify(). Errors:
// kShapeMismatch (shapes in the text), kInvalidArgument, kOutOfRange, kLimitExceeded, kUnsupported.
//
// Cuts of a result: those that the view of the first operand of the result's whole shape sees; without such, per dimension those of the first operand with
// the full extent there (one that merely repeats along it has none to give). Where no operand has any, and where cuts of several operands
// together would make blocks larger than both the default and every operand's own, those of Grid::by_default.
#pragma once
#include <tilewise/ir/geometry.h>
#include <tilewise/ir/tape_builder.h>

#include <functional>

namespace tilewise::ir {

// An array as a client holds it: what is stored, and how it is seen.
struct Source {
  std::uint64_t array = 0;
  DType dtype = DType::kFloat64;
  Grid grid;
  View view;  // on grid.shape()

  const Shape& shape() const { return view.shape; }
  static Source of(std::uint64_t array, DType dtype, const Grid& grid) {
    return {array, dtype, grid, View::identity(grid.shape())};
  }
};

// `op` appended, its first output seen through `view`. Without an op the answer is the operand itself, seen through
// `view`. Output names are 0: the caller gives them.
struct Inferred {
  std::optional<Op> op;
  DType dtype = DType::kFloat64;
  View view;
};

// Builds a tape's result from the loaded operands.
using BuildTape = std::function<TapeValue(TapeBuilder&, std::span<const TapeValue>)>;

// Elementwise over broadcast operands. Operands that appear twice are read once, those the tape ignores not at all.
Result<Inferred> infer_map(std::span<const Source> operands, const BuildTape& build);
// A map without operands: fills, ranges, random numbers. Cuts by default where `grid` is not given.
Result<Inferred> infer_generate(const Shape& shape, const std::optional<Grid>& grid, const BuildTape& build);
Result<Inferred> infer_cast(const Source& a, DType to);  // a itself where it is that already

// Reduction over `axes` (nothing: all; negative ones count from the end). The result's dtype is the one it is computed in:
// sum and prod of bool and signed integers give int64, of unsigned ones uint64, of 16-bit floats float32; min and max of a
// narrow dtype give its compute_dtype() (the caller casts back where it wants to); any and all give bool of any dtype; min and max of bool are all and any. argmin and argmax take one axis or all and
// give int64: the index along the axis, or in the flattened array; ties: the lowest; NaN: the first. min, max, argmin
// and argmax over nothing are kInvalidArgument; the sum of nothing is 0. Moments give float64: the squares of what is left
// after the mean, summed; of real numbers only (kInvalidArgument).
Result<Inferred> infer_reduce(const Source& a, ReduceKind kind, const std::optional<std::vector<int>>& axes,
                              bool keepdims);

// Running sums (kSum) or products (kProd) along an axis, in the operand's dtype (one that sums: cast first).
Result<Inferred> infer_scan(const Source& a, ReduceKind kind, int axis);

// NumPy's matmul: leading dimensions are stacks of matrices and broadcast; a vector is a row or a column that is dropped
// from the result. Both of one dtype that kernels multiply (verify.h; cast first: infer_cast); the result of 16-bit floats is
// float32, which the caller narrows where it wants to.
// `k_parts`: MatmulAttrs; negative or above kMaxKParts: kInvalidArgument, more than one of stacks: kUnsupported.
// `tf32`: MatmulAttrs; kInvalidArgument for other dtypes than float32.
Result<Inferred> infer_matmul(const Source& a, const Source& b, std::int64_t k_parts = 0, bool tf32 = false);

// One dtype for all (cast first). Cuts along the axis: those of each operand, side by side, without those between neighbours that are together no larger than the largest (of operands of one block, one of them of one element there: than 1 MiB).
Result<Inferred> infer_concat(std::span<const Source> operands, int axis);
Result<Inferred> infer_stack(std::span<const Source> operands, int axis);  // along a new axis

// `a`, but for `box` (of its rank, inside it): there `value`, of the box's shape and a's dtype. Cut as `a` is.
Result<Inferred> infer_patch(const Source& a, const Box& box, const Source& value);

// C order; one extent may be -1. A view where extents of one come or go; else cut into runs (runs.h) of about a's blocks.
Result<Inferred> infer_reshape(const Source& a, std::span<const std::int64_t> shape);
Result<Inferred> infer_reblock(const Source& a, const Grid& grid);  // grid over a's shape
Result<Inferred> infer_materialise(const Source& a);  // a plain array of its own; a itself where it is one

// `data_offset`: bytes before the first element. `fortran_order`: the file's first index runs fastest.
Result<Inferred> infer_read_npy(std::string path, DType dtype, const Shape& shape, std::int64_t data_offset,
                                bool fortran_order, const std::optional<Grid>& grid,
                                const FileStamp& stamp = {});
// The result says of each block what it was written into. `token`: as in NpyAttrs. `begun`: which file that is (saving.h), a plain array
// of one int64.
Result<Inferred> infer_write_npy(const Source& a, const Source& begun, std::string path, std::uint64_t token);

// A plug-in kernel. Names of `outputs` are ignored; their grids have the block counts of `space`.
Result<Inferred> infer_call(std::span<const Source> operands, CallAttrs attrs, const Grid& space,
                            std::vector<OutputSpec> outputs);

// `a` must be a plain array (infer_materialise first). No output.
Result<Inferred> infer_fetch(const Source& a);
// The same values as another op's result, so that they can be placed by themselves.
Result<Inferred> infer_copy(const Source& a);
// An array whose blocks the client has.
Result<Inferred> infer_provide(DType dtype, const Grid& grid);

// The rule for the cuts of a result, above. Operands broadcast to `shape`.
Result<Grid> result_grid(std::span<const Source> operands, const Shape& shape, std::size_t element_bytes);

}  // namespace tilewise::ir
