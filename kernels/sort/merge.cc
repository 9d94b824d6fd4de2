// merge_runs: lines that consist of sorted runs, in order.
#include <algorithm>
#include <vector>

#include "sort/arguments.h"
#include "sort/lines.h"
#include "sort/sort.h"

namespace tilewise::kernels::sort {
namespace {

using namespace builtin;

// Runs, which are found, are cut by keys into chunks that stay in a core's caches, and each chunk is sorted: with vectors that costs
// less than merging its runs an element at a time, however many they are. Keys to cut at are found among every kSample-th element of
// each run.
template <class By, class T> class Merge {
  using Key = typename By::Key;
  static constexpr std::int64_t kSample = 64;
  // Of a chunk: 32 KiB, or more where runs are so many that looking where they end would cost as much as sorting them; a chunk stays in the second-level cache.
  static constexpr std::int64_t kLeast = std::int64_t{32 << 10} / static_cast<std::int64_t>(sizeof(Key)),
                                kMost = std::int64_t{512 << 10} / static_cast<std::int64_t>(sizeof(Key)),
                                kOfRun = 32, kLine = 64 / static_cast<std::int64_t>(sizeof(T));

 public:
  Merge(const std::vector<Line<const T>>& pieces, const Line<T>& to, std::int64_t skip)
      : to_(to), first_(skip), last_(skip + to.count) {
    for (const Line<const T>& piece : pieces)
      for (std::int64_t begin = 0; begin < piece.count;) {
        const std::int64_t end = piece.template sorted_until<By>(begin);
        runs_.push_back(piece.part(begin, end));
        begin = end;
      }
    begin_.resize(runs_.size());
  }

  void run() {
    std::vector<Key> samples;
    for (const Line<const T>& run : runs_)
      for (std::int64_t i = kSample - 1; i < run.count; i += kSample) samples.push_back(key(run, i));
    sort_keys(samples.data(), static_cast<std::int64_t>(samples.size()));
    const auto each = static_cast<std::size_t>(
        std::clamp(kOfRun * static_cast<std::int64_t>(runs_.size()), kLeast, kMost) / kSample);
    for (std::size_t s = each - 1; s < samples.size() && rank_ < last_; s += each) {
      take([&](const Line<const T>& run, std::int64_t from) {
        return first_not(run, from, samples[s], less_than<Key>);
      });
      // What equals the key needs no sorting, and may be most of all there is.
      if constexpr (!By::kNumbered) equal(samples[s]);
    }
    if (rank_ < last_) take([](const Line<const T>& run, std::int64_t) { return run.count; });
  }

 private:
  static Key key(const Line<const T>& run, std::int64_t i) { return run.template key<By>(i); }
  // The first element from `from` on that is not before the key, or beyond it; doubling steps, since it is near.
  template <class Before>
  static std::int64_t first_not(const Line<const T>& run, std::int64_t from, const Key& of, Before before) {
    std::int64_t step = 1, end = from;
    while (end < run.count && before(key(run, end), of)) {
      from = end + 1;
      end += step;
      step *= 2;
    }
    return run.template first_not<By>(from, std::min(end, run.count), of, before);
  }

  // The next chunk: what lies before end(run, begin) of each run.
  template <class End> void take(End&& end) {
    ends_.clear();
    std::int64_t n = 0;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      ends_.push_back(end(runs_[r], begin_[r]));
      n += ends_[r] - begin_[r];
    }
    const std::int64_t rank = rank_, from = std::max(rank, first_), to = std::min(rank + n, last_);
    rank_ += n;
    if (from >= to) {
      begin_ = ends_;
      return;
    }
    const bool in_place = !By::kNumbered && to - from == n && to_.stride == 1;
    if (!in_place && static_cast<std::int64_t>(own_.size()) < n) own_.resize(static_cast<std::size_t>(n));
    Key* const keys = in_place ? reinterpret_cast<Key*>(to_.at + (rank - first_)) : own_.data();
    Key* next = keys;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const std::int64_t taken = ends_[r] - begin_[r];
      runs_[r].template keys<By>(begin_[r], ends_[r], next);
      next += taken;
      // The next chunk takes about as many, from so many places that no prefetcher follows them.
      const std::int64_t soon = std::min(runs_[r].count, ends_[r] + taken + 1);
      for (std::int64_t i = ends_[r]; i < soon; i += kLine)
        __builtin_prefetch(runs_[r].at + i * runs_[r].stride);
    }
    begin_ = ends_;
    sort_keys(keys, n);
    to_.template set<By>(from - first_, to - first_, keys + (from - rank));
  }
  void equal(const Key& of) {
    std::int64_t n = 0;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const std::int64_t end = first_not(runs_[r], begin_[r], of, at_most<Key>);
      n += end - begin_[r];
      begin_[r] = end;
    }
    const std::int64_t from = std::max(rank_, first_), to = std::min(rank_ + n, last_);
    rank_ += n;
    for (std::int64_t k = from; k < to; ++k) to_.template set<By>(k - first_, k - first_ + 1, &of);
  }

  std::vector<Line<const T>> runs_;
  const Line<T> to_;
  const std::int64_t first_, last_;  // ranks that are written
  std::int64_t rank_ = 0;            // of the next element
  std::vector<std::int64_t> begin_, ends_;
  std::vector<Key> own_;
};

}  // namespace

int merge_runs(const tilewise_call_v1* call) {
  ir::builtin::MergeRuns p;
  if (!read_params(call, p)) return kFailed;
  if (const int failed = check(call, p); failed != 0) return failed;
  const int axis = static_cast<int>(p.axis);
  const std::int64_t skip = p.skipped(call->outputs[0].lo[axis]);
  return with_order(call, p.descending != 0, [&]<class By, class T>() {
    each_result<By, T>(call, axis, call->outputs[0], call->outputs[By::kNumbered ? 1 : 0],
                       [&](const std::vector<Line<const T>>& pieces, const Line<T>& to) {
                         Merge<By, T>(pieces, to, skip).run();
                       });
  });
}

}  // namespace tilewise::kernels::sort
