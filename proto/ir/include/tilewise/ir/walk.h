// How one logical dimension of a view crosses the blocks of its source dimension.
//
// Logical indices 0..extent-1 sit at source positions start + step * index. A *part* is a maximal run of consecutive
// logical indices in one source block; parts are numbered along the logical dimension (so against the blocks where the
// step is negative). Between parts and blocks there is a bijection, except that steps longer than a block skip some.
// Everything is O(1), or O(log cuts) where the source has explicit cuts.
#pragma once
#include <tilewise/ir/view.h>

namespace tilewise::ir {

// Quotients rounded down and up; b > 0.
constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0); }
// Sizes of several arrays together may pass what one may have.
constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {  // a, b >= 0
  return a > INT64_MAX - b ? INT64_MAX : a + b;
}

class Walk {
 public:
  // A dimension that repeats: one part, of no source dimension (block 0).
  static Walk broadcast(std::int64_t extent);
  // All positions must lie inside `source` (View::verify has checked that).
  static Walk over(const DimGrid& source, std::int64_t start, std::int64_t step, std::int64_t extent);
  // Logical dimension d of `view`.
  static Walk of(const View& view, const Grid& source, int d);

  std::int64_t extent() const { return extent_; }
  std::int64_t count() const { return count_; }  // parts; 0 for extent 0
  std::int64_t begin(std::int64_t part) const;
  std::int64_t end(std::int64_t part) const { return part + 1 == count_ ? extent_ : begin(part + 1); }
  std::int64_t part_of(std::int64_t index) const;        // 0 <= index < extent
  std::int64_t block(std::int64_t part) const;           // the source block it lies in
  std::int64_t part_of_block(std::int64_t block) const;  // -1: no element of that block is seen

  // The parts as cuts of [0, extent). Nothing where they are neither uniform nor few enough to list.
  std::optional<DimGrid> cuts() const;
  // The same with a stand-in for nothing: uniform cuts of about the size of a part.
  DimGrid cuts_or_similar() const;

 private:
  enum class Mode : std::uint8_t {
    kRepeat,
    kDense,   // no step is longer than a block: parts are consecutive blocks
    kSparse,  // every step leaves its block: parts are single indices
    kListed,  // explicit source cuts, some shorter than the step
  };
  Mode mode_ = Mode::kRepeat;
  DimGrid source_;
  std::int64_t start_ = 0, step_ = 1, extent_ = 0, count_ = 0;
  std::int64_t first_ = 0;                     // block of index 0
  std::vector<std::int64_t> begins_, blocks_;  // kListed, by part
};

// True when `walk` has these cuts or coarser ones: each block of `space` lies in one part. Extents are equal.
bool aligned(const Walk& walk, const DimGrid& space);

// True when every cut of `coarse` is a cut of `fine`.
bool refines(const DimGrid& fine, const DimGrid& coarse);
// All cuts of both, of one extent. Nothing past the limit of explicit cuts.
std::optional<DimGrid> common_refinement(const DimGrid& a, const DimGrid& b);

}  // namespace tilewise::ir
