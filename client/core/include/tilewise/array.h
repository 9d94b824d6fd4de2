// Arrays: small values that name a node of their session's graph, seen through a view.
//
// Nothing is computed until somebody asks: get(), item(), persist(), save_npy() or Session::compute(). Each asks for all that is not persisted
// anew, so a loop that calls item() of what it has not persisted runs its past each time. One request takes at most 65,536 ops
// (kLimitExceeded): long loops persist() on their way. Mistakes of shape, dtype, axis and grid are thrown as ArrayError by the call that makes them, with the shapes in the text. All functions
// are thread-safe; one Array object is not to be assigned while another thread reads it.
//
// Typing follows NumPy and the Array API standard: ir/tape_builder.h has the exact rules.
#pragma once
#include <tilewise/error.h>
#include <tilewise/future.h>
#include <tilewise/ir/view.h>
#include <tilewise/mesh.h>
#include <tilewise/types.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tilewise {

namespace client {
struct Handle;
struct Access;
}  // namespace client

struct ComputeOptions {
  // Of one session's requests higher ones go first; never before unfinished work that they read.
  std::int32_t priority = 0;
  // Of persist(): on how many workers each array is to be, 1 to 16, so that it outlives the loss of all but one of them; on
  // different hosts where there are as many. It is, when the request is done; a lost copy is made again from the others.
  // With fewer workers it is on all of them, and on more when they join. Of compute() and files: no meaning.
  std::uint32_t copies = 1;
  // Keep what is predicted of this request, for Future::account(): a copy of its plan, and of what is known of speeds then.
  bool account = false;
};

struct ZarrOptions {
  int version = 3;   // 2 or 3
  Shape chunk = {};  // extents of what is compressed as one; empty: those of a block
  Shape shard = {};  // version 3: so many chunks in a file (a multiple of `chunk`); empty: a file a chunk
  std::string codec = "zstd";  // "none", "gzip", "zstd" or "blosc" (lz4, shuffled bytes)
  int level = 3;               // gzip and blosc 0 to 9, zstd up to 22
};

class IndexTerm;

class Array {
 public:
  Array() = default;  // names nothing (valid()); using it is kInvalidArgument
  Array(const Array&) = default;
  Array(Array&&) = default;
  // Of names only: `x[0] = y` would name another array by what is gone at once, and leave x as it is. Elements are replaced by
  // set() and set_index() (functions.h), which give a new array.
  Array& operator=(const Array&) & = default;
  Array& operator=(Array&&) & = default;
  ~Array() = default;

  const Shape& shape() const { return view_.shape; }
  int rank() const { return view_.rank(); }
  std::int64_t size() const { return ir::volume(view_.shape); }  // elements
  DType dtype() const;
  // The cuts as this view sees them.
  Grid grid() const;
  bool valid() const { return handle_ != nullptr; }  // names something
  // Not `if (loss > 1.0)`, which asks nobody for the value: item<bool>() does, any() and all() where there are more.
  explicit operator bool() const = delete;

  // ---- views: nothing is computed or moved; axes may be negative ----
  Array T() const { return permute(); }  // reverses the dimensions
  Array permute(std::initializer_list<int> axes = {}) const {
    return permute(std::span(axes.begin(), axes.size()));
  }
  Array permute(std::span<const int> axes) const;  // empty: reverse
  // start:stop:step along an axis, with NumPy's clipping and negative numbers.
  Array slice(int axis, std::optional<std::int64_t> start, std::optional<std::int64_t> stop = {},
              std::int64_t step = 1) const;
  Array at(int axis, std::int64_t index) const;  // one index; drops the axis
  Array operator[](std::int64_t index) const { return at(0, index); }
  // x[terms], one term an axis: x.index({3, Range{1, 9, 2}, kEllipsis, -1}). An integer drops its axis, a Range cuts it,
  // kNewAxis inserts an extent of 1, kEllipsis stands for all axes that no term names; without one they follow the terms.
  // kOutOfRange for more terms than axes and for integers outside [-n, n); kInvalidArgument for two ellipses and for
  // step 0; kLimitExceeded past 8 dimensions. Each names term, axis and shape.
  //
  // Arrays as terms make it more than a view. Arrays of integers of any rank, x.index({i, j}), broadcast together: the result has
  // the element that they name for each of their positions, and their dimensions stand where the first of them does, or in
  // front where terms of another kind stand between them (integers beside arrays count as such, as in NumPy). An index out of
  // bounds fails the graph with kOutOfRange, as take() does (functions.h); the axes of several are made one first. A mask, x.index({mask}), is
  // boolean_index(x, mask); beside other terms it is the indices of what is true in it, one a dimension, which are those of x from
  // its place on (kShapeMismatch otherwise). Both wait for the number of these. A mask without dimensions stands for a new axis,
  // as long as 1 where it is true and 0 where not.
  Array index(std::span<const IndexTerm> terms) const;
  inline Array index(std::initializer_list<IndexTerm> terms) const;
  Array expand_dims(int axis) const;  // a new dimension of extent 1
  // Without these axes, whose extents must be 1 (kInvalidArgument); without an argument, without all of extent 1.
  Array squeeze(const Axes& axes = {}) const;
  Array broadcast_to(const Shape& shape) const;

