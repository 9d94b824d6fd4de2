// Results whose size depends on data: counted first, then written into blocks that are as long as the count.
#include <cinttypes>
#include <cstring>
#include <numeric>
#include <optional>

#include "call/builtin.h"
#include "index/index.h"
#include "index/pick.h"

namespace tilewise::kernels::index {
namespace {

using namespace builtin;

bool is_mask(const tilewise_view_v1& view) { return view.dtype == TILEWISE_BOOL && view.rank == 1; }

// visit(bytes side by side, number of the first, how many) while it returns true.
template <class Visit> void stretches(const tilewise_view_v1& mask, Visit&& visit) {
  std::array<std::uint8_t, Picks::kMost> beside;
  for (std::int64_t first = 0; first < mask.shape[0]; first += Picks::kMost) {
    const std::int64_t n = std::min(Picks::kMost, mask.shape[0] - first), stride = mask.strides[0];
    const std::uint8_t* from = static_cast<const std::uint8_t*>(mask.data) + first * stride;
    if (stride != 1) {
      for (std::int64_t i = 0; i < n; ++i) beside[static_cast<std::size_t>(i)] = from[i * stride];
      from = beside.data();
    }
    if (!visit(from, first, n)) return;
  }
}

// Which of them are true, `first` on. Without a branch for each, which nobody could foresee; what is false for long is skipped.
void pick_true(const std::uint8_t* mask, std::int64_t first, std::int64_t n, Picks& picks) {
  constexpr std::int64_t kAtOnce = 8;
  std::int64_t count = 0, i = 0;
  const auto take = [&] {
    picks.which[static_cast<std::size_t>(count)] = first + i;
    count += mask[i] != 0;
  };
  while (i + kAtOnce <= n) {
    std::uint64_t some = 0;
    std::memcpy(&some, mask + i, kAtOnce);
    const std::int64_t end = i + kAtOnce;
    if (some == 0)
      i = end;
    else
      for (; i < end; ++i) take();
  }
  for (; i < n; ++i) take();
  picks.count = count;
}

}  // namespace

int count_true(const tilewise_call_v1* call) {
  const tilewise_view_v1 &mask = call->inputs[0], &out = call->outputs[0];
  if (!is_mask(mask) || out.dtype != TILEWISE_INT64 || volume(out) != 1)
    return refuse(call, kFailed, "wants a vector of bool, and gives one int64 a block");
  std::int64_t n = 0;
  stretches(mask, [&](const std::uint8_t* beside, std::int64_t, std::int64_t count) {
    std::int32_t some = 0;
    for (std::int64_t i = 0; i < count; ++i) some += beside[i] != 0;
    n += some;
    return true;
  });
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
  bool too_many = false;
  Picks picks;
  std::array<std::int64_t, Picks::kMost> places;
  const std::optional<PickedCopy> copy = positions ? std::nullopt : std::make_optional<PickedCopy>(out, x, 0);
  stretches(mask, [&](const std::uint8_t* beside, std::int64_t first, std::int64_t count) {
    pick_true(beside, first, count, picks);
    too_many = n + picks.count > out.shape[0];
    if (too_many) return false;
    if (positions) {
      for (std::int64_t k = 0; k < picks.count; ++k)
        static_cast<std::int64_t*>(out.data)[(n + k) * out.strides[0]] =
            mask.lo[0] + picks.which[static_cast<std::size_t>(k)];
    } else {
      std::iota(places.begin(), places.begin() + picks.count, n);
      (*copy)(places.data(), picks.which.data(), picks.count);
    }
    n += picks.count;
    return true;
  });
  if (too_many) return refuse(call, kFailed, "more are true than were counted: %" PRId64, out.shape[0]);
  if (n != out.shape[0])
    return refuse(call, kFailed, "%" PRId64 " are true, and %" PRId64 " were counted", n, out.shape[0]);
  return 0;
}

}  // namespace tilewise::kernels::index
