// Additions at places that may come several times.
#include <complex>

#include "index/pick.h"

namespace tilewise::kernels::index {
namespace {

template <class T> void add_to(T& to, T from) {
  to = static_cast<T>(to + from);  // unsigned: integers wrap
}

template <class T>
void add_picked(const tilewise_view_v1& to, const tilewise_view_v1& from, int axis, const std::int64_t* to_at,
                const std::int64_t* from_at, std::int64_t count) {
  tilewise_view_v1 lines_to = to, lines_from = from;  // of the dimensions before the axis
  lines_to.rank = lines_from.rank = axis;
  tilewise_view_v1 behind_to = to, behind_from = from;
  const int behind = behind_to.rank = behind_from.rank = to.rank - axis - 1;
  for (int d = 0; d < behind; ++d) {
    behind_to.shape[d] = behind_from.shape[d] = to.shape[axis + 1 + d];
    behind_to.strides[d] = to.strides[axis + 1 + d];
    behind_from.strides[d] = from.strides[axis + 1 + d];
  }
  const std::int64_t n = behind == 0 ? 1 : behind_to.shape[behind - 1];
  const std::int64_t to_step = behind == 0 ? 1 : behind_to.strides[behind - 1];
  const std::int64_t from_step = behind == 0 ? 1 : behind_from.strides[behind - 1];
  builtin::for_lines<2>({&lines_to, &lines_from}, -1, [&](const auto& start) {
    T* const target = static_cast<T*>(to.data) + start[0];
    const T* const source = static_cast<const T*>(from.data) + start[1];
    for (std::int64_t k = 0; k < count; ++k) {
      T* const t = target + to_at[k] * to.strides[axis];
      const T* const f = source + from_at[k] * from.strides[axis];
      if (behind == 0) {
        add_to(*t, *f);
        continue;
      }
      builtin::for_lines<2>({&behind_to, &behind_from}, behind - 1, [&](const auto& line) {
        T* const a = t + line[0];
        const T* const b = f + line[1];
        if (to_step == 1 && from_step == 1)
          for (std::int64_t i = 0; i < n; ++i) add_to(a[i], b[i]);
        else
          for (std::int64_t i = 0; i < n; ++i) add_to(a[i * to_step], b[i * from_step]);
      });
    }
  });
}

}  // namespace

PickedAdd picked_add(std::int32_t dtype) {
  switch (static_cast<ir::DType>(dtype)) {
    case ir::DType::kInt8:
    case ir::DType::kUInt8: return add_picked<std::uint8_t>;
    case ir::DType::kInt16:
    case ir::DType::kUInt16: return add_picked<std::uint16_t>;
    case ir::DType::kInt32:
    case ir::DType::kUInt32: return add_picked<std::uint32_t>;
    case ir::DType::kInt64:
    case ir::DType::kUInt64: return add_picked<std::uint64_t>;
    case ir::DType::kFloat32: return add_picked<float>;
    case ir::DType::kFloat64: return add_picked<double>;
    case ir::DType::kComplex64: return add_picked<std::complex<float>>;
    case ir::DType::kComplex128: return add_picked<std::complex<double>>;
    case ir::DType::kBool:
    case ir::DType::kFloat16:
    case ir::DType::kBFloat16: break;
  }
  return nullptr;
}

}  // namespace tilewise::kernels::index