  // ---- moved or cast ----
  Array astype(DType dtype) const;
  Array reshape(
      std::span<const std::int64_t> shape) const;  // C order; one extent may be -1. A view where it can be
  Array reshape(std::initializer_list<std::int64_t> shape) const {
    return reshape(std::span(shape.begin(), shape.size()));
  }
  Array reblock(const Shape& block) const;  // other cuts, same values
  // On this device, or tiled over these. What has been submitted already, and views, are copied there: so a computed
  // array moves. kPlacementConflict if one that has not been submitted has another explicit placement.
  Array on(DeviceId device) const { return on(std::vector<DeviceId>{device}); }
  Array on(const Device& device) const { return on(device.id); }
  Array on(const std::vector<DeviceId>& devices) const;
  // Cut over a mesh, as many parts a dimension as its axes have devices; an array with fewer blocks than parts is cut
  // finer first. Over axes that the spec leaves out the array is replicated: each device keeps the blocks it has read
  // for as long as the array is held (persist), while it has room. Errors as above, and of sharding().
  Array on(const Mesh& mesh, const PartitionSpec& spec) const;
  Array named(const std::string& label) const;  // for people: dashboards and errors. Up to 256 bytes

  // ---- computing; one message to the scheduler each ----
  // All elements, C order. T is the dtype's type: bool, the integers of <cstdint>, Float16, BFloat16, float, double,
  // std::complex<float> or <double> (another: kInvalidArgument, astype first). Failures throw their root
  // cause; a timeout cancels.
  template <class T> std::vector<T> get(const WaitOptions& options = {}) const;
  // The one element of an array of size 1. Computes what it is made of from what is persisted on, each time.
  template <class T> T item(const WaitOptions& options = {}) const;
  // Computes the array and keeps it in the cluster until its last handle goes. Later expressions start from it. For
  // views: what they show is copied first, and kept as `*this`.
  Future persist(const ComputeOptions& options = {});
  // Writes a .npy file at `path`, as workers see it; appears under that name when complete.
  Future save_npy(const std::string& path, const ComputeOptions& options = {}) const;
  // Writes a Zarr array into the folder `path`, as workers see it: each worker its own blocks, at once. It appears under that
  // name when complete, and takes the place of an older Zarr array; anything else there stays (kAlreadyExists). Blocks have to
  // start where chunks (shards) do: kInvalidArgument otherwise, saying how to reblock(). kUnsupported for bfloat16.
  Future write_zarr(const std::string& path, const ZarrOptions& zarr = {},
                    const ComputeOptions& options = {}) const;

 private:
  friend struct client::Access;
  Array placed(const ir::DeviceHint& hint) const;

  std::shared_ptr<const client::Handle> handle_;
  ir::View view_;
};

// ---- terms of Array::index ----
// start:stop:step along an axis, as Array::slice takes it. Range{}: all of it; Range{{}, {}, -1}: all of it, backwards.
struct Range {
  std::optional<std::int64_t> start = {}, stop = {};
  std::int64_t step = 1;
};
struct Ellipsis {};
struct NewAxis {};
inline constexpr Ellipsis kEllipsis;
inline constexpr NewAxis kNewAxis;

class IndexTerm {
 public:
  using Value = std::variant<std::int64_t, Range, Ellipsis, NewAxis, Array>;

  template <std::integral T>
  requires(!std::same_as<T, bool>) IndexTerm(T index)
      : value_(std::in_range<std::int64_t>(index) ? static_cast<std::int64_t>(index) : INT64_MAX) {}
  IndexTerm(const Range& range) : value_(range) {}
  IndexTerm(Ellipsis) : value_(kEllipsis) {}
  IndexTerm(NewAxis) : value_(kNewAxis) {}
  IndexTerm(const Array& indices) : value_(indices) {}  // integers, or a mask

  const Value& value() const { return value_; }

 private:
  Value value_;
};

Array Array::index(std::initializer_list<IndexTerm> terms) const {
  return index(std::span(terms.begin(), terms.size()));
}

