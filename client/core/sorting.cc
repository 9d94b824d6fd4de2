// Sorting lines across blocks in two exchanges, whatever the data: after F. T. Leighton's columnsort ("Tight Bounds on the Complexity
// of Parallel Sorting", 1985). docs/design/data-dependent.md tells why.
//
// Each of n blocks is sorted by itself and dealt to n columns like cards: so each column gets about the same share of what lies
// before any element, of each block, and is, in order, nearly every n-th element of the whole. An element of rank R has in its
// column the rank R / n, give or take card * (n - 1): block b of the result is made of a window of ranks of each column, a little
// wider than its share. How much wider is known, and so is the rank of what was cut off before it.
#include <tilewise/functions.h>

#include <cmath>

#include "space_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::axis_of;
using client::block_volume;
using client::extent;
using client::refuse;

// The exchanges between n blocks move n * n pieces.
constexpr std::int64_t kFewBlocks = 16;
constexpr std::int64_t kLargestBytes = std::int64_t{64} << 20;
// A call reads at most so many listed blocks (kernel.h), and where lists are long a map says less.
constexpr std::int64_t kMostListed = 64, kMostReferences = 65'536;
constexpr std::int64_t kManyColumns = 128;  // from here on it pays to put each in order first
// By comparisons an element; of those that most selections pass over.
constexpr double kSortFlops = 200, kSelectFlops = 10;
constexpr std::int64_t kMostOfBlock = 8;  // more of it are found by sorting all
// A block has at least so many times n * n elements: what windows overlap is 3 * card * n * n of them at most.
constexpr std::int64_t kOfSquare = 16;

// Blocks of one length along the axis, but for the last: x's own, several together where there are many or they are short. Finer
// ones where numbers of 8 bytes an element would be larger than both a default block and x's own, unless they are short then.
Grid evenly_cut(const Array& x, int axis, bool numbered) {
  Grid grid = client::computed_cuts(x);
  const ir::DimGrid& dim = grid.dim(axis);
  const std::int64_t n = dim.extent(), own = std::max<std::int64_t>(1, dim.max_size());
  const std::int64_t bytes = block_volume(grid) * static_cast<std::int64_t>(size_of(x.dtype()));
  std::int64_t size = own;
  if (!numbered) {
    const std::int64_t wanted = n / kFewBlocks / size,
                       most = kLargestBytes / std::max<std::int64_t>(1, bytes);
    size *= std::max<std::int64_t>(1, std::min(wanted, most));
  } else {
    const std::int64_t most = std::max(client::kDefaultBlockBytes, bytes) / 8;
    size = std::clamp<std::int64_t>(most / std::max<std::int64_t>(1, block_volume(grid) / size), 1, size);
  }
  // size >= kOfSquare * (n / size)^2
  const auto least = static_cast<std::int64_t>(
      std::ceil(std::cbrt(static_cast<double>(kOfSquare) * static_cast<double>(n) * static_cast<double>(n))));
  const bool longer = size < n && size < least;
  if (longer) size = std::min(n, (least + own - 1) / own * own);
  const bool even = dim.count() <= 1 || (dim.is_uniform() && dim.phase() == 0);
  if (even && size == own) return grid;
  std::vector<ir::DimGrid> dims = grid.dims();
  dims[static_cast<std::size_t>(axis)] = client::value_or_throw(ir::DimGrid::uniform(n, size));
  // Longer blocks have fewer lines, where they would be large.
  const std::int64_t most =
      std::max(bytes, kLargestBytes) / static_cast<std::int64_t>(size_of(x.dtype()) + (numbered ? 8 : 0));
  while (longer && block_volume(Grid(dims)) > most) {
    ir::DimGrid* widest = nullptr;
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (static_cast<int>(d) != axis && dims[d].max_size() > 1 &&
          (widest == nullptr || dims[d].max_size() > widest->max_size()))
        widest = &dims[d];
    if (widest == nullptr) break;
    *widest = client::value_or_throw(ir::DimGrid::uniform(widest->extent(), (widest->max_size() + 1) / 2));
  }
  return Grid(std::move(dims));
}
Array recut(const Array& x, const Grid& grid) {
  return Access::record(x, infer_reblock(Access::source(x), grid));
}

void check_order(const Array& x) {
  if (is_complex(x.dtype())) refuse(Errc::kInvalidArgument, "sort: complex numbers have no order", x);
}

// Values, and their numbers where they have some.
using Lines = std::vector<Array>;

