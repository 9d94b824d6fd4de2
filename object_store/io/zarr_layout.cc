#include "zarr_layout.h"

#include <algorithm>
#include <cstring>

namespace tilewise::io {

namespace {

template <class T>
void copy_row(std::int64_t count, const std::byte* from, std::int64_t from_stride, std::byte* to,
              std::int64_t to_stride) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * to_stride * std::int64_t{sizeof(T)},
                from + i * from_stride * std::int64_t{sizeof(T)}, sizeof(T));
}

struct Sixteen {
  std::uint64_t parts[2];
};

}  // namespace

std::string chunk_key(const ZarrInfo& info, const ir::Index& at) {
  std::string key = info.c_keys ? "c" : "";
  for (const std::int64_t i : at) {
    if (!key.empty()) key += info.separator;
    key += std::to_string(i);
  }
  return key.empty() ? "0" : key;
}

ir::Box chunk_box(const ir::Shape& extents, const ir::Index& at) {
  ir::Box box;
  for (std::size_t d = 0; d < at.size(); ++d) {
    box.lo.push_back(at[d] * extents[d]);
    box.hi.push_back((at[d] + 1) * extents[d]);
  }
  return box;
}

ir::Box chunks_of(const ir::Shape& extents, const ir::Box& box) {
  ir::Box out;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    out.lo.push_back(box.lo[d] / extents[d]);
    out.hi.push_back(box.hi[d] > box.lo[d] ? (box.hi[d] - 1) / extents[d] + 1 : box.lo[d] / extents[d]);
  }
  return out;
}

ir::Strides stored_strides(const ZarrInfo& info, const ir::Shape& extents) {
  if (info.order.empty()) return ir::c_order_strides(extents);
  ir::Strides strides(extents.size(), 1);
  std::int64_t stride = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(info.order[i]);
    strides[d] = stride;
    stride *= extents[d];
  }
  return strides;
}

void copy_strided(const ir::Shape& shape, std::size_t item, const std::byte* from,
                  const ir::Strides& from_strides, std::byte* to, const ir::Strides& to_strides) {
  // The dimensions that are contiguous on both sides go as one run.
  std::size_t rank = shape.size();
  std::int64_t run = 1;
  while (rank > 0 && (shape[rank - 1] == 1 || (from_strides[rank - 1] == run && to_strides[rank - 1] == run)))
    run *= shape[--rank];
  const std::size_t outer = run == 1 && rank > 0 ? rank - 1 : rank;  // else rows of single elements
  ir::Index at(outer, 0);
  const auto bytes = static_cast<std::int64_t>(item);
  for (;;) {
    std::int64_t f = 0, t = 0;
    for (std::size_t d = 0; d < outer; ++d) f += at[d] * from_strides[d], t += at[d] * to_strides[d];
    if (outer == rank) {
      std::memcpy(to + t * bytes, from + f * bytes, static_cast<std::size_t>(run) * item);
    } else {
      const std::int64_t n = shape[outer], fs = from_strides[outer], ts = to_strides[outer];
      switch (item) {
        case 1: copy_row<std::uint8_t>(n, from + f * bytes, fs, to + t * bytes, ts); break;
        case 2: copy_row<std::uint16_t>(n, from + f * bytes, fs, to + t * bytes, ts); break;
        case 4: copy_row<std::uint32_t>(n, from + f * bytes, fs, to + t * bytes, ts); break;
        case 8: copy_row<std::uint64_t>(n, from + f * bytes, fs, to + t * bytes, ts); break;
        default: copy_row<Sixteen>(n, from + f * bytes, fs, to + t * bytes, ts);
      }
    }
    std::size_t d = outer;
    while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

void swap_bytes(ir::DType dtype, std::byte* data, std::size_t bytes) {
  const std::size_t item = ir::size_of(dtype) / (ir::is_complex(dtype) ? 2 : 1);
  for (std::size_t at = 0; at + item <= bytes; at += item) std::reverse(data + at, data + at + item);
}

}  // namespace tilewise::io
