#include <tilewise/ir/shape.h>

#include <tilewise/base/array_error.h>

#include <algorithm>

namespace tilewise::ir {

void too_many_dims(std::size_t dims) {
  throw ArrayError(Errc::kLimitExceeded,
                   std::to_string(dims) + " dimensions; the limit is " + std::to_string(limits::kMaxRank));
}

Shape Box::shape() const {
  Shape s;
  for (int d = 0; d < rank(); ++d) s.push_back(extent(d));
  return s;
}

std::int64_t Box::volume() const {
  std::int64_t v = 1;
  for (int d = 0; d < rank(); ++d) v *= extent(d);
  return v;
}

bool Box::contains(const Index& p) const {
  for (std::size_t d = 0; d < lo.size(); ++d)
    if (p[d] < lo[d] || p[d] >= hi[d]) return false;
  return true;
}

Box box_of(const Shape& shape) { return Box{Index(shape.size(), 0), shape}; }

Box intersect(const Box& a, const Box& b) {
  Box r;
  for (std::size_t d = 0; d < a.lo.size(); ++d) {
    r.lo.push_back(std::max(a.lo[d], b.lo[d]));
    r.hi.push_back(std::max(r.lo[d], std::min(a.hi[d], b.hi[d])));
  }
  return r;
}

std::optional<Index> next_in(const Box& box, const Index& at) {
  for (std::size_t d = 0; d < box.lo.size(); ++d)
    if (box.lo[d] >= box.hi[d]) return std::nullopt;
  Index found = at;
  for (std::size_t d = 0; d < box.lo.size(); ++d) {
    if (at[d] >= box.lo[d] && at[d] < box.hi[d]) continue;
    if (at[d] >= box.hi[d]) {  // a step further in a dimension before this one
      do {
        if (d == 0) return std::nullopt;
        --d;
      } while (at[d] + 1 >= box.hi[d]);
      ++found[d];
      ++d;
    }
    for (; d < box.lo.size(); ++d) found[d] = box.lo[d];
  }
  return found;
}

Result<std::int64_t> checked_volume(std::span<const std::int64_t> shape) {
  // Zero extents do not excuse the others: strides and block counts multiply those too.
  std::int64_t v = 1;
  bool empty = false;
  for (const std::int64_t e : shape) {
    if (e < 0) return error(Errc::kInvalidArgument, "negative extent " + std::to_string(e));
    if (e == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(v, e, &v)) {
      return error(Errc::kOutOfRange, "a product of extents passes 2^63 - 1");
    }
  }
  return empty ? 0 : v;
}

std::int64_t volume(const Shape& shape) {
  std::int64_t v = 1;
  for (const std::int64_t e : shape) v *= e;
  return v;
}

Strides c_order_strides(const Shape& shape) {
  Strides s(shape.size(), 1);
  for (int d = static_cast<int>(shape.size()) - 2; d >= 0; --d)
    s[d] = s[d + 1] * std::max<std::int64_t>(shape[d + 1], 1);
  return s;
}

std::int64_t ravel(const Index& index, const Shape& counts) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < counts.size(); ++d) at = at * counts[d] + index[d];
  return at;
}

Index unravel(std::int64_t position, const Shape& counts) {
  Index index(counts.size(), 0);
  for (int d = static_cast<int>(counts.size()) - 1; d > 0; --d) {
    index[d] = position % counts[d];
    position /= counts[d];
  }
  if (!index.empty()) index[0] = position;
  return index;
}

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape out(rank, 1);
  for (std::size_t i = 1; i <= rank; ++i) {
    const std::int64_t x = i <= a.size() ? a[a.size() - i] : 1, y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1)
      return error(Errc::kShapeMismatch,
                   "shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    out[rank - i] = x == 1 ? y : x;
  }
  return out;
}

std::string to_string(const Shape& shape) {
  std::string s = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) s += (d ? ", " : "") + std::to_string(shape[d]);
  return s + (shape.size() == 1 ? ",)" : ")");
}

std::string to_string(const Box& box) {
  std::string s = "[";
  for (int d = 0; d < box.rank(); ++d)
    s += (d ? ", " : "") + std::to_string(box.lo[d]) + ":" + std::to_string(box.hi[d]);
  return s + "]";
}

}  // namespace tilewise::ir
