// Sorting lines: each block by itself, then blocks along the line in pairs, by a network that depends on their number alone.
#include <tilewise/functions.h>

#include <bit>

#include "space_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::axis_of;
using client::block_volume;
using client::extent;
using client::refuse;

// The pairs of blocks that are merged at once: partner[i] of block i, or i.
using Stage = std::vector<std::int64_t>;

// Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M): sorts any number of items in
// about log2(n)^2 / 2 stages, the smaller one always to the lower place. With sorted blocks for items and merge-splits for
// exchanges it sorts blocks of equal length; a shorter last one is as if filled up with what comes last.
std::vector<Stage> merge_exchange(std::int64_t n) {
  std::vector<Stage> stages;
  if (n < 2) return stages;
  const auto top = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)) / 2);
  for (std::int64_t p = top; p > 0; p /= 2) {
    for (std::int64_t q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
      Stage& stage = stages.emplace_back();
      for (std::int64_t i = 0; i < n; ++i) stage.push_back(i);
      for (std::int64_t i = 0; i < n - d; ++i) {
        if ((i & p) != r) continue;
        stage[static_cast<std::size_t>(i)] = i + d;
        stage[static_cast<std::size_t>(i + d)] = i;
      }
      if (q == p) break;
    }
  }
  return stages;
}

// One stage over all blocks of `arrays` (values, and their numbers): block b's own and its partner's, low one first.
std::vector<Array> exchange(const std::vector<Array>& arrays, const Stage& stage, const Kernel& kernel,
                            int axis) {
  const Grid grid = arrays[0].grid();
  const Shape counts = grid.counts();
  const auto along = static_cast<std::size_t>(axis);
  std::vector<std::vector<std::int64_t>> blocks;
  for (std::int64_t b = 0; b < grid.block_count(); ++b) {
    ir::Index at = ir::unravel(b, counts);
    const std::int64_t other = stage[static_cast<std::size_t>(at[along])], own = at[along];
    at[along] = other;
    const std::int64_t partner = ir::ravel(at, counts);
    if (partner == b)
      blocks.push_back({b});
    else
      blocks.push_back(own < other ? std::vector{b, partner} : std::vector{partner, b});
  }
  std::vector<BlockLists> inputs;
  std::vector<OutputLike> outputs;
  for (const Array& a : arrays) {
    inputs.push_back({a, blocks});
    outputs.push_back({a.dtype(), grid});
  }
  return map_blocks(kernel, inputs, outputs);
}

// Every stage of the network reads and writes everything, and 16 blocks take 10 stages where 96 take 28.
constexpr std::int64_t kFewBlocks = 16;
constexpr std::int64_t kLargestBytes = std::int64_t{64} << 20;

// Blocks of one length along the axis, but for the last: x's own, several together where there are many. Finer ones where
// numbers of 8 bytes an element would be larger than both a default block and x's own.
Array evenly_cut(const Array& x, int axis, bool numbered) {
  const Grid grid = x.grid();
  const ir::DimGrid& dim = grid.dim(axis);
  std::int64_t size = std::max<std::int64_t>(1, dim.max_size());
  if (!numbered) {
    const std::int64_t bytes = block_volume(grid) * static_cast<std::int64_t>(size_of(x.dtype()));
    const std::int64_t wanted = dim.extent() / kFewBlocks / size,
                       most = kLargestBytes / std::max<std::int64_t>(1, bytes);
    size *= std::max<std::int64_t>(1, std::min(wanted, most));
  } else {
    const std::int64_t own = block_volume(grid) * static_cast<std::int64_t>(size_of(x.dtype()));
    const std::int64_t most = std::max(client::kDefaultBlockBytes, own) / 8;
    size = std::clamp<std::int64_t>(most / std::max<std::int64_t>(1, block_volume(grid) / size), 1, size);
  }
  const bool even = dim.count() <= 1 || (dim.is_uniform() && dim.phase() == 0);
  if (even && size == std::max<std::int64_t>(1, dim.max_size())) return x;
  std::vector<ir::DimGrid> dims = grid.dims();
  dims[static_cast<std::size_t>(axis)] = client::value_or_throw(ir::DimGrid::uniform(dim.extent(), size));
  return Access::record(x, infer_reblock(Access::source(x), Grid(std::move(dims))));
}

