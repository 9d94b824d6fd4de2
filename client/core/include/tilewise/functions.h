// Functions made of others, named as in the Array API standard and NumPy. What they are made of is fused, viewed and shared as
// if the caller had written it. Axes may be negative; errors as those of the parts, and kInvalidArgument or kOutOfRange for
// counts and axes that make no sense.
#pragma once
#include <tilewise/array.h>

#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewise {

// ---- elementwise ----
// A bound of clip(): none, a number, or an array, which broadcasts.
class Bound {
 public:
  Bound() = default;
  Bound(const Array& array) : array_(array) {}  // Array(): none
  template <class T>
  requires std::constructible_from<Scalar, T> Bound(const T& number) : number_(Scalar(number)) {}
  Bound(const std::optional<Scalar>& number) : number_(number) {}

  const Array& array() const { return array_; }
  const std::optional<Scalar>& number() const { return number_; }

 private:
  Array array_;
  std::optional<Scalar> number_;
};
// minimum(maximum(a, low), high), without what is absent: NaN where a or a bound is NaN, `high` where low > high. Shapes broadcast;
// the dtype is that of such an expression, a's where bounds have it too.
Array clip(const Array& a, const Bound& low = {}, const Bound& high = {});

// ---- comparisons ----
// |a - b| <= atol + rtol * |b|, and b is finite, or a == b; of two NaN if `equal_nan`. Integers and bool as float64.
struct Closeness {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};
Array isclose(const Array& a, const Array& b, const Closeness& closeness = {});
// One bool: whether all are close; shapes broadcast.
Array allclose(const Array& a, const Array& b, const Closeness& closeness = {});
// One bool: whether shapes and all elements are equal (two NaN if `equal_nan`); dtypes may differ.
Array array_equal(const Array& a, const Array& b, bool equal_nan = false);

// ---- statistics ----
// Of what is left after the mean: sum((a - mean)^2) / (n - correction), in one pass over memory, which the mean of the same array
// and axes shares where both are computed together; a large mean costs no digits (kernels/README.md has the error). Of real numbers
// (complex ones: kInvalidArgument). Integers: float64. NaN or infinity where n <= correction.
Array var(const Array& a, const Axes& axes = {}, double correction = 0, bool keepdims = false);
Array stddev(const Array& a, const Axes& axes = {}, double correction = 0,
             bool keepdims = false);  // NumPy's std
// mean() has keepdims where these have the correction: true is not taken for 1.
template <std::same_as<bool> B> Array var(const Array&, const Axes&, B, bool = false) = delete;
template <std::same_as<bool> B> Array stddev(const Array&, const Axes&, B, bool = false) = delete;
Array count_nonzero(const Array& a, const Axes& axes = {}, bool keepdims = false);  // int64

// As sum, prod, min, max and mean of what is not NaN; of integers and bool the same as these. A sum of nothing is 0, a product 1, the
// others NaN.
Array nansum(const Array& a, const Axes& axes = {}, bool keepdims = false, std::optional<DType> dtype = {});
Array nanprod(const Array& a, const Axes& axes = {}, bool keepdims = false, std::optional<DType> dtype = {});
Array nanmin(const Array& a, const Axes& axes = {}, bool keepdims = false);
Array nanmax(const Array& a, const Axes& axes = {}, bool keepdims = false);
Array nanmean(const Array& a, const Axes& axes = {}, bool keepdims = false);

