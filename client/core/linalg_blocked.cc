// Linear algebra over blocks: each step of a factorisation is one op over the blocks of what is left, so that a graph has a
// few ops a tile of the diagonal, whatever the number of blocks, and workers go on with the next step as soon as its own
// tiles are there.
#include "linalg.h"

namespace tilewise::client::linalg {
namespace {

using ir::DimGrid;
using ir::DimMap;
using ir::OperandMap;

constexpr std::int64_t kTile = 1024;            // rows of a tile at most
constexpr std::int64_t kStackBytes = 8 << 20;   // of matrices of a stack that one task computes
constexpr std::int64_t kFanIn = 8;              // triangles that one node of TSQR's tree factors
constexpr std::int64_t kSlabBytes = 128 << 20;  // of all rows of some columns, in LU
constexpr std::int64_t kNarrow = 32;            // columns that a slab has at least

DimMap span(int dim) { return {DimMap::Kind::kSpan, static_cast<std::int8_t>(dim)}; }
constexpr DimMap kAll{DimMap::Kind::kWhole};

std::vector<Array> call(const char* kernel, const ir::linalg::Params& params,
                        const std::vector<Array>& operands, std::vector<OperandMap> maps, const Grid& space,
                        std::vector<ir::OutputSpec> outputs, double flops) {
  ir::CallAttrs attrs;
  attrs.kernel = kernel;
  attrs.params = params.bytes();
  attrs.maps = std::move(maps);
  attrs.flops_per_point = flops;
  auto inferred =
      value_or_throw(infer_call(Access::sources(operands), std::move(attrs), space, std::move(outputs)));
  inferred.op->label = params.function;
  return Access::state(operands.front()).add(std::move(*inferred.op));
}

Array zeros(const Array& like, const Grid& grid) {
  return Access::record(
      like, ir::infer_generate(grid.shape(), grid, [&](ir::TapeBuilder& t, std::span<const ir::TapeValue>) {
        return t.cast(t.constant(ir::Scalar(std::int64_t{0}), DType::kInt64), like.dtype());
      }));
}

std::int64_t tile_of(const Array& a) { return std::min(kTile, a.grid().dim(0).max_size()); }
Array tiled(const Array& a, std::int64_t row, std::int64_t column) {
  const Grid want = value_or_throw(Grid::uniform(a.shape(), {row, column}));
  return a.grid() == want ? a : a.reblock({row, column});
}
Array part(const Array& a, std::int64_t row, std::int64_t row_end, std::int64_t column,
           std::int64_t column_end) {
  return a.slice(0, row, row_end).slice(1, column, column_end);
}

Array triangular_step(const Array& a, const Array& b, std::uint32_t flags, const char* function,
                      std::int64_t first) {
  // One task a block of b's columns.
  const Grid space({DimGrid::whole(rows(b)), b.grid().dim(1)});
  return call("tilewise.trsm", ir::linalg::params(function, flags, first), {a, b},
              {{kAll, kAll}, {kAll, span(1)}}, space, {{0, a.dtype(), space}},
              static_cast<double>(rows(a)) * static_cast<double>(rows(a)) *
                  static_cast<double>(space.dim(1).max_size()))[0];
}

// c - a b, a task a block of c.
Array updated(const Array& c, const Array& a, const Array& b, std::uint32_t flags, const char* function) {
  const Grid space = c.grid();
  return call(
      "tilewise.update", ir::linalg::params(function, flags), {c, a, b},
      {{span(0), span(1)}, {span(0), kAll}, {kAll, span(1)}}, space, {{0, c.dtype(), space}},
      2.0 * static_cast<double>(ir::volume(space.max_block_shape())) * static_cast<double>(columns(a)))[0];
}

}  // namespace

double flops(const Array& a) {
  return 2.0 * static_cast<double>(rows(a)) * static_cast<double>(columns(a)) *
         static_cast<double>(std::min(rows(a), columns(a)));
}

Array matrix(const Array& a, const char* function) {
  if (a.rank() < 2) refuse(Errc::kShapeMismatch, std::string(function) + " wants matrices", a);
  if (a.dtype() == DType::kBool) refuse(Errc::kInvalidArgument, std::string(function) + " of bool", a);
  if (ir::is_half(a.dtype())) return a.astype(DType::kFloat32);
  return ir::is_floating(a.dtype()) || ir::is_complex(a.dtype()) ? a : a.astype(DType::kFloat64);
}

Array adjoint(const Array& a) {
  std::vector<int> axes;
  for (int d = 0; d < a.rank(); ++d) axes.push_back(d);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  const Array turned = a.permute(axes);
  return ir::is_complex(a.dtype()) ? conj(turned) : turned;
}

Array generated(const Array& like, const Shape& shape, DType dtype,
                const std::function<ir::TapeValue(ir::TapeBuilder&)>& build,
                const std::optional<Grid>& grid) {
  return Access::record(
      like, ir::infer_generate(shape, grid, [&](ir::TapeBuilder& t, std::span<const ir::TapeValue>) {
        return t.cast(build(t), dtype);
      }));
}

std::vector<Array> one_each(const char* kernel, const char* function, const std::vector<Array>& operands,
                            const std::vector<Out>& outs, double flops, std::uint32_t flags) {
  const Array& first = operands.front();
  const Shape stack = stack_of(first);
  std::int64_t bytes = 1;  // of the largest among a matrix and its results
  for (const Array& a : operands)
    bytes = std::max(bytes, rows(a) * columns(a) * static_cast<std::int64_t>(ir::size_of(a.dtype())));
  bool empty = ir::volume(stack) == 0;
  for (const Out& o : outs) {
    bytes = std::max(bytes, o.rows * o.columns * static_cast<std::int64_t>(ir::size_of(o.dtype)));
    empty = empty || o.rows * o.columns == 0;
  }
  for (const Array& a : operands) empty = empty || a.size() == 0;
  std::vector<Array> results;
  if (empty) {  // no kernel wants to be asked: results without elements, or (a full basis of nothing) the identity
    for (const Out& o : outs) {
      Shape shape = stack;
      shape.push_back(o.rows), shape.push_back(o.columns);
      results.push_back(generated(first, shape, o.dtype, [&](ir::TapeBuilder& t) {
        const int last = static_cast<int>(shape.size()) - 1;
        return t.binary(ir::TapeOp::kEq, t.iota(last - 1), t.iota(last));
      }));
    }
    return results;
  }
  // The stack's own cuts, but no more matrices a task than make up a block.
  std::vector<DimGrid> dims;
  std::int64_t room = std::max<std::int64_t>(1, kStackBytes / bytes);
  std::vector<std::int64_t> most(stack.size());
  for (std::size_t d = stack.size(); d-- > 0;) {
    most[d] = std::max<std::int64_t>(
        1, std::min({room, stack[d], first.grid().dim(static_cast<int>(d)).max_size()}));
    room = std::max<std::int64_t>(1, room / most[d]);
  }
  OperandMap map;
  for (std::size_t d = 0; d < stack.size(); ++d) {
    dims.push_back(value_or_throw(DimGrid::uniform(stack[d], most[d])));
    map.push_back(span(static_cast<int>(d)));
  }
  map.push_back(kAll), map.push_back(kAll);
  const auto grid_of = [&](std::int64_t m, std::int64_t n) {
    std::vector<DimGrid> all = dims;
    all.push_back(DimGrid::whole(m)), all.push_back(DimGrid::whole(n));
    return Grid(std::move(all));
  };
  std::vector<ir::OutputSpec> specs;
  for (const Out& o : outs) specs.push_back({0, o.dtype, grid_of(o.rows, o.columns)});
  double count = 1;
  for (const std::int64_t m : most) count *= static_cast<double>(m);
  return call(kernel, ir::linalg::params(function, flags), operands,
              std::vector<OperandMap>(operands.size(), map), specs.front().grid, specs, flops * count);
}

bool cuts_matrix(const Array& a) {
  const Grid grid = a.grid();
  return a.size() > 0 && grid.dim(a.rank() - 2).count() > 1;
}

// Right-looking, by tiles of b rows. Of step k, with S what is left of the matrix:
//   L = cholesky(S[:b, :b]), Y = L^-1 S[b:, :b]^H, S = S[b:, b:] - Y^H Y (blocks below the diagonal and on it)
// and the rows [L^H, Y] of U = L^H are done. (J. Dongarra et al., "LAPACK Working Note 41"; A. Buttari et al., "A class of
// parallel tiled linear algebra algorithms for multicore architectures", 2009.)
Array blocked_cholesky(const Array& a) {
  const std::int64_t n = rows(a), b = tile_of(a);
  Array rest = tiled(a, b, b);
  std::vector<Array> rows_of_l;  // of L's columns, each n long
  for (std::int64_t at = 0; at < n; at += b) {
    const std::int64_t left = n - at, m = std::min(b, left);
    const Grid corner = value_or_throw(Grid::uniform(Shape{m, m}, Shape{m, m}));
    const Array l = call("tilewise.cholesky", ir::linalg::params("cholesky", 0, at), {part(rest, 0, m, 0, m)},
                         {{kAll, kAll}}, corner, {{0, a.dtype(), corner}},
                         static_cast<double>(m) * static_cast<double>(m * m) / 3)[0];
    std::vector<Array> column;
    if (at > 0) column.push_back(zeros(a, value_or_throw(Grid::uniform({at, m}, {b, m}))));
    column.push_back(l);
    if (left > m) {
      const Array below = part(rest, m, left, 0, m).T();
      const Array y = triangular_step(l, below, ir::linalg::kConjugate, "cholesky", at);
      column.push_back(adjoint(y));
      rest = updated(part(rest, m, left, m, left), y.T(), y, ir::linalg::kConjugate | ir::linalg::kLower,
                     "cholesky");
    }
    rows_of_l.push_back(concat(std::move(column), 0));
  }
  return concat(std::move(rows_of_l), 1);
}

// Of step k: X_k = A_kk^-1 B_k; the rows that are left lose what X_k explains of them.
Array blocked_triangular(const Array& a, const Array& b, bool lower) {
  const std::int64_t n = rows(a), tile = tile_of(a), count = (n + tile - 1) / tile;
  const Array tiles = tiled(a, tile, tile);
  Array rest = tiled(b, tile, std::max<std::int64_t>(1, b.grid().dim(1).max_size()));
  std::vector<Array> solved;
  for (std::int64_t step = 0; step < count; ++step) {
    const std::int64_t k = lower ? step : count - 1 - step, at = k * tile, end = std::min(n, at + tile);
    const std::int64_t from = lower ? at : 0,
                       left = lower ? n - at : end;  // rows of the whole that `rest` holds
    const Array mine = rest.slice(0, at - from, end - from);
    const Array x = triangular_step(part(tiles, at, end, at, end), mine, lower ? 0 : ir::linalg::kUpper,
                                    "solve_triangular", at);
    solved.push_back(x);
    if (step + 1 == count) break;
    rest =
        lower ? updated(rest.slice(0, end - at, left), part(tiles, end, n, at, end), x, 0, "solve_triangular")
              : updated(rest.slice(0, 0, at), part(tiles, 0, at, at, end), x, 0, "solve_triangular");
  }
  if (!lower) std::reverse(solved.begin(), solved.end());
  return concat(std::move(solved), 0);
}

namespace {

// All rows of so many columns in a block.
Array slabs(const Array& a, std::int64_t width) {
  const std::int64_t bytes = rows(a) * static_cast<std::int64_t>(ir::size_of(a.dtype()));
  return tiled(a, rows(a), std::clamp(width, std::int64_t{1}, std::max(kNarrow, kSlabBytes / bytes)));
}

// What is left after one step of the elimination of some columns.
struct Eliminated {
  Array top, rest;  // rest: none where no row is left
};
Eliminated eliminated(const Array& factors, const Array& order, const Array& c, const char* function) {
  const std::int64_t m = rows(c), k = columns(factors);
  const DimGrid cuts = c.grid().dim(1);
  std::vector<ir::OutputSpec> outs{{0, c.dtype(), Grid({DimGrid::whole(k), cuts})}};
  if (m > k) outs.push_back({0, c.dtype(), Grid({DimGrid::whole(m - k), cuts})});
  const Grid space = c.grid();
  auto both = call("tilewise.lu_update", ir::linalg::params(function), {factors, order, c},
                   {{kAll, kAll}, {kAll, kAll}, {kAll, span(1)}}, space, std::move(outs),
                   2.0 * static_cast<double>(m) * static_cast<double>(k * cuts.max_size()));
  return {both[0], both.size() > 1 ? both[1] : Array()};
}

// P A = L U: of A's steps what they leave of U, and of right sides Y with L Y = P B.
struct Elimination {
  std::vector<Array> diagonals, signs;  // U_kk (with L_kk below it), the signs of exchanges
  std::vector<Array> uppers;            // U_k,k+1...: a row of blocks, one fewer
  std::vector<Array> right;             // Y_k
};

// Right-looking, by slabs: all rows of b columns. Of step k, with S and R what is left of A and B:
//   the first slab of S is factored with row exchanges, P [L1; L2] U11 = S[:, :b]
//   [U12; S'] = P S[:, b:], U12 = L1^-1 U12, S' = S' - L2 U12; and so Y and R' from R
// No row ever crosses from task to task: exchanges are within a slab, so that they are LAPACK's, of the whole column. What moves
// is the factored slab, to whoever has others. (J. Dongarra, P. Luszczek, A. Petitet, "The LINPACK benchmark: past, present and
// future", 2003, with a grid of one row.)
Elimination eliminate(const Array& a, const Array* b, const char* function, std::uint32_t flags) {
  const std::int64_t n = rows(a);
  const DimGrid cuts = a.grid().dim(1).count() > 1 ? a.grid().dim(1) : a.grid().dim(0);
  Array rest = slabs(a, std::min(kTile, cuts.max_size())), right;
  const std::int64_t width = rest.grid().dim(1).max_size();
  if (b != nullptr) right = slabs(*b, std::min(kTile, std::max(width, b->grid().dim(1).max_size())));
  Elimination out;
  for (std::int64_t at = 0; at < n; at += width) {
    const std::int64_t left = n - at, k = std::min(width, left);
    const auto whole = [](std::int64_t r, std::int64_t c) {
      return value_or_throw(Grid::uniform(Shape{r, c}, Shape{r, c}));
    };
    const auto panel = call(
        "tilewise.lu_panel", ir::linalg::params(function, flags, at), {part(rest, 0, left, 0, k)},
        {{kAll, kAll}}, whole(left, k),
        {{0, a.dtype(), whole(left, k)}, {0, DType::kInt64, whole(left, 1)}, {0, a.dtype(), whole(1, 1)}},
        static_cast<double>(left) * static_cast<double>(k) * static_cast<double>(k));
    out.diagonals.push_back(part(panel[0], 0, k, 0, k));
    out.signs.push_back(panel[2].squeeze(-1));
    if (b != nullptr) {
      Eliminated done = eliminated(panel[0], panel[1], right, function);
      out.right.push_back(done.top);
      right = done.rest;
    }
    if (left == k) break;
    Eliminated done = eliminated(panel[0], panel[1], part(rest, 0, left, k, left), function);
    out.uppers.push_back(done.top);
    rest = done.rest;
  }
  return out;
}

}  // namespace

// U X = Y from below: X_k = U_kk^-1 (Y_k - U_k,k+1... X_k+1...).
Array blocked_solve(const Array& a, const Array& b, const char* function) {
  const Elimination lu = eliminate(a, &b, function, 0);
  std::vector<Array> solved;  // the last first
  Array below;
  for (std::size_t k = lu.diagonals.size(); k-- > 0;) {
    Array mine = lu.right[k];
    if (!solved.empty()) mine = updated(mine, lu.uppers[k], below, 0, function);
    solved.push_back(triangular_step(lu.diagonals[k], mine, ir::linalg::kUpper, function, 0));
    if (k > 0) below = below.valid() ? concat(std::vector<Array>{solved.back(), below}, 0) : solved.back();
  }
  std::reverse(solved.begin(), solved.end());
  return concat(std::move(solved), 0);
}

Factors blocked_lu_factors(const Array& a, const char* function) {
  Elimination lu = eliminate(a, nullptr, function, ir::linalg::kSingularToo);
  std::vector<Array> pivots;
  for (const Array& d : lu.diagonals) pivots.push_back(diagonal(d, 0));
  return {concat(std::move(pivots), 0), concat(std::move(lu.signs), 0)};
}

bool is_cut(const Array& a) {
  const Grid grid = a.grid();
  return a.size() > 0 && grid.dim(a.rank() - 2).count() * grid.dim(a.rank() - 1).count() > 1;
}

bool is_tall(const Array& a) {
  return a.rank() == 2 && columns(a) > 0 && rows(a) >= 2 * columns(a) && a.grid().dim(0).count() > 1;
}

// TSQR (J. Demmel et al., "Communication-optimal parallel and sequential QR and LU factorizations", 2012): a factorisation
// of each block of rows; their triangles, one above the other, are a tall matrix again, kFanIn of them a block. Q stays what
// the blocks' reflectors are, level by level.
TallFactors tall_factors(const Array& a, const char* function) {
  const std::int64_t n = columns(a);
  TallFactors out{.levels = {}, .r = a, .function = function};
  std::int64_t block = std::max(2 * n, a.grid().dim(0).max_size());
  do {
    const Array tall = tiled(out.r, block, n);
    const Grid slabs = tall.grid();
    const std::int64_t count = slabs.dim(0).count();
    // A last block of fewer rows than columns has zeros where others have more rows of R.
    auto level = call("tilewise.geqrf", ir::linalg::params(function), {tall}, {{span(0), kAll}}, slabs,
                      {{0, a.dtype(), slabs},
                       {0, a.dtype(), Grid({slabs.dim(0), DimGrid::whole(1)})},
                       {0, a.dtype(), value_or_throw(Grid::uniform(Shape{count * n, n}, Shape{n, n}))}},
                      2.0 * static_cast<double>(slabs.dim(0).max_size()) * static_cast<double>(n * n));
    out.levels.push_back({level[0], level[1]});
    out.r = level[2];
    block = kFanIn * n;
  } while (rows(out.r) > n);
  return out;
}

namespace {

// A task a block of rows of this level and a block of columns of `c`, which has as many blocks of rows as the result.
Array reflected(const TallFactors::Level& level, const Array& c, const DimGrid& result_rows,
                std::uint32_t flags, const char* function) {
  const Array source = Access::plain(c);
  const DimGrid cuts = source.grid().dim(1);
  const std::int64_t n = columns(level.reflectors), count = result_rows.count();
  const Grid space({result_rows, cuts});
  ir::CallAttrs attrs;
  attrs.kernel = "tilewise.ormqr";
  attrs.params = ir::linalg::params(function, flags).bytes();
  attrs.flops_per_point = 4.0 * static_cast<double>(level.reflectors.grid().dim(0).max_size()) *
                          static_cast<double>(n * cuts.max_size());
  for (int operand = 0; operand < 3; ++operand) {
    ir::ExplicitMap& map = attrs.explicit_maps.emplace_back();
    for (std::int64_t task = 0; task < count * cuts.count(); ++task) {
      map.offsets.push_back(static_cast<std::uint32_t>(task));
      map.blocks.push_back(operand == 2 ? task : task / cuts.count());
    }
    map.offsets.push_back(static_cast<std::uint32_t>(count * cuts.count()));
  }
  const std::vector<Array> operands{level.reflectors, level.scales, source};
  auto inferred =
      value_or_throw(infer_call(Access::sources(operands), std::move(attrs), space, {{0, c.dtype(), space}}));
  inferred.op->label = function;
  return Access::state(c).add(std::move(*inferred.op)).front();
}

}  // namespace

Array multiplied(const TallFactors& q, const Array& c) {
  const std::int64_t n = rows(q.r);
  Array out = c;
  for (std::size_t i = q.levels.size(); i-- > 0;)
    out = reflected(q.levels[i], tiled(out, n, out.grid().dim(1).max_size()),
                    q.levels[i].reflectors.grid().dim(0), 0, q.function);
  return out;
}

Array multiplied_by_adjoint(const TallFactors& q, const Array& c) {
  const std::int64_t n = rows(q.r);
  Array out = c;
  for (const TallFactors::Level& level : q.levels) {
    const DimGrid slabs = level.reflectors.grid().dim(0);
    const DimGrid tops = value_or_throw(Grid::uniform(Shape{slabs.count() * n}, Shape{n})).dim(0);
    out = reflected(level, tiled(out, slabs.max_size(), out.grid().dim(1).max_size()), tops,
                    ir::linalg::kAdjoint, q.function);
  }
  return out;
}

}  // namespace tilewise::client::linalg