// ---- elementwise; shapes broadcast ---------------------------------------------------------------------------------
//
// Cuts of a result: those of the first operand that has the result's whole shape itself, without being repeated to it; the others are
// copied to these cuts where theirs differ. So `0.5 * a + b` is cut as `a` is, and `column + matrix` as the matrix. Without such an operand, for
// each dimension those of the first that has its full extent there, unless blocks became larger than the default and
// every operand's own: then, as without any operand, the default's, which depends on shape and dtype alone (about 8 MiB a block). Reductions
// and running sums keep their operand's cuts in what is left, roll() all of them; concat() and reblock() say theirs.

#define TILEWISE_BINARY(name) \
  Array name(const Array& a, const Array& b); \
  Array name(const Array& a, const Scalar& b); \
  Array name(const Scalar& a, const Array& b);
TILEWISE_BINARY(operator+)
TILEWISE_BINARY(operator-)
TILEWISE_BINARY(operator*)
TILEWISE_BINARY(operator/)  // of integers: float64
TILEWISE_BINARY(operator%)  // sign of the divisor
TILEWISE_BINARY(operator==)
TILEWISE_BINARY(operator!=)
TILEWISE_BINARY(operator<)
TILEWISE_BINARY(operator<=)
TILEWISE_BINARY(operator>)
TILEWISE_BINARY(operator>=)
TILEWISE_BINARY(operator&)  // bool: logical; integers: bits
TILEWISE_BINARY(operator|)
TILEWISE_BINARY(operator^)
TILEWISE_BINARY(floor_divide)
// Of integers: an integer, modulo 2^bits. A negative integer number as their exponent is kInvalidArgument, as in NumPy; negative
// elements of an array of exponents, which NumPy refuses too, give 0 (bases of 1 and -1: 1 or -1): cast to a float where there may be some.
TILEWISE_BINARY(power)
TILEWISE_BINARY(minimum)  // propagate NaN
TILEWISE_BINARY(maximum)
TILEWISE_BINARY(atan2)
TILEWISE_BINARY(copysign)
TILEWISE_BINARY(nextafter)  // the neighbour of the first towards the second, in their dtype
TILEWISE_BINARY(hypot)
TILEWISE_BINARY(logaddexp)  // log(exp(a) + exp(b))
TILEWISE_BINARY(left_shift)
TILEWISE_BINARY(right_shift)
TILEWISE_BINARY(logical_and)
TILEWISE_BINARY(logical_or)
TILEWISE_BINARY(logical_xor)
#undef TILEWISE_BINARY

// `a = a + b`: `a` names a new array from then on, of the dtype and shape that a + b has; other names of the old one keep it.
#define TILEWISE_ASSIGNING(op) \
  inline Array& operator op##=(Array& a, const Array& b) { return a = a op b; } \
  inline Array& operator op##=(Array& a, const Scalar& b) { return a = a op b; }
TILEWISE_ASSIGNING(+)
TILEWISE_ASSIGNING(-)
TILEWISE_ASSIGNING(*)
TILEWISE_ASSIGNING(/)
#undef TILEWISE_ASSIGNING

Array operator-(const Array& a);
Array operator!(const Array& a);  // logical not: bool
Array operator~(const Array& a);  // bits; of bool: not
Array abs(const Array& a);
Array sign(const Array& a);
Array sqrt(const Array& a);
Array exp(const Array& a);
Array expm1(const Array& a);
Array log(const Array& a);
Array log1p(const Array& a);
Array sin(const Array& a);
Array cos(const Array& a);
Array tan(const Array& a);
Array tanh(const Array& a);
Array acos(const Array& a);
Array acosh(const Array& a);
Array asin(const Array& a);
Array asinh(const Array& a);
Array atan(const Array& a);
Array atanh(const Array& a);
Array cosh(const Array& a);
Array sinh(const Array& a);
Array log2(const Array& a);
Array log10(const Array& a);
Array signbit(const Array& a);  // of floats: bool
Array floor(const Array& a);
Array ceil(const Array& a);
Array trunc(const Array& a);
Array round(const Array& a);  // halves to even
Array isnan(const Array& a);
Array isinf(const Array& a);
Array isfinite(const Array& a);
Array square(const Array& a);
Array reciprocal(const Array& a);
Array positive(const Array& a);  // a itself
Array conj(const Array& a);      // of real numbers: a itself
Array real(const Array& a);      // of complex numbers: the parts' dtype
Array imag(const Array& a);      // of real numbers: zeros
Array complex(const Array& real_part,
              const Array& imaginary_part);  // complex64 from float32, else complex128
Array angle(const Array& a);                 // atan2(imag, real): of real numbers 0 or pi
inline Array astype(const Array& a, DType dtype) { return a.astype(dtype); }

