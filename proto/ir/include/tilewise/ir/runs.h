// Runs: cuts whose blocks are each one stretch of the array's C order, which is what a reshape reads and writes.
//
// Such cuts have a dimension `dim`: all before it are cut into single indices, none behind it is cut. Blocks in C order
// are then stretches in C order, one behind the other, and everything below is closed form.
#pragma once
#include <tilewise/ir/walk.h>

#include <algorithm>
#include <optional>
#include <type_traits>

namespace tilewise::ir {

// How the cuts of an array of `shape` make runs; nothing where they do not. `counts`: blocks (or parts) per dimension.
struct RunOrder {
  int dim = -1;              // -1: rank 0
  std::int64_t row = 1;      // elements behind one index of the dimensions before `dim`
  std::int64_t inner = 1;    // elements behind one index of `dim`
  std::int64_t per_row = 1;  // blocks of a row
  static std::optional<RunOrder> of(const Shape& shape, const Shape& counts);
};

// Uniform runs of at most `most` elements (at least 1), no dimension of which is cut where whole indices of an earlier
// one fit. A function of shape and bound alone; of equal size but for the ends of rows, and at least half the bound but
// for where an index of a dimension is just too long for it.
Grid run_grid(const Shape& shape, std::int64_t most);

// Elements of the runs into which what a view shows is cut: a block of the array, or the default where the view repeats it.
std::int64_t run_elements(const View& view, const Grid& source, std::size_t element_bytes);

// The runs themselves, numbered in C order. `Cuts`: DimGrid of a grid, Walk of a view.
template <class Cuts> class Runs {
 public:
  Runs(RunOrder order, Cuts along) : order_(order), along_(std::move(along)) {}

  const RunOrder& order() const { return order_; }
  const Cuts& along() const { return along_; }
  std::int64_t find(std::int64_t position) const {  // the run that holds it
    return position / order_.row * order_.per_row + part_of(position % order_.row / order_.inner);
  }
  std::int64_t begin(std::int64_t run) const {
    return run / order_.per_row * order_.row + along_.begin(run % order_.per_row) * order_.inner;
  }
  std::int64_t end(std::int64_t run) const {
    return run / order_.per_row * order_.row + along_.end(run % order_.per_row) * order_.inner;
  }

 private:
  std::int64_t part_of(std::int64_t index) const {
    if constexpr (std::is_same_v<Cuts, Walk>)
      return along_.part_of(index);
    else
      return along_.find(index);
  }

  RunOrder order_;
  Cuts along_;
};

// C-order numbers [first, end) of `counts` as boxes, in order: at most two a dimension. Calls visit(box).
template <class F> void boxes_of_range(std::int64_t first, std::int64_t end, const Shape& counts, F&& visit) {
  const Strides strides = c_order_strides(counts);
  const auto rank = static_cast<int>(counts.size());
  while (first < end) {
    // The earliest dimension of which whole indices follow.
    int d = 0;
    while (d < rank && (first % strides[d] != 0 || end - first < strides[d])) ++d;
    Box box;
    box.lo = box.hi = unravel(first, counts);
    for (int i = 0; i < rank; ++i) box.hi[i] = i > d ? counts[i] : box.lo[i] + 1;
    std::int64_t taken = 1;
    if (d < rank) {
      const std::int64_t n = std::min((end - first) / strides[d], counts[d] - box.lo[d]);
      box.hi[d] = box.lo[d] + n;
      taken = n * strides[d];
    }
    visit(box);
    first += taken;
  }
}

}  // namespace tilewise::ir
