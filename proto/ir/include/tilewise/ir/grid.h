// Block grids: how each dimension of an array is cut.
#pragma once
#include <tilewise/ir/shape.h>

#include <vector>

namespace tilewise::ir {

// The cuts of one dimension, in closed form where they are uniform.
//
// Uniform: block i covers [i*block - phase, (i+1)*block - phase) clipped to [0, extent); 0 <= phase < block. A phase
// comes from slicing. Explicit: a bounded list of block starts. Ragged ends are shorter, never padded. An extent of 0
// has no blocks.
class DimGrid {
 public:
  DimGrid() = default;
  // kInvalidArgument unless extent >= 0, block >= 1, 0 <= phase < block.
  static Result<DimGrid> uniform(std::int64_t extent, std::int64_t block, std::int64_t phase = 0);
  // `starts` strictly rising from 0 and below extent (empty for extent 0); kLimitExceeded past kMaxExplicitCuts.
  // Becomes uniform where the list is.
  static Result<DimGrid> cuts(std::int64_t extent, std::vector<std::int64_t> starts);
  static DimGrid whole(std::int64_t extent);  // one block (none for extent 0)

  std::int64_t extent() const { return extent_; }
  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t i) const {
    if (!starts_.empty()) return starts_[static_cast<std::size_t>(i)];
    const std::int64_t at = i * block_ - phase_;
    return at < 0 ? 0 : at;
  }
  std::int64_t end(std::int64_t i) const { return i + 1 == count_ ? extent_ : begin(i + 1); }
  std::int64_t size(std::int64_t i) const { return end(i) - begin(i); }
  std::int64_t find(std::int64_t element) const;  // the block that holds it; 0 <= element < extent
  std::int64_t max_size() const;                  // of the largest block

  bool is_uniform() const { return starts_.empty(); }
  std::int64_t block() const { return block_; }                        // uniform only
  std::int64_t phase() const { return phase_; }                        // uniform only
  const std::vector<std::int64_t>& starts() const { return starts_; }  // explicit only; else empty

  friend bool operator==(const DimGrid&, const DimGrid&) = default;

 private:
  std::int64_t extent_ = 0, block_ = 1, phase_ = 0, count_ = 0;
  std::vector<std::int64_t> starts_;
};

class Grid {
 public:
  Grid() = default;  // rank 0: one block with one element
  explicit Grid(std::vector<DimGrid> dims) : dims_(std::move(dims)) {}
  // Uniform blocks; `block` has the rank of `shape`. Checks signs, products and kMaxBlocks.
  static Result<Grid> uniform(const Shape& shape, const Shape& block);
  // The default cut: a function of shape and dtype size only, never of the cluster (D9). Blocks of about 8 MiB, near
  // cubic, extents a power of two.
  static Result<Grid> by_default(const Shape& shape, std::size_t element_bytes);
  // Checks what a grid from outside must satisfy: rank, volume, block count.
  Status verify() const;

  int rank() const { return static_cast<int>(dims_.size()); }
  const DimGrid& dim(int d) const { return dims_[static_cast<std::size_t>(d)]; }
  const std::vector<DimGrid>& dims() const { return dims_; }
  Shape shape() const;
  Shape counts() const;               // blocks per dimension
  std::int64_t block_count() const;   // product of counts
  Box box(const Index& block) const;  // its elements
  Shape max_block_shape() const;

  friend bool operator==(const Grid&, const Grid&) = default;

 private:
  std::vector<DimGrid> dims_;
};

std::string to_string(const Grid& grid);  // "(8192, 8192) in blocks of (1024, 1024)"

}  // namespace tilewise::ir
