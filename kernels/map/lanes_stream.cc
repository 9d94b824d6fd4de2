// Stores past the caches, once per Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_stream.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <cstring>

#include "map/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

void stream_bytes(void* to, const void* from, std::size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<std::uint8_t, kStreamed> d;
  auto* out = static_cast<std::uint8_t*>(to);
  const auto* in = static_cast<const std::uint8_t*>(from);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= bytes; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, in + i), d, out + i);
  std::memcpy(out + i, in + i, bytes - i);
}

bool streams() { return HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR; }  // Highway stores as usual elsewhere

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(stream_bytes);
void stream_copy(void* to, const void* from, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(stream_bytes)(to, from, bytes);
}
HWY_EXPORT(streams);
bool can_stream() { return HWY_DYNAMIC_DISPATCH(streams)(); }
void stream_end() { hwy::FlushStream(); }
}  // namespace tilewise::kernels::map
#endif
