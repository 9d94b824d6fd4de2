#include <tilewise/ir/runs.h>

#include <algorithm>

#include "infer_common.h"

namespace tilewise::ir {
namespace {

// Blocks smaller than this are joined, but to no fewer than so many: results of one element a block would stay in crumbs.
constexpr std::int64_t kSmallRunBytes = 64 << 10, kFewRuns = 64;

}  // namespace

std::optional<RunOrder> RunOrder::of(const Shape& shape, const Shape& counts) {
  RunOrder order;
  const auto rank = static_cast<int>(shape.size());
  if (rank == 0) return order;
  order.dim = 0;
  while (order.dim + 1 < rank && counts[order.dim] == shape[order.dim]) ++order.dim;
  for (int d = order.dim + 1; d < rank; ++d) {
    if (counts[d] > 1) return std::nullopt;
    order.inner *= shape[d];
  }
  order.row = order.inner * shape[order.dim];
  order.per_row = counts[order.dim];
  return order;
}

Grid run_grid(const Shape& shape, std::int64_t most) {
  const auto rank = static_cast<int>(shape.size());
  std::vector<DimGrid> dims;
  most = std::max<std::int64_t>(1, most);
  std::int64_t inner = 1;  // elements of one index of the dimension at hand
  int cut = rank - 1;
  while (cut > 0 && shape[cut] <= most / inner) inner *= std::max<std::int64_t>(1, shape[cut--]);
  for (int d = 0; d < rank; ++d) {
    const std::int64_t n = shape[d];
    std::int64_t size = d < cut ? 1 : std::max<std::int64_t>(1, n);
    if (d == cut) {
      size = std::min(size, most / inner);
      // Every row ends with what is left: no slivers.
      if (d > 0 && n > 0) size = ceil_div(n, ceil_div(n, size));
    }
    dims.push_back(*DimGrid::uniform(n, size));
  }
  return Grid(std::move(dims));
}

std::int64_t run_elements(const View& view, const Grid& source, std::size_t element_bytes) {
  const auto size = static_cast<std::int64_t>(element_bytes);
  const std::int64_t shown = volume(view.shape);
  std::int64_t most = volume(source.max_block_shape());
  most = std::max(most, std::min(kSmallRunBytes / size, shown / kFewRuns));
  bool repeats = false;
  for (int d = 0; d < view.rank(); ++d) repeats |= view.shape[d] > 1 && !view.source_of(d);
  if (!repeats) return most;
  return std::max(
      most, std::min(kDefaultBlockBytes / size, shown / std::max<std::int64_t>(1, source.block_count())));
}

}  // namespace tilewise::ir