// The members of these names.
inline Array reshape(const Array& a, std::span<const std::int64_t> shape) { return a.reshape(shape); }
inline Array reshape(const Array& a, std::initializer_list<std::int64_t> shape) { return a.reshape(shape); }
inline Array transpose(const Array& a, std::initializer_list<int> axes = {}) { return a.permute(axes); }
inline Array expand_dims(const Array& a, int axis) { return a.expand_dims(axis); }
inline Array squeeze(const Array& a, const Axes& axes = {}) { return a.squeeze(axes); }
inline Array broadcast_to(const Array& a, const Shape& shape) { return a.broadcast_to(shape); }

// condition ? a : b, element by element; condition is bool.
Array where(const Array& condition, const Array& a, const Array& b);
Array where(const Array& condition, const Array& a, const Scalar& b);
Array where(const Array& condition, const Scalar& a, const Array& b);
Array where(const Array& condition, const Scalar& a, const Scalar& b);

// ---- reductions; `keepdims` leaves reduced dimensions with extent 1 -------------------------------------------------------

// Of bool and signed integers int64, of unsigned ones uint64; 16-bit floats are summed in float32 and rounded once. `dtype`:
// elements are cast to it first, and the result has it.
Array sum(const Array& a, const Axes& axes = {}, bool keepdims = false, std::optional<DType> dtype = {});
Array prod(const Array& a, const Axes& axes = {}, bool keepdims = false, std::optional<DType> dtype = {});
Array mean(const Array& a, const Axes& axes = {}, bool keepdims = false);  // of integers: float64
Array min(const Array& a, const Axes& axes = {}, bool keepdims = false);   // of nothing: kInvalidArgument
Array max(const Array& a, const Axes& axes = {}, bool keepdims = false);
Array any(const Array& a, const Axes& axes = {}, bool keepdims = false);
Array all(const Array& a, const Axes& axes = {}, bool keepdims = false);
// int64: the index along one axis, or into the flattened array; ties: the lowest.
Array argmin(const Array& a, const Axes& axis = {}, bool keepdims = false);
Array argmax(const Array& a, const Axes& axis = {}, bool keepdims = false);

// ---- products and joins ---------------------------------------------------------------------------------------------------

// As in NumPy and the standard: the last two dimensions are matrices, those before them stacks that broadcast; a vector is a
// row on the left, a column on the right, and that dimension is dropped again. Any two numbers' dtypes; products of 16-bit
// floats are summed in float32 over the whole of k and rounded once, without a copy of the factors as float32. Of scalars, and where inner extents or stacks do
// not fit: kShapeMismatch; of bool: kInvalidArgument.
struct MatmulOptions {
  // How many partial products along k are made apart and then summed, in a fixed order. More of them give placement a third
  // dimension to spread over, and each device less to receive, for as many times the result's memory: worth it where k is
  // long, or devices and their memory are many. The last bits are those of this number (at most that of the blocks along k),
  // wherever the parts are made. 1: one sum, from the first block of k to the last. 0: by shapes alone: 1, but for results of
  // at most 4 blocks over a long k.
  std::int64_t k_parts = 0;
  // Products of float32 on GPUs' tensor cores: factors are rounded to 10 bits of mantissa there, sums stay float32. Hosts
  // multiply float32 as ever. The product says that it was asked for, in explain and in graphs. Other dtypes: kInvalidArgument.
  bool tf32 = false;
};
// Negative parts or more than 65,536: kInvalidArgument; several, of stacks: kUnsupported.
Array matmul(const Array& a, const Array& b, const MatmulOptions& options = {});
// Any number of arrays, as their common dtype; more than 64 are joined in groups first. `axis` std::nullopt: each is flattened.
// Cuts along the axis: those of the arrays, side by side; but neighbouring blocks are joined, from the front, while they are together no
// larger than the arrays' largest (where all are of one block, and rows among them: than 1 MiB), so that what grows step by step stays in few blocks.
// kShapeMismatch where other extents differ, kInvalidArgument for none.
Array concat(std::span<const Array> arrays, std::optional<int> axis = 0);
Array stack(std::span<const Array> arrays, int axis = 0);  // along a new axis
inline Array concat(std::initializer_list<Array> arrays, std::optional<int> axis = 0) {
  return concat(std::span(arrays.begin(), arrays.size()), axis);
}
inline Array stack(std::initializer_list<Array> arrays, int axis = 0) {
  return stack(std::span(arrays.begin(), arrays.size()), axis);
}
// The arrays that x[i] are for each i along `axis`, as views.
std::vector<Array> unstack(const Array& a, int axis = 0);

}  // namespace tilewise
