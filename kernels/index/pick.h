// Indices along a dimension, and what is copied from where they say.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "call/builtin.h"
#include "move/strided_copy.h"

namespace tilewise::kernels::index {

// One stretch of indices at a time: which of them fall into a block, and where there.
struct Picks {
  static constexpr std::int64_t kMost = 1024;
  using List = std::array<std::int64_t, kMost>;
  List which, where;
  std::int64_t count = 0;
};

// In whatever vectors the processor has (lanes_pick.cc). Of `n` indices, which count from the end of `extent` where they are negative:
struct PickFns {
  // which of them, `first` on, are in [lo, lo + length), and where there, in order. n <= Picks::kMost
  void (*within)(const std::int64_t* index, std::int64_t n, std::int64_t first, std::int64_t extent,
                 std::int64_t lo, std::int64_t length, Picks& picks) = nullptr;
  bool (*all_valid)(const std::int64_t* index, std::int64_t n, std::int64_t extent) = nullptr;
};
const PickFns& pick_fns();

// A line of indices in memory, read a stretch at a time.
struct IndexLine {
  const std::int64_t* at = nullptr;
  std::int64_t stride = 1, count = 0;

  // visit(indices side by side, number of the first, how many) while it returns true.
  template <class Visit> void stretches(Visit&& visit) const {
    std::array<std::int64_t, Picks::kMost> beside;
    for (std::int64_t first = 0; first < count; first += Picks::kMost) {
      const std::int64_t n = std::min(Picks::kMost, count - first);
      const std::int64_t* from = at + first * stride;
      if (stride != 1) {
        for (std::int64_t j = 0; j < n; ++j) beside[static_cast<std::size_t>(j)] = from[j * stride];
        from = beside.data();
      }
      if (!visit(from, first, n)) return;
    }
  }
  // visit(picks) for each stretch of which something is in [lo, lo + length).
  template <class Visit>
  void within(std::int64_t extent, std::int64_t lo, std::int64_t length, Visit&& visit) const {
    Picks picks;
    stretches([&](const std::int64_t* index, std::int64_t first, std::int64_t n) {
      pick_fns().within(index, n, first, extent, lo, length, picks);
      if (picks.count > 0) visit(picks);
      return true;
    });
  }
  // The number of the first that is none of [-extent, extent), or -1.
  std::int64_t first_outside(std::int64_t extent) const;
};

// The indices of a line by the part of the axis that they fall into, so that each step of a sweep over that axis looks at those of its block
// and a few others. An entry is an index, counted from 0, and behind it its number in the line.
class Buckets {
 public:
  static bool fit(std::int64_t count, std::int64_t extent);                 // both into an entry
  Buckets(std::int64_t* entries, std::int64_t count, std::int64_t extent);  // of memory that outlives it
  void fill(const IndexLine& line) const;                                   // of valid indices
  // As IndexLine's; picks of a part in the order of the line, parts in the order of the axis.
  template <class Visit> void within(std::int64_t lo, std::int64_t length, Visit&& visit) const {
    if (length == 0) return;
    const std::int64_t* const end = first_of(part(lo + length - 1) + 1);
    Picks picks;
    for (const std::int64_t* entry = first_of(part(lo)); entry != end;) {
      picks.count = 0;
      for (; entry != end && picks.count < Picks::kMost; ++entry) {
        const std::int64_t where = (*entry >> number_bits_) - lo;
        const std::int64_t number = *entry & number_mask();
        picks.which[static_cast<std::size_t>(picks.count)] = number;
        picks.where[static_cast<std::size_t>(picks.count)] = where;
        // What was not filled may be anything: a step before has failed.
        picks.count += where >= 0 && where < length && number < count_;
      }
      if (picks.count > 0) visit(picks);
    }
  }

 private:
  static constexpr int kPartBits = 10;
  static int bits_of(std::int64_t count);  // that hold what is below it
  std::int64_t number_mask() const { return (std::int64_t{1} << number_bits_) - 1; }
  std::int64_t part(std::int64_t index) const { return index >> part_bits_; }
  const std::int64_t* first_of(std::int64_t part) const;  // of it or of what follows

  std::int64_t* entries_;
  std::int64_t count_, extent_;
  int number_bits_, part_bits_;
};

// to[..., to_at[k], ...] = from[..., from_at[k], ...] along dimension `axis` of both, for k in order. The views have the same other extents.
class PickedCopy {
 public:
  PickedCopy(const tilewise_view_v1& to, const tilewise_view_v1& from, int axis);
  void operator()(const std::int64_t* to_at, const std::int64_t* from_at, std::int64_t count) const;

 private:
  tilewise_view_v1 to_, from_;  // of the dimensions before the axis
  std::int64_t to_step_, from_step_, element_bytes_;
  std::size_t side_by_side_ = 0;  // bytes behind the axis, where they are in both memories; 0: they are not
  move::StridedCopy behind_;
};

// to[..., to_at[k], ...] += from[..., from_at[k], ...], likewise: where a place comes several times, in the order of k. Integers wrap.
// Of dtypes that are not added here (bool, 16-bit floats) there is none.
using PickedAdd = void (*)(const tilewise_view_v1& to, const tilewise_view_v1& from, int axis,
                           const std::int64_t* to_at, const std::int64_t* from_at, std::int64_t count);
PickedAdd picked_add(std::int32_t dtype);

}  // namespace tilewise::kernels::index