// ---- exponentials that are summed: as in scipy.special, without overflow. Integers and bool: float64; 16-bit floats are computed in float32
// and rounded once; complex numbers: kInvalidArgument ----
// log(sum(exp(a))) along the axes; of nothing, and where all are -infinity: -infinity.
Array logsumexp(const Array& a, const Axes& axes = {}, bool keepdims = false);
// exp(a) / sum(exp(a)), with a's shape. Along all axes together: `Axes{}`. NaN where the largest along the axes is infinite.
Array softmax(const Array& a, const Axes& axes = -1);
// a - logsumexp(a), the logarithm of softmax(a) with digits where that vanishes. NaN at +infinity and where all are -infinity.
Array log_softmax(const Array& a, const Axes& axes = -1);

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
// Sums of products, as NumPy's einsum has them: one term of letters for each operand, a letter for each of its axes, then what the result has,
// "bij,bjk->bik". A letter that the result does not have is summed over; one that comes twice in a term takes the diagonal; extents of 1
// broadcast. "..." stands for the axes in front of, behind or between the letters, from the last on the same in all terms. Without
// "->" the result has these, and then the letters that come once, in the order of the alphabet. Two operands at a time become one, the pair
// first that takes the fewest products, by products of matrices where something is summed over. The dtype is the common one; more than two operands
// of 16-bit floats are computed in float32. kInvalidArgument for what is no letter, another number of terms, a result's letter that
// no term has, or twice, and bool; kShapeMismatch for another number of axes, and extents; kLimitExceeded past 8 axes on the
// way. Each names the term.
Array einsum(std::string_view subscripts, const std::vector<Array>& operands);
Array matrix_transpose(const Array& a);  // a view: the last two dimensions exchanged. Fewer: kShapeMismatch

// ---- structure ----
Array moveaxis(const Array& a, int source, int destination);  // a view
// The same for several axes at once: sources[i] goes to destinations[i], the others keep their order. kInvalidArgument for lists of
// two lengths and for an axis that comes twice.
Array moveaxis(const Array& a, const std::vector<int>& sources, const std::vector<int>& destinations);
Array swapaxes(const Array& a, int one, int other);  // a view
Array flip(const Array& a, const Axes& axes = {});   // a view
// out[(i + shift) % n] = a[i] along each of the axes; without axes: of the flattened array.
Array roll(const Array& a, std::int64_t shift, const Axes& axes = {});
// Each axis by a shift of its own; those of an axis that comes several times add up. kInvalidArgument for lists of two lengths.
Array roll(const Array& a, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes);
// Each element along the axis `count` times in a row; without an axis: of the flattened array.
Array repeat(const Array& a, std::int64_t count, std::optional<int> axis = {});
// Element i along the axis counts[i] times, or each counts[0] times. kInvalidArgument for a negative count, kShapeMismatch for
// another number of them.
Array repeat(const Array& a, const std::vector<std::int64_t>& counts, std::optional<int> axis = {});
// The same with counts that are an array: integers, a vector or one number. Waits for their sum, which the shape depends on.
Array repeat(const Array& a, const Array& counts, std::optional<int> axis = {});
// The whole, counts[d] times along dimension d. Of counts and dimensions those there are fewer of are filled up with 1 in front.
Array tile(const Array& a, const std::vector<std::int64_t>& counts);
// With (before, after) elements more at the ends of each axis, a pair for each, or one for all. Mode "constant": `value`, as a's dtype;
// "edge": what is at the end; "reflect": what lies mirrored at the last element, which is not repeated; "wrap": what lies at the other end;
// the last two go on to and fro, or around, as often as it takes. kInvalidArgument for negative widths, another number of them or another mode, and
// for all modes but "constant" where an axis has no elements.
Array pad(const Array& a, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths,
          std::string_view mode = "constant", const Scalar& value = 0);
Array pad(const Array& a, std::int64_t width, std::string_view mode = "constant", const Scalar& value = 0);
// Neighbours' differences along the axis, n times over; one element less each time. `prepend` and `append` (or none) are
// put before and behind `a` first: they have its other extents. kInvalidArgument for n < 0.
Array diff(const Array& a, int axis = -1, std::int64_t n = 1, const Array& prepend = {},
           const Array& append = {});
