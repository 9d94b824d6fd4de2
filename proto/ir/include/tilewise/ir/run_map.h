// Points listed as runs of C-order numbers, each with the device that owns it: what is left of an iteration space after a
// loss has no closed form. Not every point needs an owner.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/ir/shape.h>

#include <optional>
#include <vector>

namespace tilewise::ir {

constexpr std::size_t kMaxRuns = 1'000'000;  // of one placement

struct Run {  // points [first, first + count) in C order
  std::int64_t first = 0, count = 0;
  DeviceId device;
  friend bool operator==(const Run&, const Run&) = default;
};

// Appends a point after those already there; points that follow each other on one device become one run.
void append(std::vector<Run>& runs, std::int64_t point, DeviceId device);

class RunMap {
 public:
  // Takes anything, so that what came from outside can be given to verify(); only then ask the rest.
  RunMap(Shape counts, std::vector<Run> runs);

  const std::vector<Run>& runs() const { return runs_; }
  // Runs rise, are disjoint, not empty and inside `counts`; every device is named; bounded.
  Status verify(const Shape& counts) const;

  DeviceId owner(const Index& point) const;  // none for a point that is not listed
  std::int64_t owned_count(DeviceId device) const;
  // Owned points in C order, and the inverse.
  Index nth(DeviceId device, std::int64_t ordinal) const;
  std::int64_t ordinal(DeviceId device, const Index& point) const;
  // Calls visit(device, points) for pieces of runs inside the box; a device may come several times.
  template <class F> void each_inside(const Box& box, F&& visit) const {
    for_rows(box, [&](std::int64_t from, std::int64_t to) {
      for (std::size_t r = first_after(from); r < runs_.size() && runs_[r].first < to; ++r) {
        const std::int64_t lo = std::max(from, runs_[r].first),
                           hi = std::min(to, runs_[r].first + runs_[r].count);
        if (lo < hi) visit(runs_[r].device, hi - lo);
      }
      return true;
    });
  }
  // The first point in C order that `device` owns inside `box`.
  std::optional<Index> first_owned(DeviceId device, const Box& box) const;
  std::vector<DeviceId> devices() const;  // sorted, each once

  friend bool operator==(const RunMap& a, const RunMap& b) {
    return a.counts_ == b.counts_ && a.runs_ == b.runs_;
  }

 private:
  struct Owned {
    DeviceId device;
    std::size_t run = 0;
    std::int64_t before = 0;  // points of the device in earlier runs
  };
  std::size_t first_after(std::int64_t point) const;  // the first run that ends after it
  std::span<const Owned> owned_by(DeviceId device) const;
  // Calls visit(from, to) for each row of the box, in C order, until it returns false.
  template <class F> void for_rows(const Box& box, F&& visit) const {
    const int rank = box.rank();
    for (int d = 0; d < rank; ++d) {
      if (box.lo[d] >= box.hi[d]) return;
    }
    const std::int64_t width = rank == 0 ? 1 : box.hi[rank - 1] - box.lo[rank - 1];
    Index at(box.lo.begin(), box.lo.end());
    while (true) {
      const std::int64_t from = ravel(at, counts_);
      if (!visit(from, from + width)) return;
      int d = rank - 2;
      for (; d >= 0 && ++at[d] == box.hi[d]; --d) at[d] = box.lo[d];
      if (d < 0) return;
    }
  }

  Shape counts_;
  std::vector<Run> runs_;
  std::vector<Owned> owned_;  // by device, then run
};

}  // namespace tilewise::ir
