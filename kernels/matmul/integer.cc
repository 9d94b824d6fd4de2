// Integer products: rows of b are added into a row of the output while a panel of b stays in cache. Any order gives the
// same bits, so blocking is free.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "matmul/integer.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "matmul/integer.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::matmul {
namespace HWY_NAMESPACE {

constexpr std::int64_t kDepth = 64, kColumns = 512;

template <class T>
HWY_INLINE void add_row(T* HWY_RESTRICT out, const T* HWY_RESTRICT b, T a, std::int64_t n) {
  if constexpr (sizeof(T) == 1) {
    for (std::int64_t j = 0; j < n; ++j) out[j] |= static_cast<T>(a & b[j]);
  } else {
    using U = std::make_unsigned_t<T>;
    for (std::int64_t j = 0; j < n; ++j) {
      out[j] = static_cast<T>(static_cast<U>(out[j]) + static_cast<U>(a) * static_cast<U>(b[j]));
    }
  }
}

template <class T> void product(const Product& p, const void* from, std::int64_t ldb) {
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(from);
  T* out = static_cast<T*>(p.out);
  if (!p.accumulate) std::fill_n(out, p.m * p.n, T{0});
  for (std::int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    const std::int64_t k1 = std::min(p.k, k0 + kDepth);
    for (std::int64_t j = 0; j < p.n; j += kColumns) {
      const std::int64_t columns = std::min(kColumns, p.n - j);
      for (std::int64_t i = 0; i < p.m; ++i) {
        for (std::int64_t k = k0; k < k1; ++k) {
          const T value = a[i * p.a_row + k * p.a_column];
          if (value != 0) add_row<T>(out + i * p.n + j, b + k * ldb + j, value, columns);
        }
      }
    }
  }
}

void product_of_dtype(const Product& p, const void* b, std::int64_t ldb) {
  switch (p.dtype) {
    case ir::DType::kBool: return product<std::uint8_t>(p, b, ldb);
    case ir::DType::kInt32: return product<std::int32_t>(p, b, ldb);
    default: return product<std::int64_t>(p, b, ldb);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::matmul
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::matmul {
HWY_EXPORT(product_of_dtype);
void integer_product(const Product& p, const void* b, std::int64_t ldb) {
  HWY_DYNAMIC_DISPATCH(product_of_dtype)(p, b, ldb);
}
}  // namespace tilewise::kernels::matmul
#endif