// How lines along `axis` of blocks on `grid` are sorted.
class Exchange {
 public:
  Exchange(const Grid& grid, int axis, bool descending)
      : grid_(grid), axis_(static_cast<std::size_t>(axis)), descending_(descending) {
    const ir::DimGrid& dim = grid.dim(axis);
    count_ = dim.count();
    block_ = dim.max_size();
    card_ = std::clamp<std::int64_t>(block_ / (64 * count_ * count_), 1, 8);
    const std::int64_t length = (block_ + card_ * count_ - 1) / (card_ * count_) * card_;
    // Columns are a little longer than a block, so that places drift from one end to the other.
    const std::int64_t drift = ((count_ - 1) * (length * count_ - block_) + count_ - 1) / count_;
    const std::int64_t before = card_ * count_ + drift, after = card_ * count_;
    windows_ = {count_, length, before, std::min(count_ * length, before + length + after)};
  }

  Lines run(const Lines& in, bool numbered) const {
    const auto volume = static_cast<double>(block_volume(grid_));
    Lines lines = deal(in, numbered, 200 * volume);
    // In blocks of their own pieces travel alone, and their memory is free as soon as they were read.
    const Grid pieces = columns(windows_.length, windows_.length);
    for (Array& a : lines) a = Access::record(a, infer_reblock(Access::source(a), pieces));
    const double window = 10 * volume / static_cast<double>(count_);
    // A window is looked for in each run of its column: with many columns it is cheaper to put each in order first.
    if (count_ >= kManyColumns && grid_.rank() + 2 <= limits::kMaxRank)
      lines = split_sorted(merge_columns(lines, 100 * volume), window);
    else
      lines = split(lines, window);
    return merge(lines, 100 * volume);
  }