Array tril(const Array& a, std::int64_t k = 0);  // zero above the k-th diagonal of the last two dimensions
Array triu(const Array& a, std::int64_t k = 0);
// Of a vector of n elements the matrix, n + |k| rows and columns, with it on the k-th diagonal and zeros elsewhere; of a matrix its
// k-th diagonal, as diagonal() in linalg.h. kShapeMismatch for other ranks.
Array diag(const Array& a, std::int64_t k = 0);
// 1 where the position along a new axis is the index there, else 0: a vector of `num_classes` elements for each index, which is zero for an
// index outside of [0, num_classes). `axis`: the new one's place in the result. kInvalidArgument for indices that are no integers
// and for a negative number of classes.
Array one_hot(const Array& indices, std::int64_t num_classes, DType dtype = DType::kFloat64, int axis = -1);
// All with the shape that they broadcast to, as views. kShapeMismatch where there is none.
std::vector<Array> broadcast_arrays(const std::vector<Array>& arrays);
// Of n vectors: n arrays of all extents, as views; the d-th varies along dimension d (indexing "ij"), or with the first two
// dimensions exchanged ("xy": of vectors of m and n elements the arrays have shape (n, m)). kInvalidArgument for another word.
std::vector<Array> meshgrid(const std::vector<Array>& vectors, std::string_view indexing = "xy");

// ---- new arrays with another's shape, dtype unless told, and cuts unless told ----
struct LikeOptions {
  std::optional<DType> dtype = {};
  Shape block = {};  // empty: as results that are computed from `a` are cut
};
Array full_like(const Array& a, const Scalar& value, const LikeOptions& options = {});
Array zeros_like(const Array& a, const LikeOptions& options = {});
Array ones_like(const Array& a, const LikeOptions& options = {});
Array empty_like(const Array& a, const LikeOptions& options = {});  // zeros

// ---- indexing by arrays ----
// Indices are integers; negative ones count from the end. One outside [-n, n) of an axis of n elements fails the graph with
// kOutOfRange, whose text names index and axis: not at the call, for then nobody has seen it. Every block of a result
// looks at the blocks of the data along the axis one after another, so that one of them is in memory at a time; on other
// hosts' data that is as much traffic as the data, once a device.

// x's elements at `indices` along `axis` (of a vector it may be left out). The dimensions of the indices, of which there may be any
// number, stand where x has the axis; kLimitExceeded past 8 dimensions.
Array take(const Array& x, const Array& indices, std::optional<int> axis = {});
// For each line of x along `axis` its elements at the same line of `indices`. Other dimensions broadcast.
Array take_along_axis(const Array& x, const Array& indices, int axis = -1);
// x, with values[..., j, ...] at indices[j] along `axis`; values are cast to x's dtype and broadcast. Where an index comes
// twice the last value stays.
Array put(const Array& x, const Array& indices, const Array& values, std::optional<int> axis = {});

// x, with values[..., j, ...] added to what is at indices[j] along `axis`, as many times as an index comes (np.add.at along an axis): one after
// the other, in the order of j, so that bits are those of a plain loop whatever the cuts and devices. Values are cast to x's
// dtype and broadcast; integers wrap, sums of 16-bit floats are carried in float32 and rounded once. Of bool: kInvalidArgument.
Array put_add(const Array& x, const Array& indices, const Array& values, std::optional<int> axis = {});

struct Slice {  // start:stop:step along an axis, as Array::slice takes it
  int axis = 0;
  std::optional<std::int64_t> start = {}, stop = {};
  std::int64_t step = 1;
};
// x, but for the elements that these slices of different axes show: there `value`, cast to x's dtype and broadcast.
Array set(const Array& x, const std::vector<Slice>& where, const Array& value);

