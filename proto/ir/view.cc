#include <tilewise/ir/view.h>
#include <tilewise/ir/walk.h>

#include <algorithm>

namespace tilewise::ir {
namespace {

Error bad(const View& v, const std::string& what) {
  return error(Errc::kInvalidArgument, what + " of an array of shape " + to_string(v.shape));
}

// NumPy's negative axes. `rank` is one more for insertions.
Result<int> axis_in(const View& v, int axis, int rank) {
  const int a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank) return error(Errc::kOutOfRange, bad(v, "axis " + std::to_string(axis)).message);
  return a;
}

// Renumbers logical dimensions after the removal of one.
void drop_dim(View& v, int axis) {
  v.shape.erase(v.shape.begin() + axis);
  for (SourceDim& s : v.source)
    if (s.dim > axis) --s.dim;
}

}  // namespace

View View::identity(const Shape& shape) {
  View v;
  v.shape = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) v.source.push_back({static_cast<std::int8_t>(d), 0, 1});
  return v;
}

bool View::is_identity(const Shape& source_shape) const { return *this == identity(source_shape); }

std::optional<int> View::source_of(int logical_dim) const {
  for (std::size_t s = 0; s < source.size(); ++s)
    if (source[s].dim == logical_dim) return static_cast<int>(s);
  return std::nullopt;
}

Result<View> View::permute(std::span<const int> axes) const {
  if (static_cast<int>(axes.size()) != rank())
    return bad(*this, std::to_string(axes.size()) + " axes for a permutation");
  View v = *this;
  PerDim<std::int8_t> to(shape.size(), -1);  // old dimension -> new
  for (int i = 0; i < rank(); ++i) {
    TW_ASSIGN(const int a, axis_in(*this, axes[static_cast<std::size_t>(i)], rank()));
    if (to[a] >= 0) return bad(*this, "axis " + std::to_string(a) + " twice in a permutation");
    to[a] = static_cast<std::int8_t>(i);
    v.shape[i] = shape[a];
  }
  for (SourceDim& s : v.source)
    if (s.dim >= 0) s.dim = to[s.dim];
  return v;
}

Result<View> View::transpose() const {
  PerDim<int> axes;
  for (int d = rank() - 1; d >= 0; --d) axes.push_back(d);
  return permute({axes.data(), axes.size()});
}

Result<View> View::slice(int axis, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                         std::int64_t step) const {
  TW_ASSIGN(axis, axis_in(*this, axis, rank()));
  if (step == 0) return bad(*this, "step 0 in a slice");
  if (step == INT64_MIN) step = -INT64_MAX;
  const std::int64_t n = shape[axis];
  // Clipped to [0, n] going up, to [-1, n - 1] going down; a negative bound counts from the end.
  const std::int64_t least = step > 0 ? 0 : -1, most = step > 0 ? n : n - 1;
  const auto clip = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? *at + n : *at, least, most);
  };
  const std::int64_t lo = clip(start, step > 0 ? 0 : n - 1), hi = clip(stop, step > 0 ? n : -1);
  const std::int64_t count =
      std::max<std::int64_t>(0, step > 0 ? ceil_div(hi - lo, step) : ceil_div(lo - hi, -step));

  View v = *this;
  v.shape[axis] = count;
  if (const std::optional<int> s = source_of(axis); s && count > 0) {
    SourceDim& dim = v.source[*s];
    dim.start += dim.step * lo;
    // One element has no direction: one representation for one view.
    dim.step = count == 1 ? 1 : dim.step * step;
  }
  return v;
}

Result<View> View::at(int axis, std::int64_t index) const {
  TW_ASSIGN(axis, axis_in(*this, axis, rank()));
  const std::int64_t n = shape[axis], i = index < 0 ? index + n : index;
  if (i < 0 || i >= n)
    return error(Errc::kOutOfRange, "index " + std::to_string(index) + " is out of bounds for axis " +
                                        std::to_string(axis) + " of shape " + to_string(shape));
  View v = *this;
  if (const std::optional<int> s = source_of(axis))
    v.source[*s] = {-1, source[*s].start + source[*s].step * i, 1};
  drop_dim(v, axis);
  return v;
}

Result<View> View::expand_dims(int axis) const {
  if (rank() == limits::kMaxRank)
    return error(Errc::kLimitExceeded,
                 bad(*this, "more than " + std::to_string(limits::kMaxRank) + " dimensions").message);
  TW_ASSIGN(axis, axis_in(*this, axis, rank() + 1));
  View v = *this;
  v.shape.insert(v.shape.begin() + axis, 1);
  for (SourceDim& s : v.source)
    if (s.dim >= axis) ++s.dim;
  return v;
}