 private:
  // The other dimensions, and two more: blocks or columns, and `count_` times `length` of their elements, cut into `block`.
  Grid columns(std::int64_t length, std::int64_t block) const {
    std::vector<ir::DimGrid> dims = grid_.dims();
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis_));
    dims.push_back(client::value_or_throw(ir::DimGrid::uniform(count_, 1)));
    dims.push_back(client::value_or_throw(ir::DimGrid::uniform(count_ * length, block)));
    return Grid(std::move(dims));
  }
  std::int8_t column_dim() const { return static_cast<std::int8_t>(grid_.rank() - 1); }

  Lines deal(const Lines& in, bool numbered, double flops) const {
    const Grid dealt = columns(windows_.length, count_ * windows_.length);
    std::vector<OutputLike> out = {{in[0].dtype(), dealt}};
    if (numbered) out.push_back({DType::kInt64, dealt});
    const Kernel kernel = client::builtin_kernel(
        ir::builtin::DealSorted{static_cast<std::int64_t>(axis_), descending_, count_, card_}, flops);
    if (!numbered && in[0].grid() != grid_) {
      if (const auto blocks = together(in[0])) return map_blocks(kernel, {{in[0], *blocks}}, out);
    }
    Lines even;
    for (const Array& a : in) even.push_back(recut(a, grid_));
    ir::OperandMap map;
    std::int8_t other = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(grid_.rank()); ++d) {
      if (d == axis_)
        map.push_back({ir::DimMap::Kind::kSpan, column_dim(), block_});
      else
        map.push_back({ir::DimMap::Kind::kSpan, other++});
    }
    return client::map_space(kernel, even, std::vector<ir::OperandMap>(even.size(), map), dealt, out);
  }
  // Of each block on `grid_` those blocks of x that make it, if that is all it is made of, and few.
  std::optional<std::vector<std::vector<std::int64_t>>> together(const Array& x) const {
    const ir::DimGrid& own = x.grid().dim(static_cast<int>(axis_));
    const std::int64_t each = own.is_uniform() && own.phase() == 0 ? block_ / own.block() : 0;
    for (int d = 0; d < grid_.rank(); ++d)
      if (d != static_cast<int>(axis_) && grid_.dim(d) != x.grid().dim(d)) return std::nullopt;
    if (each < 1 || each > kMostListed || block_ % own.block() != 0 ||
        x.grid().block_count() > kMostReferences || !Access::source(x).view.is_identity(x.shape()))
      return std::nullopt;
    const Shape counts = grid_.counts(), own_counts = x.grid().counts();
    std::vector<std::vector<std::int64_t>> blocks(static_cast<std::size_t>(grid_.block_count()));
    // The calls' order is that of columns(): other dimensions first.
    std::size_t call = 0;
    const ir::OperandMap rest = others(static_cast<std::int8_t>(axis_));
    Shape calls;
    for (const ir::DimMap& d : rest) calls.push_back(counts[static_cast<std::size_t>(d.dim)]);
    calls.push_back(count_);
    for (std::vector<std::int64_t>& list : blocks) {
      const ir::Index at = ir::unravel(static_cast<std::int64_t>(call++), calls);
      ir::Index of_x(counts.size(), 0);
      for (std::size_t d = 0; d < rest.size(); ++d) of_x[static_cast<std::size_t>(rest[d].dim)] = at[d];
      const std::int64_t first = at.back() * each;
      for (std::int64_t i = first; i < std::min(first + each, own.count()); ++i) {
        of_x[axis_] = i;
        list.push_back(ir::ravel(of_x, own_counts));
      }
    }
    return blocks;
  }
  // Pieces c of all blocks are the runs of column c.
  Lines split(const Lines& pieces, double flops) const {
    const Grid cut = columns(windows_.width, windows_.width);
    const ir::builtin::SplitRuns how{descending_, windows_};
    return of_pieces(client::builtin_kernel(how, flops), pieces,
                     {ir::DimMap::Kind::kSpan, column_dim(), windows_.length}, cut, cut);
  }
  // Pieces c of all blocks, in order, are column c.
  Lines merge_columns(Lines pieces, double flops) const {
    for (Array& a : pieces) a = a.expand_dims(a.rank() - 2);  // which of the columns
    const ir::builtin::MergeRuns how{static_cast<std::int64_t>(grid_.rank()), descending_, {}};
    const Grid whole = columns(windows_.length, count_ * windows_.length);
    return over(client::builtin_kernel(how, flops), pieces, column_dim(),
                {{ir::DimMap::Kind::kWhole},
                 {ir::DimMap::Kind::kWhole},
                 {ir::DimMap::Kind::kSpan, column_dim(), windows_.length}},
                whole, whole);
  }
  // As split(), of columns that are one run each.
  Lines split_sorted(const Lines& sorted, double flops) const {
    const Grid cut = columns(windows_.width, windows_.width);
    const ir::builtin::SplitRuns how{descending_, windows_};
    return over(client::builtin_kernel(how, flops), sorted, column_dim(),
                {{ir::DimMap::Kind::kSpan, column_dim()}, {ir::DimMap::Kind::kWhole}}, cut, cut);
  }
  // Windows j of all columns make block j.
  Lines merge(const Lines& pieces, double flops) const {
    std::vector<ir::DimGrid> space = grid_.dims();
    space[axis_] = pieces[0].grid().dim(grid_.rank());
    const ir::builtin::MergeRuns how{static_cast<std::int64_t>(axis_), descending_, windows_, block_};
    return of_pieces(client::builtin_kernel(how, flops), pieces,
                     {ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(axis_)}, Grid(std::move(space)),
                     grid_);
  }
  // Each block of the result is made of the pieces, one of each block or column, that `map` says of dimension map.dim of the space.
  // They are listed, and so read where they are, unless that is too many for a call: then they are gathered in a block.
  Lines of_pieces(const Kernel& kernel, const Lines& pieces, const ir::DimMap& map, const Grid& space,
                  const Grid& result) const {
    const bool listed = count_ * static_cast<std::int64_t>(pieces.size()) <= kMostListed &&
                        result.block_count() * count_ <= kMostReferences;
    if (!listed) return over(kernel, pieces, map.dim, {{ir::DimMap::Kind::kWhole}, map}, space, result);
    const Shape counts = result.counts(), of_pieces = pieces[0].grid().counts();
    std::vector<std::vector<std::int64_t>> blocks;
    for (std::int64_t b = 0; b < result.block_count(); ++b) {
      const ir::Index at = ir::unravel(b, counts);
      ir::Index piece;
      for (const ir::DimMap& other : others(map.dim))
        piece.push_back(at[static_cast<std::size_t>(other.dim)]);
      piece.push_back(0);
      piece.push_back(at[static_cast<std::size_t>(map.dim)]);
      std::vector<std::int64_t>& list = blocks.emplace_back();
      for (std::int64_t& i = piece[piece.size() - 2]; i < count_; ++i)
        list.push_back(ir::ravel(piece, of_pieces));
    }
    std::vector<BlockLists> inputs;
    for (const Array& a : pieces) inputs.push_back({a, blocks});
    return map_blocks(kernel, inputs, like(pieces, result));
  }
  // The same by maps: of dimensions but `dim`, and then `last`.
  Lines over(const Kernel& kernel, const Lines& pieces, std::int8_t dim, const ir::OperandMap& last,
             const Grid& space, const Grid& result) const {
    ir::OperandMap map = others(dim);
    map.insert(map.end(), last.begin(), last.end());
    return client::map_space(kernel, pieces, std::vector<ir::OperandMap>(pieces.size(), map), space,
                             like(pieces, result));
  }
  static std::vector<OutputLike> like(const Lines& lines, const Grid& grid) {
    std::vector<OutputLike> out;
    for (const Array& a : lines) out.push_back({a.dtype(), grid});
    return out;
  }
  // The first dimensions of a space but `dim`, as many as lines have others.
  ir::OperandMap others(std::int8_t dim) const {
    ir::OperandMap map;
    for (std::int8_t d = 0; static_cast<int>(map.size()) + 1 < grid_.rank(); ++d)
      if (d != dim) map.push_back({ir::DimMap::Kind::kSpan, d});
    return map;
  }

  Grid grid_;
  std::size_t axis_;
  bool descending_;
  std::int64_t count_, block_, card_;
  ir::builtin::RankWindows windows_;
};

