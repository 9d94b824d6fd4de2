// What calls that order lines refuse, in whichever version. Each returns 0, or what the kernel does.
#pragma once
#include "call/builtin.h"

namespace tilewise::kernels::sort {

using Call = tilewise_call_v1;
using builtin::kFailed;
using builtin::refuse;
using builtin::same_lines;

// `a` has `others` dimensions before its last two: those of `b` without its dimension `axis`.
inline bool same_others(const tilewise_view_v1& a, const tilewise_view_v1& b, int axis, int others) {
  for (int d = 0; d < others; ++d)
    if (a.shape[d] != b.shape[d < axis ? d : d + 1]) return false;
  return true;
}

// Values, and numbers where there are some, of one shape each.
inline int check_numbers(const Call* call) {
  for (int i = 1; i < call->input_count; ++i)
    if (call->inputs[i].dtype != TILEWISE_INT64 || !same_lines({&call->inputs[0], &call->inputs[i]}, -1))
      return refuse(call, kFailed, "wants an int64 number for each element");
  for (int i = 1; i < call->output_count; ++i)
    if (call->outputs[i].dtype != TILEWISE_INT64 || !same_lines({&call->outputs[0], &call->outputs[i]}, -1))
      return refuse(call, kFailed, "gives an int64 number for each element");
  return 0;
}

inline int check(const Call* call, const ir::builtin::SortBlock& p) {
  if (call->input_count < 1 || call->output_count < 1) return refuse(call, kFailed, "wants an array");
  const tilewise_view_v1 &x = call->inputs[0], &out = call->outputs[0];
  const int axis = static_cast<int>(p.axis);
  if (p.axis < 0 || p.axis >= x.rank || !same_lines({&x, &out}, axis) || x.dtype != out.dtype ||
      out.shape[axis] > x.shape[axis])
    return refuse(call, kFailed, "the array and the result differ in dtype or extents");
  return check_numbers(call);
}

inline int check(const Call* call, const ir::builtin::DealSorted& p) {
  if (call->input_count < 1 || call->output_count < 1) return refuse(call, kFailed, "wants an array");
  const tilewise_view_v1& out = call->outputs[0];
  const bool numbered = call->output_count > 1;
  bool good = p.axis >= 0 && p.columns >= 1 && p.card >= 1;
  std::int64_t n = 0;
  for (int i = 0; good && i < (numbered ? 1 : call->input_count); ++i) {
    const tilewise_view_v1& x = call->inputs[i];
    good = p.axis < x.rank && x.dtype == out.dtype && out.rank == x.rank + 1 &&
           same_others(out, x, static_cast<int>(p.axis), x.rank - 1);
    if (good) n += x.shape[p.axis];
  }
  if (good) {
    const std::int64_t all = out.shape[out.rank - 1];
    good = out.shape[out.rank - 2] == 1 && p.columns <= all / p.card && all % (p.columns * p.card) == 0 &&
           n <= all;
  }
  if (!good) return refuse(call, kFailed, "lines are not dealt to columns of such a length");
  return numbered ? check_numbers(call) : 0;
}

// Blocks of pieces of `others` dimensions and two more, and as many of their numbers, if any; `ranks`: elements of a line of the
// result, whose dimensions are the others with its own at `axis`.
inline bool pieces_fit(const Call* call, int others, int axis, std::int64_t& ranks) {
  const int arrays = call->output_count, count = call->input_count / arrays;
  const tilewise_view_v1& out = call->outputs[0];
  if (count < 1 || call->input_count != arrays * count) return false;
  if (arrays == 2 && (call->outputs[1].dtype != TILEWISE_INT64 || !same_lines({&out, &call->outputs[1]}, -1)))
    return false;
  ranks = 0;
  for (int i = 0; i < call->input_count; ++i) {
    const tilewise_view_v1& in = call->inputs[i];
    if (in.rank != others + 2 || in.dtype != call->outputs[i / count].dtype ||
        !same_others(in, out, axis, others) ||
        (i >= count && !same_lines({&in, &call->inputs[i - count]}, -1)))
      return false;
    if (i < count) ranks += in.shape[others] * in.shape[others + 1];
  }
  return true;
}

inline int check(const Call* call, const ir::builtin::SplitRuns& p) {
  std::int64_t ranks = 0;
  const bool good = (call->output_count == 1 || call->output_count == 2) && call->outputs[0].rank >= 2 &&
                    call->outputs[0].shape[call->outputs[0].rank - 2] == 1 &&
                    pieces_fit(call, call->outputs[0].rank - 2, call->outputs[0].rank, ranks);
  if (!good) return refuse(call, kFailed, "wants blocks of sorted runs, and of their numbers");
  const tilewise_view_v1& out = call->outputs[0];
  const std::int64_t width = out.shape[out.rank - 1], first = out.lo[out.rank - 1];
  const std::int64_t lo = width != p.windows.width || width == 0 ? -1 : p.windows.lo(first / width);
  if (lo < 0 || lo > ranks - width)
    return refuse(call, kFailed, "the runs do not have the ranks of the window");
  return 0;
}

inline int check(const Call* call, const ir::builtin::MergeRuns& p) {
  std::int64_t ranks = 0;
  const bool good = (call->output_count == 1 || call->output_count == 2) && p.axis >= 0 &&
                    p.axis < call->outputs[0].rank &&
                    pieces_fit(call, call->outputs[0].rank - 1, static_cast<int>(p.axis), ranks);
  if (!good) return refuse(call, kFailed, "wants blocks of sorted runs, and of their numbers");
  const std::int64_t skip = p.skipped(call->outputs[0].lo[p.axis]);
  if (skip < 0 || skip > ranks - call->outputs[0].shape[p.axis])
    return refuse(call, kFailed, "the runs do not have the ranks that the result is made of");
  return 0;
}

}  // namespace tilewise::kernels::sort
