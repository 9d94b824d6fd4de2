// Views: how an op reads an array without moving it. Slices with steps, integer indices, transposes, inserted and
// removed dimensions of extent one, and broadcasts are views; they compose in closed form.
#pragma once
#include <tilewise/ir/grid.h>

#include <optional>

namespace tilewise::ir {

// One dimension of the source array, as the view reads it: position = start + step * logical[dim], or the constant
// `start` where dim is -1.
struct SourceDim {
  std::int8_t dim = -1;
  std::int64_t start = 0;
  std::int64_t step = 1;  // signed, not 0
  friend bool operator==(const SourceDim&, const SourceDim&) = default;
};

// Maps each logical index to one source element. A logical dimension that no source dimension names repeats
// (broadcast). Each logical dimension is named at most once.
struct View {
  Shape shape;               // logical
  PerDim<SourceDim> source;  // one entry a source dimension

  static View identity(const Shape& shape);
  int rank() const { return static_cast<int>(shape.size()); }
  bool is_identity(const Shape& source_shape) const;
  std::optional<int> source_of(int logical_dim) const;  // the source dimension it walks, if any

  // Each returns the composed view; errors carry the shapes. Axes may be negative as in NumPy.
  Result<View> permute(std::span<const int> axes) const;
  Result<View> transpose() const;  // reverses all dimensions
  Result<View> slice(int axis, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                     std::int64_t step) const;          // NumPy's clipping rules
  Result<View> at(int axis, std::int64_t index) const;  // integer index: drops the axis
  Result<View> expand_dims(int axis) const;
  Result<View> squeeze(int axis) const;  // extent must be 1
  Result<View> broadcast_to(const Shape& shape) const;

  // The elements of the source that a logical box touches: a box with the smallest bounds (steps may skip inside).
  // An empty logical box gives an empty source box.
  Box source_box(const Box& logical) const;
  // Checks bounds against the source: every logical index must land inside.
  Status verify(const Shape& source_shape) const;

  friend bool operator==(const View&, const View&) = default;
};

// `outer` reads what `inner` shows: one view on inner's source.
View compose(const View& outer, const View& inner);

// The cuts that a source grid induces on the view's logical dimensions (a broadcast dimension has one block): block
// boundaries of the result lie where the source block changes. Explicit cuts where uniform ones do not survive the
// step; past kMaxExplicitCuts the dimension falls back to `by_default`-like uniform cuts (then a reader must gather).
Grid induced_grid(const View& view, const Grid& source);

// True when every block of `space` (a grid over the view's logical shape) lies in one block of `source`.
bool aligned(const View& view, const Grid& source, const Grid& space);

}  // namespace tilewise::ir
