#include <tilewise/ir/grid.h>

#include <algorithm>
#include <bit>

namespace tilewise::ir {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 62;  // extent + phase must not overflow
constexpr int kDefaultBlockBits = 23;                       // 8 MiB

Error bad(std::string text) { return error(Errc::kInvalidArgument, std::move(text)); }

int ceil_log2(std::int64_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(n - 1)); }

}  // namespace

Result<DimGrid> DimGrid::uniform(std::int64_t extent, std::int64_t block, std::int64_t phase) {
  if (extent < 0 || extent > kMaxExtent) return bad("extent " + std::to_string(extent) + " is out of range");
  if (block < 1) return bad("block size " + std::to_string(block) + " is below 1");
  if (phase < 0 || phase >= block)
    return bad("phase " + std::to_string(phase) + " is outside [0, " + std::to_string(block) + ")");
  DimGrid g;
  g.extent_ = extent;
  if (extent == 0) return g;
  // One representation for one set of cuts, so that == compares cuts: block and phase are free where fewer than three
  // blocks pin them down.
  const std::int64_t first = std::min(extent, block - phase);
  if (first == extent) {
    block = extent, phase = 0;
  } else if (extent - first <= block) {
    block = std::max(first, extent - first), phase = block - first;
  }
  g.block_ = block;
  g.phase_ = phase;
  g.count_ = (extent + phase - 1) / block + 1;
  return g;
}

Result<DimGrid> DimGrid::cuts(std::int64_t extent, std::vector<std::int64_t> starts) {
  if (extent < 0 || extent > kMaxExtent) return bad("extent " + std::to_string(extent) + " is out of range");
  if (starts.size() > static_cast<std::size_t>(limits::kMaxExplicitCuts))
    return error(Errc::kLimitExceeded, std::to_string(starts.size()) + " explicit cuts; the limit is " +
                                           std::to_string(limits::kMaxExplicitCuts));
  if (extent == 0) {
    if (!starts.empty()) return bad("an extent of 0 has no blocks");
    return DimGrid();
  }
  if (starts.empty() || starts.front() != 0) return bad("the first block must start at 0");
  for (std::size_t i = 1; i < starts.size(); ++i)
    if (starts[i] <= starts[i - 1]) return bad("block starts must rise");
  if (starts.back() >= extent)
    return bad("block start " + std::to_string(starts.back()) + " is outside extent " +
               std::to_string(extent));

  const auto count = static_cast<std::int64_t>(starts.size());
  if (count == 1) return whole(extent);
  const std::int64_t first = starts[1], last = extent - starts.back();
  const std::int64_t block = count == 2 ? std::max(first, last) : starts[2] - starts[1];
  bool same = first <= block && last <= block;
  for (std::size_t i = 2; same && i < starts.size(); ++i) same = starts[i] - starts[i - 1] == block;
  if (same) return uniform(extent, block, block - first);
  DimGrid g;
  g.extent_ = extent;
  g.count_ = count;
  g.starts_ = std::move(starts);
  return g;
}

DimGrid DimGrid::whole(std::int64_t extent) {
  DimGrid g;
  if (extent <= 0) return g;
  g.extent_ = g.block_ = extent;
  g.count_ = 1;
  return g;
}

std::int64_t DimGrid::find(std::int64_t element) const {
  if (starts_.empty()) return (element + phase_) / block_;
  return std::upper_bound(starts_.begin(), starts_.end(), element) - starts_.begin() - 1;
}

std::int64_t DimGrid::max_size() const {
  if (count_ == 0) return 0;
  std::int64_t m = 0;
  if (starts_.empty()) {  // any inner block is full; else the larger of the ends
    for (std::int64_t i : {std::int64_t{0}, std::min<std::int64_t>(1, count_ - 1), count_ - 1})
      m = std::max(m, size(i));
    return m;
  }
  for (std::int64_t i = 0; i < count_; ++i) m = std::max(m, size(i));
  return m;
}

Result<Grid> Grid::uniform(const Shape& shape, const Shape& block) {
  if (shape.size() != block.size())
    return bad("blocks " + to_string(block) + " do not have the rank of shape " + to_string(shape));
  std::vector<DimGrid> dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    TW_ASSIGN(DimGrid dim, DimGrid::uniform(shape[d], block[d]));
    dims.push_back(std::move(dim));
  }
  Grid g(std::move(dims));
  TW_TRY(g.verify());
  return g;
}

Result<Grid> Grid::by_default(const Shape& shape, std::size_t element_bytes) {
  TW_TRY(checked_volume(shape));
  if (element_bytes == 0) return bad("elements of 0 bytes");
  // Bits of the block's volume are dealt to the dimensions, those that need fewest first; equal ones from the left, so
  // that the remainder falls to the last dimension, where bytes are contiguous.
  int bits = kDefaultBlockBits - ceil_log2(static_cast<std::int64_t>(element_bytes));
  Shape block(shape.size(), 1);
  PerDim<std::uint8_t> done(shape.size(), 0);
  for (int left = static_cast<int>(shape.size()); left > 0; --left) {
    int pick = -1;
    for (int d = 0; d < static_cast<int>(shape.size()); ++d)
      if (!done[d] && (pick < 0 || ceil_log2(shape[d]) < ceil_log2(shape[pick]))) pick = d;
    const int take = std::max(0, std::min(ceil_log2(shape[pick]), bits / left));
    block[pick] = std::int64_t{1} << take;
    bits -= take;
    done[pick] = 1;
  }
  return uniform(shape, block);
}

Status Grid::verify() const {
  if (dims_.size() > static_cast<std::size_t>(limits::kMaxRank))
    return error(Errc::kLimitExceeded,
                 "rank " + std::to_string(dims_.size()) + " is above " + std::to_string(limits::kMaxRank));
  TW_TRY(checked_volume(shape()));
  TW_ASSIGN(const std::int64_t blocks, checked_volume(counts()));
  if (blocks > limits::kMaxBlocks)
    return error(Errc::kLimitExceeded, std::to_string(blocks) + " blocks of an array of shape " +
                                           to_string(shape()) + "; the limit is " +
                                           std::to_string(limits::kMaxBlocks));
  return {};
}

Shape Grid::shape() const {
  Shape s;
  for (const DimGrid& d : dims_) s.push_back(d.extent());
  return s;
}

Shape Grid::counts() const {
  Shape s;
  for (const DimGrid& d : dims_) s.push_back(d.count());
  return s;
}

std::int64_t Grid::block_count() const {
  std::int64_t n = 1;
  for (const DimGrid& d : dims_) n *= d.count();
  return n;
}

Box Grid::box(const Index& block) const {
  Box b;
  for (int d = 0; d < rank(); ++d) {
    b.lo.push_back(dim(d).begin(block[d]));
    b.hi.push_back(dim(d).end(block[d]));
  }
  return b;
}

Shape Grid::max_block_shape() const {
  Shape s;
  for (const DimGrid& d : dims_) s.push_back(d.max_size());
  return s;
}

std::string to_string(const Grid& grid) {
  std::string s = to_string(grid.shape()) + " in blocks of (";
  for (int d = 0; d < grid.rank(); ++d) {
    const DimGrid& g = grid.dim(d);
    s += d ? ", " : "";
    if (g.is_uniform()) {
      s += std::to_string(g.block());
      if (g.phase() != 0) s += " after " + std::to_string(g.size(0));
    } else {
      s += std::to_string(g.count()) + " cuts up to " + std::to_string(g.max_size());
    }
  }
  return s + (grid.rank() == 1 ? ",)" : ")");
}

}  // namespace tilewise::ir