void check_order(const Array& x) {
  if (is_complex(x.dtype())) refuse(Errc::kInvalidArgument, "sort: complex numbers have no order", x);
}

// Lines in order, each shortened to `keep` elements a block at first where that is given; with `numbered` their numbers:
// `numbers`, or their positions.
std::vector<Array> sort_lines(const Array& given, const Array& given_numbers, int axis, bool descending,
                              bool numbered, std::optional<std::int64_t> keep = {}) {
  check_order(given);
  const Array x = evenly_cut(given, axis, numbered);
  std::vector<Array> in = {x};
  if (given_numbers)
    in.push_back(Access::record(given_numbers, infer_reblock(Access::source(given_numbers), x.grid())));
  std::vector<ir::DimGrid> dims = x.grid().dims();
  if (keep) {
    const ir::DimGrid& full = dims[static_cast<std::size_t>(axis)];
    std::vector<std::int64_t> starts;
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < full.count(); ++i) {
      starts.push_back(total);
      total += std::min(*keep, full.size(i));
    }
    dims[static_cast<std::size_t>(axis)] =
        client::value_or_throw(ir::DimGrid::cuts(total, std::move(starts)));
  }
  const Grid grid(dims);
  std::vector<OutputLike> outputs = {{x.dtype(), grid}};
  if (numbered) outputs.push_back({DType::kInt64, grid});
  const auto volume = static_cast<double>(block_volume(x.grid()));
  std::vector<Array> out = client::map_space(
      client::builtin_kernel(ir::builtin::SortBlock{axis, descending}, 200 * volume), in,
      std::vector<ir::OperandMap>(in.size(), client::span_map(x.rank())), x.grid(), outputs);
  if (keep) return out;
  const Kernel merge = client::builtin_kernel(ir::builtin::MergeSplit{axis, descending}, 20 * volume);
  for (const Stage& stage : merge_exchange(grid.dim(axis).count())) out = exchange(out, stage, merge, axis);
  return out;
}

}  // namespace

Array sort(const Array& x, int axis, bool descending, bool) {
  const int along = axis_of(x, axis, "sort");
  if (ir::is_half(x.dtype())) return sort(x.astype(DType::kFloat32), axis, descending).astype(x.dtype());
  return sort_lines(x, {}, along, descending, false).front();
}

Array argsort(const Array& x, int axis, bool descending, bool) {
  const int along = axis_of(x, axis, "argsort");
  if (ir::is_half(x.dtype())) return argsort(x.astype(DType::kFloat32), axis, descending);
  return sort_lines(x, {}, along, descending, true)[1];
}

TopK topk(const Array& x, std::int64_t k, int axis, bool largest) {
  const int along = axis_of(x, axis, "topk");
  check_order(x);
  if (k < 0 || k > extent(x, along))
    refuse(Errc::kOutOfRange, "topk: " + std::to_string(k) + " elements along axis " + std::to_string(axis),
           x);
  if (ir::is_half(x.dtype())) {
    TopK wide = topk(x.astype(DType::kFloat32), k, axis, largest);
    return {wide.values.astype(x.dtype()), wide.indices};
  }
  if (k == 0) {
    const Array none = x.slice(along, 0, 0);
    return {none, none.astype(DType::kInt64)};
  }
  // The best of each block, then the best of these.
  std::vector<Array> best = sort_lines(x, {}, along, largest, true, k);
  best = sort_lines(best[0], best[1], along, largest, true);
  return {best[0].slice(along, 0, k), best[1].slice(along, 0, k)};
}

}  // namespace tilewise