Result<View> View::squeeze(int axis) const {
  TW_ASSIGN(axis, axis_in(*this, axis, rank()));
  if (shape[axis] != 1) return bad(*this, "cannot squeeze axis " + std::to_string(axis));
  return at(axis, 0);
}

Result<View> View::broadcast_to(const Shape& to) const {
  const int added = static_cast<int>(to.size()) - rank();
  bool fits = added >= 0;
  for (int d = 0; fits && d < rank(); ++d) fits = shape[d] == to[d + added] || shape[d] == 1;
  for (const std::int64_t e : to) fits = fits && e >= 0;
  if (!fits)
    return error(Errc::kShapeMismatch,
                 "shape " + to_string(shape) + " does not broadcast to " + to_string(to));
  TW_TRY(checked_volume(to));
  View v = *this;
  v.shape = to;
  for (SourceDim& s : v.source) {
    if (s.dim < 0) continue;
    const int d = s.dim + added;
    s = shape[s.dim] == to[d] ? SourceDim{static_cast<std::int8_t>(d), s.start, s.step}
                              : SourceDim{-1, s.start, 1};
  }
  return v;
}

Box View::source_box(const Box& logical) const {
  Box b;
  bool empty = false;
  for (int d = 0; d < logical.rank(); ++d) empty |= logical.lo[d] >= logical.hi[d];
  for (const SourceDim& s : source) {
    std::int64_t lo = 0, hi = 0;
    if (!empty) {
      lo = hi = s.start;
      if (s.dim >= 0) {
        const std::int64_t first = s.start + s.step * logical.lo[s.dim],
                           last = s.start + s.step * (logical.hi[s.dim] - 1);
        lo = std::min(first, last);
        hi = std::max(first, last);
      }
      ++hi;
    }
    b.lo.push_back(lo);
    b.hi.push_back(hi);
  }
  return b;
}

Status View::verify(const Shape& source_shape) const {
  TW_TRY(checked_volume(shape));
  if (source.size() != source_shape.size())
    return error(Errc::kShapeMismatch, "a view of " + std::to_string(source.size()) +
                                           " dimensions on an array of shape " + to_string(source_shape));
  unsigned named = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const SourceDim& s = source[i];
    if (s.dim < -1 || s.dim >= rank()) return bad(*this, "a view names dimension " + std::to_string(s.dim));
    if (s.step == 0) return bad(*this, "a view with step 0");
    const std::int64_t extent = source_shape[i];
    // A longer step means nothing, as only one element could be seen; without it, steps compose without overflow.
    if (s.step < -std::max<std::int64_t>(extent, 1) || s.step > std::max<std::int64_t>(extent, 1))
      return error(Errc::kOutOfRange, "a view of an extent of " + std::to_string(extent) + " with step " +
                                          std::to_string(s.step));
    if (s.dim >= 0) {
      if (named >> s.dim & 1u)
        return bad(*this, "a view names dimension " + std::to_string(s.dim) + " twice");
      named |= 1u << s.dim;
      if (shape[s.dim] ==
          0) {  // reads nothing; the position is kept, within reason, for what composes with it
        if (s.start < 0 || s.start > extent)
          return error(Errc::kOutOfRange, "a view starts outside its array");
        continue;
      }
    }
    std::int64_t last = 0;
    if (s.dim >= 0 && (__builtin_mul_overflow(s.step, shape[s.dim] - 1, &last) ||
                       __builtin_add_overflow(last, s.start, &last)))
      return error(Errc::kOutOfRange, "a view passes 2^63 - 1");
    if (s.dim < 0) last = s.start;
    if (std::min(s.start, last) < 0 || std::max(s.start, last) >= extent)
      return error(Errc::kOutOfRange, "a view of shape " + to_string(shape) +
                                          " reads outside an array of shape " + to_string(source_shape));
  }
  return {};
}

View compose(const View& outer, const View& inner) {
  View v;
  v.shape = outer.shape;
  for (const SourceDim& s : inner.source) {
    if (s.dim < 0) {
      v.source.push_back(s);
      continue;
    }
    const SourceDim& o = outer.source[s.dim];
    v.source.push_back({o.dim, s.start + s.step * o.start, o.dim < 0 ? 1 : s.step * o.step});
  }
  return v;
}

Grid induced_grid(const View& view, const Grid& source) {
  std::vector<DimGrid> dims;
  for (int d = 0; d < view.rank(); ++d) dims.push_back(Walk::of(view, source, d).cuts_or_similar());
  return Grid(std::move(dims));
}

bool aligned(const View& view, const Grid& source, const Grid& space) {
  for (int d = 0; d < view.rank(); ++d)
    if (!aligned(Walk::of(view, source, d), space.dim(d))) return false;
  return true;
}

}  // namespace tilewise::ir
