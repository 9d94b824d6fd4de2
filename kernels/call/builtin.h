// What built-in kCall kernels share: parameters, errors, lines along an axis, dtypes.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/ir/builtin.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>
#include <tilewise/kernels/plugin_abi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>

namespace tilewise::kernels::builtin {

// What a kernel returns, besides 0: which error it is.
constexpr int kFailed = static_cast<int>(Errc::kTaskFailed);
constexpr int kOutOfRange = static_cast<int>(Errc::kOutOfRange);

template <class... Args>
int refuse(const tilewise_call_v1* call, int code, const char* format, Args... args) {
  std::snprintf(call->message, call->message_bytes, format, args...);
  return code;
}

// False, with a message, unless the caller sent parameters of that kind.
template <class P> bool read_params(const tilewise_call_v1* call, P& params) {
  if (ir::builtin::read(params, call->params, call->params_bytes)) return true;
  refuse(call, kFailed, "wants %zu bytes of parameters, not %zu", sizeof(P), call->params_bytes);
  return false;
}

inline std::size_t element_bytes(const tilewise_view_v1& view) {
  return ir::size_of(static_cast<ir::DType>(view.dtype));
}
inline std::int64_t volume(const tilewise_view_v1& view) {
  std::int64_t n = 1;
  for (int d = 0; d < view.rank; ++d) n *= view.shape[d];
  return n;
}
inline ir::Strides strides_of(const tilewise_view_v1& view) {
  return ir::Strides(view.strides, view.strides + view.rank);
}
inline ir::Shape shape_of(const tilewise_view_v1& view) {
  return ir::Shape(view.shape, view.shape + view.rank);
}

// All views have these extents but along `axis` (-1: there too; then lines are elements).
inline bool same_lines(std::initializer_list<const tilewise_view_v1*> views, int axis) {
  const tilewise_view_v1& first = **views.begin();
  for (const tilewise_view_v1* v : views) {
    if (v->rank != first.rank || axis >= v->rank) return false;
    for (int d = 0; d < v->rank; ++d)
      if (d != axis && v->shape[d] != first.shape[d]) return false;
  }
  return true;
}

// Calls visit(offsets) for each line along `axis`, in C order of the other dimensions: where it starts in each view, in
// elements. same_lines() holds.
template <std::size_t N, class Visit>
void for_lines(const std::array<const tilewise_view_v1*, N>& views, int axis, Visit&& visit) {
  const tilewise_view_v1& first = *views[0];
  std::array<std::int64_t, N> at{};
  std::array<std::int64_t, TILEWISE_MAX_RANK> index{};
  for (int d = 0; d < first.rank; ++d)
    if (d != axis && first.shape[d] == 0) return;
  for (;;) {
    visit(at);
    int d = first.rank - 1;
    for (; d >= 0; --d) {
      if (d == axis) continue;
      const bool more = ++index[static_cast<std::size_t>(d)] < first.shape[d];
      for (std::size_t v = 0; v < N; ++v) at[v] += views[v]->strides[d] * (more ? 1 : 1 - first.shape[d]);
      if (more) break;
      index[static_cast<std::size_t>(d)] = 0;
    }
    if (d < 0) return;
  }
}

struct Bytes16 {
  std::uint64_t low, high;
};

// visit(T()) with an integer type as large as an element: for what only moves elements.
template <class Visit> auto with_bytes(std::size_t bytes, Visit&& visit) {
  switch (bytes) {
    case 1: return visit(std::uint8_t{});
    case 2: return visit(std::uint16_t{});
    case 4: return visit(std::uint32_t{});
    case 8: return visit(std::uint64_t{});
    default: return visit(Bytes16{});
  }
}

}  // namespace tilewise::kernels::builtin
