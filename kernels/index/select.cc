// Results whose size depends on data: counted first, then written into blocks that are as long as the count.
#include <cinttypes>
#include <cstring>

#include "call/builtin.h"
#include "index/index.h"
#include "move/strided_copy.h"

namespace tilewise::kernels::index {
namespace {

using namespace builtin;

bool is_mask(const tilewise_view_v1& view) { return view.dtype == TILEWISE_BOOL && view.rank == 1; }

const std::uint8_t* mask_of(const tilewise_view_v1& view) {
  return static_cast<const std::uint8_t*>(view.data);
}

}  // namespace

int count_true(const tilewise_call_v1* call) {
  const tilewise_view_v1 &mask = call->inputs[0], &out = call->outputs[0];
  if (!is_mask(mask) || out.dtype != TILEWISE_INT64 || volume(out) != 1)
    return refuse(call, kFailed, "wants a vector of bool, and gives one int64 a block");
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < mask.shape[0]; ++i) n += mask_of(mask)[i * mask.strides[0]] != 0;
  *static_cast<std::int64_t*>(out.data) = n;
  return 0;
}

int compress(const tilewise_call_v1* call) {
  const tilewise_view_v1 &mask = call->inputs[0], &out = call->outputs[0];
  const bool positions = call->input_count == 1;
  const tilewise_view_v1& x = call->inputs[positions ? 0 : 1];
  const bool fits =
      call->input_count >= 1 && is_mask(mask) && out.rank >= 1 &&
      (positions ? out.dtype == TILEWISE_INT64 && out.rank == 1
                 : x.dtype == out.dtype && same_lines({&x, &out}, 0) && x.shape[0] == mask.shape[0]);
  if (!fits) return refuse(call, kFailed, "wants a vector of bool, and an array that is as long");
  std::int64_t n = 0;
  ir::Shape slab = shape_of(out);
  slab[0] = 1;
  const ir::Strides to_strides = strides_of(out), from_strides = strides_of(x);
  const std::size_t bytes = element_bytes(out);
  for (std::int64_t i = 0; i < mask.shape[0]; ++i) {
    if (mask_of(mask)[i * mask.strides[0]] == 0) continue;
    if (n == out.shape[0]) return refuse(call, kFailed, "more are true than were counted: %" PRId64, n);
    if (positions) {
      static_cast<std::int64_t*>(out.data)[n] = mask.lo[0] + i;
    } else {
      std::byte* to =
          static_cast<std::byte*>(out.data) + n * out.strides[0] * static_cast<std::int64_t>(bytes);
      const std::byte* from =
          static_cast<const std::byte*>(x.data) + i * x.strides[0] * static_cast<std::int64_t>(bytes);
      if (out.rank == 1)
        std::memcpy(to, from, bytes);
      else
        move::strided_copy(to, to_strides, from, from_strides, slab, bytes);
    }
    ++n;
  }
  if (n != out.shape[0])
    return refuse(call, kFailed, "%" PRId64 " are true, and %" PRId64 " were counted", n, out.shape[0]);
  return 0;
}

}  // namespace tilewise::kernels::index