Lines sort_lines(const Array& given, const Array& given_numbers, int axis, bool descending, bool numbered);

// Of arrays that have no dimension to spare: as a matrix of their lines.
Lines sort_matrix(const Lines& in, int axis, bool descending, bool numbered) {
  const auto matrix = [&](const Array& a) { return moveaxis(a, axis, -1).reshape({-1, extent(a, axis)}); };
  Shape shape = in[0].shape();
  std::rotate(shape.begin() + axis, shape.begin() + axis + 1, shape.end());
  Lines out = sort_lines(matrix(in[0]), in.size() > 1 ? matrix(in[1]) : Array{}, 1, descending, numbered);
  for (Array& a : out) a = moveaxis(a.reshape(shape), -1, axis);
  return out;
}

// Each block's part of a line in order, by itself, and what comes behind the first `keep` of it left out.
Lines sort_blocks(const Lines& in, const Grid& space, int axis, bool descending, bool numbered,
                  std::int64_t keep, double flops_each) {
  std::vector<ir::DimGrid> dims = space.dims();
  const ir::DimGrid& full = dims[static_cast<std::size_t>(axis)];
  if (keep < full.max_size()) {
    std::vector<std::int64_t> starts;
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < full.count(); ++i) {
      starts.push_back(total);
      total += std::min(keep, full.size(i));
    }
    dims[static_cast<std::size_t>(axis)] =
        client::value_or_throw(ir::DimGrid::cuts(total, std::move(starts)));
  }
  const Grid grid(dims);
  std::vector<OutputLike> outputs = {{in[0].dtype(), grid}};
  if (numbered) outputs.push_back({DType::kInt64, grid});
  return client::map_space(client::builtin_kernel(ir::builtin::SortBlock{axis, descending},
                                                  flops_each * static_cast<double>(block_volume(space))),
                           in, std::vector<ir::OperandMap>(in.size(), client::span_map(in[0].rank())), space,
                           outputs);
}

// Lines in order; with `numbered` their numbers: `numbers`, or their positions.
Lines sort_lines(const Array& given, const Array& given_numbers, int axis, bool descending, bool numbered) {
  check_order(given);
  const Grid even = evenly_cut(given, axis, numbered);
  Lines in = {given};
  if (given_numbers.valid()) in.push_back(given_numbers);
  if (const ir::DimGrid& dim = even.dim(axis); dim.count() > 1) {
    if (given.rank() == limits::kMaxRank) return sort_matrix(in, axis, descending, numbered);
    return Exchange(even, axis, descending).run(in, numbered);
  }
  for (Array& a : in) a = recut(a, even);
  return sort_blocks(in, even, axis, descending, numbered, even.dim(axis).extent(), kSortFlops);
}

// The first `keep` of each line in order, and their numbers: of each block, then of several of these together, and so on. Few beside the
// lines of a block.
Lines best_of(const Array& x, Grid cuts, int axis, bool descending, std::int64_t keep) {
  Lines best = {x};
  for (;;) {
    best = sort_blocks(best, cuts, axis, descending, true, keep, kSelectFlops);
    cuts = best[0].grid();
    if (cuts.dim(axis).count() <= 1) return best;
    std::vector<ir::DimGrid> dims = cuts.dims();
    ir::DimGrid& dim = dims[static_cast<std::size_t>(axis)];
    const std::int64_t beside = std::max<std::int64_t>(1, block_volume(cuts) / dim.max_size()),
                       wanted = std::max(2 * keep, client::kDefaultBlockBytes / 8 / beside);
    dim = client::value_or_throw(ir::DimGrid::uniform(dim.extent(), std::min(dim.extent(), wanted)));
    cuts = Grid(std::move(dims));
    for (Array& a : best) a = recut(a, cuts);
  }
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
  const Grid even = evenly_cut(x, along, true);
  for (const Grid& cuts : {client::computed_cuts(x), even}) {
    const ir::DimGrid& dim = cuts.dim(along);
    if (k > dim.max_size() / kMostOfBlock || dim.count() > limits::kMaxExplicitCuts) continue;
    const Lines best = best_of(x, cuts, along, largest, k);
    return {best[0], best[1]};
  }
  if (even.dim(along).count() == 1) {
    const Lines best = sort_blocks({x}, even, along, largest, true, k, kSortFlops);
    return {best[0], best[1]};
  }
  const Lines best = sort_lines(x, {}, along, largest, true);
  return {best[0].slice(along, 0, k), best[1].slice(along, 0, k)};
}

}  // namespace tilewise
