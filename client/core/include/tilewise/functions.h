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
Array norm(const Array& a, const Axes& axes = {}, bool keepdims = false);           // 2-norm of all elements
Array trace(const Array& a, std::int64_t offset = 0);                               // of a matrix

// ---- products ----
Array outer(const Array& a, const Array& b);                    // of two vectors: (m, n)
Array vecdot(const Array& a, const Array& b, int axis = -1);    // summed along one axis; complex: conj(a) * b
Array tensordot(const Array& a, const Array& b, int axes = 2);  // the last ones of a with the first ones of b

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
