// Functions made of others, named as in the Array API standard and NumPy. What they are made of is fused, viewed and shared as
// if the caller had written it. Axes may be negative; errors as those of the parts, and kInvalidArgument or kOutOfRange for
// counts and axes that make no sense.
#pragma once
#include <tilewise/array.h>

namespace tilewise {

// ---- elementwise ----
Array clip(const Array& a, const std::optional<Scalar>& low, const std::optional<Scalar>& high);  // NaN stays

// ---- statistics ----
// Of what is left after the mean: sum((a - mean)^2) / (n - correction), in two passes, so that a large mean costs no digits.
// Integers: float64. NaN or infinity where n <= correction.
Array var(const Array& a, const Axes& axes = {}, double correction = 0, bool keepdims = false);
Array stddev(const Array& a, const Axes& axes = {}, double correction = 0,
             bool keepdims = false);                                                // NumPy's std
Array count_nonzero(const Array& a, const Axes& axes = {}, bool keepdims = false);  // int64

// ---- running sums and products ----
// out[i] = a[0] + ... + a[i] along `axis`, which may be left out of one-dimensional arrays only (kInvalidArgument). `dtype`:
// elements are cast to it first, and the result has it; else bool and signed integers give int64, unsigned ones uint64, and
// other dtypes stay (16-bit floats are summed in float32 and rounded once each). `include_initial`: one element more, the
// first is 0. Sums of one block go on from those of the blocks before it in an order that cuts and shape decide, with at
// most (elements a block + blocks) roundings each; of numbers that are not negative they never fall.
Array cumulative_sum(const Array& a, std::optional<int> axis = {}, std::optional<DType> dtype = {},
                     bool include_initial = false);
// The same of products; the initial one is 1.
Array cumulative_prod(const Array& a, std::optional<int> axis = {}, std::optional<DType> dtype = {},
                      bool include_initial = false);

// ---- products; numbers of two dtypes meet in their common one, which the result has. Not of bool (kInvalidArgument) ----
Array outer(const Array& a, const Array& b);  // of two vectors: (m, n)
// sum(conj(a) * b) along an axis of both, counted from the end (negative) where ranks differ; the others broadcast. The sum
// of 16-bit floats is carried in float32 and rounded once.
Array vecdot(const Array& a, const Array& b, int axis = -1);
Array tensordot(const Array& a, const Array& b, int axes = 2);  // the last ones of a with the first ones of b
// Axes of a with those of b at the same place; the result has a's other axes, then b's.
Array tensordot(const Array& a, const Array& b, const std::vector<int>& axes_a,
                const std::vector<int>& axes_b);
Array matrix_transpose(const Array& a);  // a view: the last two dimensions exchanged. Fewer: kShapeMismatch

// ---- structure ----
Array moveaxis(const Array& a, int source, int destination);  // a view
Array swapaxes(const Array& a, int one, int other);           // a view
Array flip(const Array& a, const Axes& axes = {});            // a view
Array roll(const Array& a, std::int64_t shift, int axis);
Array repeat(const Array& a, std::int64_t count, int axis);  // each element `count` times in a row
Array tile(const Array& a,
           const std::vector<std::int64_t>& counts);  // the whole, `counts[d]` times along dimension d
Array diff(const Array& a, int axis = -1);            // neighbours' differences: one element less
Array tril(const Array& a, std::int64_t k = 0);  // zero above the k-th diagonal of the last two dimensions
Array triu(const Array& a, std::int64_t k = 0);
// Of n vectors: n arrays of all extents, the d-th varying along dimension d (indexing "ij").
std::vector<Array> meshgrid(const std::vector<Array>& vectors);

}  // namespace tilewise
