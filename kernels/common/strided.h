// Linear positions over strided memory: which runs of memory hold C-order elements [begin, begin + n) of a region.
#pragma once
#include <tilewise/ir/shape.h>

#include <algorithm>

namespace tilewise::kernels {

struct Element16 {  // of 16 bytes, whatever it is, where it is only moved
  std::uint64_t low, high;
};

// A region's shape and strides with dimensions of extent one dropped and neighbours merged where memory allows it, so
// that the innermost run is as long as it can be. Always of rank 1 or more; C order of elements is kept.
struct Collapsed {
  ir::Shape shape;
  ir::Strides strides;  // in elements

  std::int64_t run() const { return shape.back(); }  // length of the innermost run
  std::int64_t stride() const { return strides.back(); }
  bool is_flat() const { return shape.size() == 1; }
};

inline Collapsed collapse(const ir::Shape& shape, const ir::Strides& strides) {
  Collapsed out;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (!out.shape.empty() && out.strides.back() == strides[d] * shape[d]) {
      out.shape.back() *= shape[d];
      out.strides.back() = strides[d];
    } else {
      out.shape.push_back(shape[d]);
      out.strides.push_back(strides[d]);
    }
  }
  if (out.shape.empty()) {
    out.shape.push_back(1);
    out.strides.push_back(1);
  }
  return out;
}

// Calls visit(offset, count) for the runs that make up elements [begin, begin + n), in order; each run has stride
// c.stride(). Offsets are in elements.
template <class Visit> void for_runs(const Collapsed& c, std::int64_t begin, std::int64_t n, Visit&& visit) {
  const int last = static_cast<int>(c.shape.size()) - 1;
  if (last == 0) {
    if (n > 0) visit(begin * c.strides[0], n);
    return;
  }
  ir::Index at;
  at.resize(c.shape.size());
  std::int64_t rest = begin, offset = 0;
  for (int d = last; d >= 0; --d) {
    const auto u = static_cast<std::size_t>(d);
    at[u] = rest % c.shape[u];
    rest /= c.shape[u];
    offset += at[u] * c.strides[u];
  }
  const auto inner = static_cast<std::size_t>(last);
  while (n > 0) {
    const std::int64_t count = std::min(n, c.shape[inner] - at[inner]);
    visit(offset, count);
    n -= count;
    offset -= at[inner] * c.strides[inner];
    at[inner] = 0;
    for (int d = last - 1; d >= 0; --d) {
      const auto u = static_cast<std::size_t>(d);
      offset += c.strides[u];
      if (++at[u] < c.shape[u]) break;
      offset -= c.shape[u] * c.strides[u];
      at[u] = 0;
    }
  }
}

}  // namespace tilewise::kernels
