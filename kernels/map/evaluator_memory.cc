#include "map/evaluator_memory.h"

#include "common/strided.h"

#include <tilewise/base/check.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tilewise::kernels::map {
namespace {

template <class T> void fill_as(void* to, T value, std::int64_t n) {
  std::fill_n(static_cast<T*>(to), n, value);
}

template <class T> void fill_from(void* to, const void* from, std::int64_t n) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  fill_as(to, value, n);
}

template <class T> void gather_as(void* to, const void* from, std::int64_t stride, std::int64_t n) {
  T* out = static_cast<T*>(to);
  const T* in = static_cast<const T*>(from);
  for (std::int64_t j = 0; j < n; ++j) out[j] = in[j * stride];
}

struct Spare {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  ~Spare() { std::free(data); }
};
thread_local Spare spare;

}  // namespace

TileMemory::TileMemory(std::size_t bytes) : bytes_((bytes + 63) / 64 * 64) {
  if (spare.bytes >= bytes_ && spare.data != nullptr) {
    data_ = std::exchange(spare.data, nullptr);
    bytes_ = std::exchange(spare.bytes, 0);
  } else {
    data_ = static_cast<std::byte*>(std::aligned_alloc(64, bytes_));
    TW_CHECK(data_ != nullptr, "no memory for the tiles of a tape");
  }
}

TileMemory::TileMemory(TileMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

TileMemory& TileMemory::operator=(TileMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

TileMemory::~TileMemory() {
  if (bytes_ > spare.bytes) {
    std::swap(data_, spare.data);
    std::swap(bytes_, spare.bytes);
  }
  std::free(data_);
}

void fill_same(void* to, const void* from, std::int64_t size, std::int64_t n) {
  if (size == 16)
    fill_from<Element16>(to, from, n);
  else if (size == 8)
    fill_from<std::uint64_t>(to, from, n);
  else if (size == 2)
    fill_from<std::uint16_t>(to, from, n);
  else if (size == 4)
    fill_from<std::uint32_t>(to, from, n);
  else
    fill_from<std::uint8_t>(to, from, n);
}

void gather(void* to, const void* from, std::int64_t size, std::int64_t stride, std::int64_t n) {
  if (stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(n * size));
  else if (stride == 0)
    fill_same(to, from, size, n);
  else if (size == 16)
    gather_as<Element16>(to, from, stride, n);
  else if (size == 8)
    gather_as<std::uint64_t>(to, from, stride, n);
  else if (size == 2)
    gather_as<std::uint16_t>(to, from, stride, n);
  else if (size == 4)
    gather_as<std::uint32_t>(to, from, stride, n);
  else
    gather_as<std::uint8_t>(to, from, stride, n);
}

void fill_constant(void* to, ir::DType dtype, double f, std::int64_t i, std::int64_t n) {
  const double g = std::bit_cast<double>(i);  // complex: the imaginary part
  switch (dtype) {
    case ir::DType::kBool: return fill_as<std::uint8_t>(to, i != 0, n);
    case ir::DType::kInt32: return fill_as<std::int32_t>(to, static_cast<std::int32_t>(i), n);
    case ir::DType::kInt64:
    case ir::DType::kUInt64: return fill_as<std::int64_t>(to, i, n);
    case ir::DType::kFloat32: return fill_as<float>(to, static_cast<float>(f), n);
    case ir::DType::kFloat64: return fill_as<double>(to, f, n);
    case ir::DType::kComplex64:
      return fill_as<std::array<float, 2>>(to, {static_cast<float>(f), static_cast<float>(g)}, n);
    case ir::DType::kComplex128: return fill_as<std::array<double, 2>>(to, {f, g}, n);
    default: TW_CHECK(false, "a constant of a narrow dtype");
  }
}

}  // namespace tilewise::kernels::map
