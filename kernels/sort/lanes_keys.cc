// Numbers to keys and back, once per Highway target: compilers make vectors of the loops.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sort/lanes_keys.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "sort/keys.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::sort {
namespace HWY_NAMESPACE {

template <class T, bool kDescending> void to_keys(const void* from, void* to, std::int64_t n) {
  using Order = sort::Order<T, kDescending>;
  const T* x = static_cast<const T*>(from);
  auto* keys = static_cast<typename Order::Key*>(to);
#pragma GCC ivdep  // both may be one memory
  for (std::int64_t i = 0; i < n; ++i) keys[i] = Order::key(x[i]);
}
template <class T, bool kDescending> void from_keys(const void* from, void* to, std::int64_t n) {
  using Order = sort::Order<T, kDescending>;
  const auto* keys = static_cast<const typename Order::Key*>(from);
  T* x = static_cast<T*>(to);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) x[i] = Order::value(keys[i]);
}

template <class T, bool kDescending> std::int64_t sorted_until(const void* values, std::int64_t n) {
  using Order = sort::Order<T, kDescending>;
  constexpr std::int64_t kAtOnce = 64;
  using Key = typename Order::Key;
  const T* x = static_cast<const T*>(values);
  std::int64_t i = 1;
  for (; i + kAtOnce <= n; i += kAtOnce) {
    Key keys[kAtOnce + 1], falls = 0;
    for (std::int64_t k = 0; k <= kAtOnce; ++k) keys[k] = Order::key(x[i - 1 + k]);
    for (std::int64_t k = 0; k < kAtOnce; ++k) falls |= static_cast<Key>(keys[k + 1] < keys[k] ? 1 : 0);
    if (falls != 0) break;
  }
  for (; i < n; ++i)
    if (Order::key(x[i]) < Order::key(x[i - 1])) return i;
  return n;
}

template <class T, bool kDescending>
std::int64_t not_before(const void* values, std::int64_t n, std::uint64_t bar, bool or_equal) {
  using Order = sort::Order<T, kDescending>;
  using Key = typename Order::Key;
  const T* x = static_cast<const T*>(values);
  const auto at = static_cast<Key>(bar);
  std::int64_t i = 0;
  for (; i + kSkipped <= n; i += kSkipped) {
    Key found = 0;
    if (or_equal)
      for (std::int64_t k = 0; k < kSkipped; ++k)
        found |= static_cast<Key>(Order::equal_key(x[i + k]) <= at ? 1 : 0);
    else
      for (std::int64_t k = 0; k < kSkipped; ++k)
        found |= static_cast<Key>(Order::equal_key(x[i + k]) < at ? 1 : 0);
    if (found != 0) break;
  }
  return i;
}

KeyFns key_fns(std::int32_t dtype, bool descending) {
  KeyFns fns;
  with_ordered(dtype, [&]<class T>(T) {
    fns = descending
              ? KeyFns{to_keys<T, true>, from_keys<T, true>, sorted_until<T, true>, not_before<T, true>}
              : KeyFns{to_keys<T, false>, from_keys<T, false>, sorted_until<T, false>, not_before<T, false>};
  });
  return fns;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::sort
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::sort {
HWY_EXPORT(key_fns);
KeyFns find_key_fns(std::int32_t dtype, bool descending) {
  return HWY_DYNAMIC_DISPATCH(key_fns)(dtype, descending);
}
}  // namespace tilewise::kernels::sort
#endif
