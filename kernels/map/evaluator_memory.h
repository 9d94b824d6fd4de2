// A tile's memory, and element moves by size: fills and strided gathers.
#pragma once
#include <tilewise/ir/dtype.h>

#include <cstddef>
#include <cstdint>

namespace tilewise::kernels::map {

// Aligned scratch. One buffer a thread outlives its users: fresh pages would cost more than a small block's arithmetic.
class TileMemory {
 public:
  TileMemory() = default;
  explicit TileMemory(std::size_t bytes);
  TileMemory(TileMemory&& other) noexcept;
  TileMemory& operator=(TileMemory&& other) noexcept;
  ~TileMemory();
  std::byte* get() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// `n` copies of the element of `size` bytes at `from` (which may lie in the first element of `to`).
void fill_same(void* to, const void* from, std::int64_t size, std::int64_t n);
// Elements from[j * stride], stride in elements.
void gather(void* to, const void* from, std::int64_t size, std::int64_t stride, std::int64_t n);
// A constant of a tape in a dtype that kernels compute in, n times.
void fill_constant(void* to, ir::DType dtype, double f, std::int64_t i, std::int64_t n);

}  // namespace tilewise::kernels::map