// x, but for the elements that x.index(terms) shows: there `value`, cast to x's dtype and broadcast. Where arrays name an element
// twice the last value stays, in C order. With a mask, `value` has an element (or what lies behind the mask's dimensions) for each
// that is true, in C order, or broadcasts; only in the first case, and with a mask beside other terms, the call waits, for their
// number: kShapeMismatch where it is another one. Errors else as those of Array::index and broadcast_to.
Array set_index(const Array& x, const std::vector<IndexTerm>& terms, const Array& value);
Array set_index(const Array& x, const std::vector<IndexTerm>& terms, const Scalar& value);
// x, with `value` added to the elements that x.index(terms) shows, to one that arrays name several times each of its values: np.add.at, or
// JAX's x.at[terms].add(value). In C order of what is shown; dtypes, masks and errors as those of put_add and set_index.
Array add_at(const Array& x, const std::vector<IndexTerm>& terms, const Array& value);
Array add_at(const Array& x, const std::vector<IndexTerm>& terms, const Scalar& value);

// ---- sums and counts of what belongs together. Blocks of the data are added one after another for each block of a result, as in put();
// integers of many blocks in a few segments a block at a time, and these sums then ----

// out[k] = the sum of values[j, ...] for all j with segment_ids[j] == k, in the order of j, as jax.ops.segment_sum: a vector of
// integers, one for each of values along axis 0, which ids outside of [0, num_segments) leave out. Shape (num_segments, ...), values'
// dtype, sums as in put_add; of a segment that nothing belongs to: 0. Without `num_segments` as many as the largest id says: waits for that.
// kShapeMismatch for ids of another shape, kInvalidArgument for ids that are no integers, values of bool, a negative number.
Array segment_sum(const Array& values, const Array& segment_ids,
                  std::optional<std::int64_t> num_segments = {});
// How often each of 0 ... max(x) is in the vector x of integers: int64, at least `minlength` long. With weights, of x's shape, their sums
// instead: float64, in the order of x. Waits for the least and largest of x: a negative one is kOutOfRange. kShapeMismatch for other shapes,
// kInvalidArgument for other dtypes, complex weights and a negative minlength.
Array bincount(const Array& x, const Array& weights = {}, std::int64_t minlength = 0);

struct HistogramOptions {
  std::optional<std::pair<double, double>> range = {};  // of bins that are cut evenly
  Array weights = {};                                   // of a's shape: sums of these instead of counts
  bool density = false;  // counts over their sum and their bin's width: float64
};
struct Histogram {
  Array counts, edges;  // one edge more
};
// How many elements of the flattened array lie in each bin, from its edge up to the next one, the last one's end included; what lies outside, and
// NaN, is in none. int64; with weights their dtype (of bool int64), and floats are summed as float64. `bins` of one width over the
// range, else from the least to the largest element, which the call waits for (of nothing 0 to 1; of equal ones 0.5 to either
// side); edges have a's dtype where that is float32 or float64 (16-bit floats: float32), else float64. kInvalidArgument for complex
// numbers, no bins, a range that falls or is not finite, bins too narrow for that dtype; kShapeMismatch for weights of another shape.
Histogram histogram(const Array& a, std::int64_t bins = 10, const HistogramOptions& options = {});
// Between these edges, of which none is below the one before it (kInvalidArgument). An array of them is waited for.
Histogram histogram(const Array& a, const std::vector<double>& edges, const HistogramOptions& options = {});
Histogram histogram(const Array& a, const Array& edges, const HistogramOptions& options = {});
// int64, of x's shape: how many of `bins`, a vector in rising order (not looked at), are at or below each element; with `right` below it.
// As searchsorted.
Array digitize(const Array& x, const Array& bins, bool right = false);

// ---- order ----
// Of real numbers and bool (complex: kInvalidArgument). NaN is last, ascending and descending. Between blocks along the axis all elements
// move twice, in pieces, whatever the data and the number of blocks; a task has two blocks in memory, or one and its pieces.
// Results are cut evenly along the axis; those of sort in fewer blocks than x where it has more than 31, of up to 64 MiB, and
// where blocks of n are shorter than cbrt(16 n^2) elements.

