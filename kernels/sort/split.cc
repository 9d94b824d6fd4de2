// split_runs: of many sorted runs what has some ranks in their merge, unmerged.
#include <algorithm>
#include <vector>

#include "sort/arguments.h"
#include "sort/lines.h"
#include "sort/sort.h"

namespace tilewise::kernels::sort {
namespace {

using namespace builtin;

// How many elements of each run are among the first `rank` of all. Between bounds that close in: an element of the run that has most
// left between them says of all runs what comes before it. Where runs are alike it is near the rank that is looked for, a little on
// the far side of it, so that both bounds close in; where they are not, every third halves what is left. Of runs that are not sorted:
// some elements, as many.
template <class By, class T>
void select(const std::vector<Line<const T>>& runs, std::int64_t rank, std::vector<std::int64_t>& lo) {
  using Key = typename By::Key;
  const std::size_t n = runs.size();
  std::vector<std::int64_t> hi(n), less(n), most(n);
  lo.assign(n, 0);
  std::int64_t below = 0, upto = 0;  // sums of the bounds
  for (std::size_t r = 0; r < n; ++r) upto += hi[r] = runs[r].count;
  for (int turn = 0;; ++turn) {
    // Of runs that are equally wide now this one, now that: they may lie one behind the other.
    std::size_t widest = n == 0 ? 0 : (static_cast<std::size_t>(turn) * 40'503 + n / 2) % n;
    for (std::size_t k = 0, r = widest; k < n; ++k, r = r + 1 == n ? 0 : r + 1)
      if (hi[r] - lo[r] > hi[widest] - lo[widest]) widest = r;
    const std::int64_t width = n == 0 ? 0 : hi[widest] - lo[widest];
    if (width == 0) return;
    double part = static_cast<double>(rank - below) / static_cast<double>(upto - below);
    part = part < 0.5 ? std::min(0.5, 2 * part) : std::max(0.5, 2 * part - 1);
    if (turn % 3 == 2) part = 0.5;
    const std::int64_t middle =
        lo[widest] +
        std::clamp<std::int64_t>(static_cast<std::int64_t>(part * static_cast<double>(width)), 0, width - 1);
    const Key pivot = runs[widest].template key<By>(middle);
    std::int64_t before = 0, with_equal = 0;
    for (std::size_t r = 0; r < n; ++r) {
      less[r] = runs[r].template first_not<By>(lo[r], hi[r], pivot, less_than<Key>);
      if (r == widest) less[r] = std::min(less[r], middle);
      most[r] = runs[r].template first_not<By>(less[r], hi[r], pivot, at_most<Key>);
      if (r == widest) most[r] = std::max(most[r], middle + 1);
      before += less[r];
      with_equal += most[r];
    }
    if (rank < before) {
      hi = less;
      upto = before;
    } else if (rank > with_equal) {
      lo = most;
      below = with_equal;
    } else {  // any of those that are equal: nobody can tell them apart
      lo = less;
      for (std::size_t r = 0; r < n && before < rank; ++r) {
        const std::int64_t more = std::min(most[r] - less[r], rank - before);
        lo[r] += more;
        before += more;
      }
      return;
    }
  }
}

template <class By, class T>
void window(const std::vector<Line<const T>>& runs, const Line<T>& to, std::int64_t rank) {
  std::vector<std::int64_t> begin, end;
  select<By, T>(runs, rank, begin);
  select<By, T>(runs, rank + to.count, end);
  std::int64_t at = 0;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    // Of runs that are not sorted what is at hand: the window is full, whatever is in it.
    const std::int64_t n = std::clamp<std::int64_t>(end[r] - begin[r], 0, to.count - at);
    to.copy(at, runs[r], begin[r], n);
    at += n;
  }
}

}  // namespace

int split_runs(const tilewise_call_v1* call) {
  ir::builtin::SplitRuns p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  // The dimension of one before the last says which column it is.
  const int others = call->outputs[0].rank - 2;
  const auto lines_of = [&](const tilewise_view_v1& v) { return with_line(v, others, others + 1, others); };
  const tilewise_view_v1 out = lines_of(call->outputs[0]),
                         numbers = lines_of(call->outputs[call->output_count - 1]);
  const std::int64_t rank = p.windows.lo(out.lo[others] / p.windows.width);
  return with_order(call, p.descending != 0, [&]<class By, class T>() {
    each_result<By, T>(
        call, others, out, numbers,
        [&](const std::vector<Line<const T>>& runs, const Line<T>& to) { window<By, T>(runs, to, rank); });
  });
}

}  // namespace tilewise::kernels::sort
