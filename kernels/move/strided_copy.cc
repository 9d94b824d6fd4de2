#include "move/strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/strided.h"
#include "move/transpose.h"

namespace tilewise::kernels::move {
namespace {

using Dim = StridedCopy::Dim;
using Dims = StridedCopy::Dims;

// Order is free in a copy: largest destination stride outermost, so that writes run forward; neighbours that both
// memories keep together merge.
Dims normalised(const ir::Strides& to, const ir::Strides& from, const ir::Shape& shape) {
  Dims dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) dims.push_back({shape[d], to[d], from[d]});
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [](const Dim& a, const Dim& b) { return std::abs(a.to) > std::abs(b.to); });
  Dims out;
  for (const Dim& d : dims) {
    if (!out.empty() && out.back().to == d.to * d.extent && out.back().from == d.from * d.extent) {
      out.back() = {out.back().extent * d.extent, d.to, d.from};
    } else {
      out.push_back(d);
    }
  }
  if (out.empty()) out.push_back({1, 1, 1});
  return out;
}

template <class T>
void copy_row(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t n) {
  if (to_stride == 1 && from_stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  else if (to_stride == 1 && from_stride == 0)
    std::fill_n(to, n, *from);
  else
    for (std::int64_t j = 0; j < n; ++j) to[j * to_stride] = from[j * from_stride];
}

// One side runs along rows, the other along columns: squares of 8 KiB and less keep every touched line in the
// first-level cache until all of it is used.
template <class T> void transpose(T* to, const T* from, const Dim& rows, const Dim& cols) {
  if (rows.from == 1 && cols.to == 1)
    return find_transpose(sizeof(T))(to, rows.to, from, cols.from, rows.extent, cols.extent);
  constexpr std::int64_t kSquare = 32;
  for (std::int64_t r0 = 0; r0 < rows.extent; r0 += kSquare) {
    const std::int64_t r1 = std::min(rows.extent, r0 + kSquare);
    for (std::int64_t c0 = 0; c0 < cols.extent; c0 += kSquare) {
      const std::int64_t c1 = std::min(cols.extent, c0 + kSquare);
      for (std::int64_t r = r0; r < r1; ++r) {
        T* out = to + r * rows.to + c0 * cols.to;
        const T* in = from + r * rows.from + c0 * cols.from;
        for (std::int64_t c = c0; c < c1; ++c, out += cols.to, in += cols.from) *out = *in;
      }
    }
  }
}

// Each element of a row some times, one behind the other.
template <class T> void repeat_row(T* to, const T* from, const Dim& row, std::int64_t times) {
  for (std::int64_t i = 0; i < row.extent; ++i) {
    const T value = from[i * row.from];
    T* const out = to + i * row.to;
    for (std::int64_t k = 0; k < times; ++k) out[k] = value;
  }
}

template <class T> void copy_dims(T* to, const T* from, const Dims& dims, std::size_t d) {
  const Dim& dim = dims[d];
  if (d + 1 == dims.size()) return copy_row(to, dim.to, from, dim.from, dim.extent);
  if (d + 2 == dims.size() && std::abs(dim.from) < std::abs(dims[d + 1].from)) {
    return transpose(to, from, dim, dims[d + 1]);
  }
  if (d + 2 == dims.size() && dims[d + 1].from == 0 && dims[d + 1].to == 1)
    return repeat_row(to, from, dim, dims[d + 1].extent);
  for (std::int64_t i = 0; i < dim.extent; ++i) copy_dims(to + i * dim.to, from + i * dim.from, dims, d + 1);
}

template <class T> void copy_as(std::byte* to, const std::byte* from, const Dims& dims) {
  copy_dims(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), dims, 0);
}

}  // namespace

StridedCopy::StridedCopy(const ir::Strides& to_strides, const ir::Strides& from_strides,
                         const ir::Shape& shape, std::size_t element_bytes)
    : element_bytes_(element_bytes) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  dims_ = normalised(to_strides, from_strides, shape);
  // The dimension along which the source is densest goes next to the innermost, where transpose() finds it.
  if (dims_.size() > 2 && std::abs(dims_.back().from) != 1) {
    const auto dense = std::min_element(dims_.begin(), dims_.end() - 1, [](const Dim& a, const Dim& b) {
      return std::abs(a.from) < std::abs(b.from);
    });
    std::rotate(dense, dense + 1, dims_.end() - 1);
  }
}

void StridedCopy::operator()(std::byte* to, const std::byte* from) const {
  if (dims_.empty()) return;
  switch (element_bytes_) {
    case 16: return copy_as<Element16>(to, from, dims_);
    case 8: return copy_as<std::uint64_t>(to, from, dims_);
    case 4: return copy_as<std::uint32_t>(to, from, dims_);
    case 2: return copy_as<std::uint16_t>(to, from, dims_);
    default: return copy_as<std::uint8_t>(to, from, dims_);
  }
}

}  // namespace tilewise::kernels::move