// Without more to tell them apart -0 is before +0. Always stable: there is nothing faster to be had otherwise.
Array sort(const Array& x, int axis = -1, bool descending = false, bool stable = true);
// int64: the indices that sort x along the axis; equal elements stay in their order, in a descending order too.
Array argsort(const Array& x, int axis = -1, bool descending = false, bool stable = true);
struct TopK {
  Array values, indices;  // indices: int64, along the axis
};
// The k largest (or smallest) elements along the axis, best first; of equal ones the first. kOutOfRange unless 0 <= k <= n.
TopK topk(const Array& x, std::int64_t k, int axis = -1, bool largest = true);
// int64, of x2's shape: where each of its elements would go in the sorted vector x1; side "left": before equal ones, "right":
// after them. `sorter` (or none): the indices that sort x1.
Array searchsorted(const Array& x1, const Array& x2, std::string_view side = "left",
                   const Array& sorter = {});

// The element at q * (n - 1) of the n along the axes, in order, q of [0, 1] (kOutOfRange). Between two, method "linear" goes that share of the way,
// "midpoint" half of it; "lower", "higher" and "nearest" (halves to even) take one. NaN where one is among them; two equal ones, infinities
// too, have nothing else between them, and beside one infinity there is that. Several q: in front, a dimension of them; `keepdims` is about a's. Of real numbers
// (kInvalidArgument for bool, complex ones, no elements, no q, another method): floats keep their dtype, 16-bit ones are computed in
// float32; integers give float64, but their own dtype by methods that take one. Sorts: memory and traffic are sort()'s.
Array quantile(const Array& a, double q, const Axes& axes = {}, std::string_view method = "linear",
               bool keepdims = false);
Array quantile(const Array& a, const std::vector<double>& q, const Axes& axes = {},
               std::string_view method = "linear", bool keepdims = false);
// The same with q of [0, 100].
Array percentile(const Array& a, double q, const Axes& axes = {}, std::string_view method = "linear",
                 bool keepdims = false);
Array percentile(const Array& a, const std::vector<double>& q, const Axes& axes = {},
                 std::string_view method = "linear", bool keepdims = false);
// The element in the middle, or the mean of the two there. dtypes and errors as those of quantile.
Array median(const Array& a, const Axes& axes = {}, bool keepdims = false);

// ---- results whose size depends on data ----
// These calls wait: shapes are known at once everywhere else, so here the mask (and what it was made from) is computed and one
// count a block of it is brought to the client, before the call returns an array as long as these say. Its blocks are as
// long as what was found in each block of the mask: reblock() makes them even. Memory: as any op, a block at a time.

// x[mask]: x's elements where the mask is true, in C order. The mask is bool and has x's shape, or that of its first
// dimensions: then the others stay; of a mask without dimensions all of x does, below a new axis. kShapeMismatch otherwise.
Array boolean_index(const Array& x, const Array& mask);
// For each dimension the int64 indices of elements that are not zero, in C order. kInvalidArgument without a dimension.
std::vector<Array> nonzero(const Array& x);

// Different elements of the flattened array, in rising order. Every NaN is different from all others; -0 equals +0. Complex
// numbers are in the order of their real parts, equal ones in that of their imaginary parts; one of which a part is NaN is
// different from all others.
Array unique_values(const Array& x);
struct UniqueCounts {
  Array values, counts;  // int64: how often each was there
};
UniqueCounts unique_counts(const Array& x);
struct UniqueInverse {
  Array values,
      inverse_indices;  // of x's shape, int64: take(values, inverse) is x (of several real NaN: the first's index)
};
UniqueInverse unique_inverse(const Array& x);
struct UniqueAll {
  Array values, indices, inverse_indices, counts;  // indices: of the first occurrence, in the flattened array
};
UniqueAll unique_all(const Array& x);

}  // namespace tilewise
