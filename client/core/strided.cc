#include "strided.h"

#include <cstring>

namespace tilewise::client {
namespace {

// Calls row(offset in the whole, offset in the block, elements) for each longest run.
template <class Row> void rows(const ir::Shape& shape, const ir::Box& box, Row row) {
  if (box.volume() == 0) return;
  const ir::Strides strides = ir::c_order_strides(shape);
  // Dimensions from `inner` on form one run: all of them but the first are whole.
  int inner = box.rank();
  std::int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= box.extent(inner);
    if (box.extent(inner) != shape[static_cast<std::size_t>(inner)]) break;
  }
  ir::Index at = box.lo;
  std::int64_t packed = 0;
  for (;;) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * strides[d];
    row(offset, packed, run);
    packed += run;
    int d = inner - 1;
    for (; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      if (++at[i] < box.hi[i]) break;
      at[i] = box.lo[i];
    }
    if (d < 0) return;
  }
}

}  // namespace

bool contiguous(const ir::Shape& shape, const ir::Box& box) {
  int d = 0;
  while (d < box.rank() && box.extent(d) <= 1) ++d;
  for (++d; d < box.rank(); ++d) {
    if (box.extent(d) != shape[static_cast<std::size_t>(d)]) return false;
  }
  return true;
}

std::int64_t first_element(const ir::Shape& shape, const ir::Box& box) {
  const ir::Strides strides = ir::c_order_strides(shape);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < box.lo.size(); ++d) offset += box.lo[d] * strides[d];
  return offset;
}

void scatter(std::byte* whole, const ir::Shape& shape, const ir::Box& box, const std::byte* packed,
             std::size_t element_bytes) {
  rows(shape, box, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    const auto n = static_cast<std::int64_t>(element_bytes);
    std::memcpy(whole + to * n, packed + from * n, static_cast<std::size_t>(count * n));
  });
}

void gather(const std::byte* whole, const ir::Shape& shape, const ir::Box& box, std::byte* packed,
            std::size_t element_bytes) {
  rows(shape, box, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    const auto n = static_cast<std::int64_t>(element_bytes);
    std::memcpy(packed + to * n, whole + from * n, static_cast<std::size_t>(count * n));
  });
}

}  // namespace tilewise::client
