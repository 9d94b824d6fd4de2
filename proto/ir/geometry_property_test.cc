#include "random_world.h"

#include <doctest/doctest.h>

#include <functional>
#include <map>

using namespace tilewise;
using namespace tilewise::ir;
using namespace tilewise::ir::testing;

namespace {

struct Case {
  Op op;
  std::vector<SourceArray> sources;
  // Logical elements of each operand that a task must read, each once; empty: not checked.
  std::function<std::vector<Box>(const Index&)> wanted;
  // The same as C-order positions of the one operand; a read may show more, of the same index as a wanted one.
  std::function<std::pair<std::int64_t, std::int64_t>(const Index&)> run;
};

// A random way to cut `shape` into runs: singly before a dimension, whole behind it.
std::vector<DimGrid> random_runs(Prng& rng, const Shape& shape) {
  std::vector<DimGrid> dims;
  const std::uint64_t cut = shape.empty() ? 0 : rng.below(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d)
    dims.push_back(d < cut    ? *DimGrid::uniform(shape[d], 1)
                   : d == cut ? random_cuts(rng, shape[d])
                              : DimGrid::whole(shape[d]));
  return dims;
}

void add(Case& c, const World& w) {
  c.op.operands.push_back(w.operand);
  c.sources.push_back(w.source);
}

// reads() by the words of its contract, users() as its exact inverse.
void check_case(const Case& c) {
  const Result<Geometry> made = Geometry::make(c.op, c.sources);
  INFO("kind ", name_of(c.op.kind), ": ", made ? "" : made.error().message);
  REQUIRE(made.has_value());
  const Geometry& g = *made;
  REQUIRE(g.counts() == c.op.space.counts());
  std::map<std::tuple<int, std::int64_t, std::int64_t>, std::int64_t> expected,
      got;  // (operand, block, point) -> steps
  std::vector<Read> reads;
  for (std::int64_t p = 0; p < g.point_count(); ++p) {
    const Index point = g.point(p);
    std::map<std::pair<int, Index>, int> seen;
    std::int64_t bytes = 0;
    const std::int64_t steps = g.steps(point);
    REQUIRE(steps >= 1);
    for (std::int64_t s = 0; s < steps; ++s) {
      g.reads(point, s, reads);
      int last = -1;
      for (const Read& r : reads) {
        REQUIRE(r.operand > last);
        last = r.operand;
        const View& v = c.op.operands[r.operand].view;
        const Grid& grid = c.sources[r.operand].grid;
        REQUIRE(r.region.volume() > 0);
        REQUIRE(intersect(r.region, box_of(v.shape)) == r.region);
        const BlockWindow w = window(v, grid, r.block, r.region);
        const Box block = grid.box(unravel(r.block, grid.counts()));
        const Strides strides = c_order_strides(block.shape());
        for_each_index(r.region.shape(), [&](Index i) {
          std::int64_t at = w.offset;
          for (std::size_t d = 0; d < i.size(); ++d) at += i[d] * w.strides[d], i[d] += r.region.lo[d];
          const Index element = source_index(v, i);
          REQUIRE(block_of(grid, element) == r.block);
          std::int64_t offset = 0;
          for (std::size_t d = 0; d < element.size(); ++d) offset += (element[d] - block.lo[d]) * strides[d];
          REQUIRE(at == offset);
          ++seen[{r.operand, i}];
        });
        ++expected[{r.operand, r.block, p}];
      }
    }
    if (c.wanted) {
      std::map<std::pair<int, Index>, int> once;
      const std::vector<Box> boxes = c.wanted(point);
      for (std::size_t o = 0; o < boxes.size(); ++o) {
        const View& v = c.op.operands[o].view;
        std::int64_t n = boxes[o].volume() > 0 ? 8 : 0;
        for (int d = 0; d < v.rank(); ++d) n *= v.source_of(d) ? boxes[o].extent(d) : 1;
        bytes += n;
        for_each_index(boxes[o].shape(), [&](Index i) {
          for (std::size_t d = 0; d < i.size(); ++d) i[d] += boxes[o].lo[d];
          once[{static_cast<int>(o), i}] = 1;
        });
      }
      // A panel of matmul reads rows again with every column block: compare what, not how often, where k is stepped.
      REQUIRE(seen == once);
      REQUIRE(g.bytes_read(point) == bytes);
    }
    if (c.run) {
      const auto [begin, end] = c.run(point);
      std::int64_t found = 0;
      for (const auto& [at, times] : seen) {
        REQUIRE(times == 1);
        const std::int64_t position = ravel(at.second, c.op.operands[0].view.shape);
        found += position >= begin && position < end;
      }
      REQUIRE(found == end - begin);
      REQUIRE(g.bytes_read(point) == (end - begin) * 8);
    }
  }
  std::vector<Geometry::Users> users;
  for (std::size_t o = 0; o < c.sources.size(); ++o)
    for (std::int64_t b = 0; b < c.sources[o].grid.block_count(); ++b) {
      g.users(static_cast<int>(o), b, users);
      for (const Geometry::Users& u : users)
        for_each_index(u.points.shape(), [&](Index i) {
          for (std::size_t d = 0; d < i.size(); ++d) i[d] += u.points.lo[d];
          got[{static_cast<int>(o), b, ravel(i, g.counts())}] += u.steps_each;
        });
    }
  REQUIRE(got == expected);
}

Case random_map(Prng& rng, OpKind kind) {
  Case c;
  const Shape shape = random_shape(rng, static_cast<int>(rng.below(4)), 9);
  std::vector<World> worlds;
  for (std::uint64_t n = kind == OpKind::kWriteNpy ? 1 : rng.between(1, 3); n > 0; --n)
    worlds.push_back(random_operand(rng, shape));
  for (const World& w : worlds) add(c, w);
  c.op.kind = kind;
  c.op.space = common_space(worlds);
  if (kind == OpKind::kMap) {
    c.op.attrs = MapAttrs{sum_of_loads(worlds.size())};
    c.op.outputs = {{1, DType::kFloat64, c.op.space}};
  } else {
    const auto axes =
        kind == OpKind::kReduceBlocks ? static_cast<std::uint32_t>(rng.below(1u << shape.size())) : 0xFFu;
    std::vector<DimGrid> dims;
    for (int d = 0; d < c.op.space.rank(); ++d)
      dims.push_back(axes >> d & 1 ? *DimGrid::uniform(c.op.space.dim(d).count(), 1) : c.op.space.dim(d));
    const bool write = kind == OpKind::kWriteNpy;
    c.op.outputs = {{1, write ? DType::kInt64 : DType::kFloat64, Grid(dims)}};
    if (write) {  // and one number, everywhere
      c.op.attrs = NpyAttrs{"a.npy"};
      c.op.operands.push_back({99, View{shape, {{-1, 0, 1}}}});
      c.sources.push_back({DType::kInt64, *Grid::uniform({1}, {1})});
    } else {
      c.op.attrs = ReduceAttrs{sum_of_loads(worlds.size()), ReduceKind::kSum, axes};
    }
  }
  const Grid space = c.op.space;
  const std::size_t n = c.sources.size();
  c.wanted = [=](const Index& p) { return std::vector<Box>(n, space.box(p)); };
  return c;
}

Case random_combine(Prng& rng) {
  Case c;
  const int rank = static_cast<int>(rng.between(1, 3)),
            axis = static_cast<int>(rng.below(static_cast<std::uint64_t>(rank)));
  const std::int64_t fan_in = rng.between(2, 4);
  const bool arg = rng.chance(0.4);
  const Shape shape = random_shape(rng, rank, 9);
  std::vector<DimGrid> dims, out;
  for (int d = 0; d < rank; ++d) {
    dims.push_back(d == axis ? *DimGrid::uniform(shape[d], 1) : random_cuts(rng, shape[d]));
    out.push_back(d == axis ? *DimGrid::uniform(ceil_div(shape[d], fan_in), 1) : dims.back());
  }
  c.op.kind = OpKind::kCombine;
  c.op.space = Grid(out);
  c.op.attrs =
      CombineAttrs{arg ? ReduceKind::kArgMin : ReduceKind::kSum, static_cast<std::int8_t>(axis), fan_in};
  for (int i = 0; i <= arg; ++i) {
    const DType t = i ? DType::kInt64 : DType::kFloat64;
    add(c, {{0, View::identity(shape)}, {t, Grid(dims)}});
    c.op.outputs.push_back({1, t, c.op.space});
  }
  const Grid space = c.op.space;
  c.wanted = [=](const Index& p) {
    Box b = space.box(p);
    b.lo[axis] *= fan_in;
    b.hi[axis] = std::min(shape[axis], b.hi[axis] * fan_in);
    return std::vector<Box>(arg ? 2 : 1, b);
  };
  return c;
}

DimGrid coarser(Prng& rng, const DimGrid& cuts) {
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < cuts.count(); ++i)
    if (i == 0 || rng.chance(0.4)) starts.push_back(cuts.begin(i));
  return *DimGrid::cuts(cuts.extent(), std::move(starts));
}

Case random_matmul(Prng& rng, bool panels) {
  Case c;
  const Shape mkn = random_shape(rng, 3, 9);
  const World a = random_operand(rng, {mkn[0], mkn[1]}), b = random_operand(rng, {mkn[1], mkn[2]});
  add(c, a);
  add(c, b);
  const Grid ga = induced_grid(a.operand.view, a.source.grid),
             gb = induced_grid(b.operand.view, b.source.grid);
  // Panels: parts of k of one step, of several, and such as cut the blocks of the operands.
  const std::optional<DimGrid> steps = common_refinement(ga.dim(1), gb.dim(0));
  const DimGrid k = rng.chance(0.5)   ? refined(ga.dim(1), gb.dim(0))
                    : rng.chance(0.5) ? random_cuts(rng, mkn[1])
                                      : coarser(rng, *steps),
                m = refined(ga.dim(0), random_cuts(rng, mkn[0])), n = gb.dim(1);
  c.op.kind = panels ? OpKind::kMatmulPanels : OpKind::kMatmul;
  c.op.attrs = MatmulAttrs{};
  c.op.space = panels ? Grid({k, m, n}) : Grid({m, n});
  c.op.outputs = {{1, DType::kFloat64, panels ? Grid({*DimGrid::uniform(k.count(), 1), m, n}) : c.op.space}};
  c.wanted = [=](const Index& p) {
    const int f = panels;
    const std::int64_t k0 = panels ? k.begin(p[0]) : 0, k1 = panels ? k.end(p[0]) : mkn[1];
    return std::vector<Box>{{{m.begin(p[f]), k0}, {m.end(p[f]), k1}},
                            {{k0, n.begin(p[f + 1])}, {k1, n.end(p[f + 1])}}};
  };
  return c;
}

Case random_copy(Prng& rng) {
  Case c;
  c.op.kind = OpKind::kCopy;
  const int rank = static_cast<int>(rng.below(4));
  Shape shape = random_shape(rng, rank, 9);
  CopyAttrs attrs;
  std::vector<DimGrid> out;
  if (rank > 0 && rng.chance(0.4)) {  // concat
    const int axis = static_cast<int>(rng.below(static_cast<std::uint64_t>(rank)));
    std::int64_t at = 0;
    for (std::int64_t i = rng.between(2, 4); i > 0; --i) {
      shape[axis] = rng.between(0, 6);
      add(c, random_operand(rng, shape));
      OperandMap map;
      for (int d = 0; d < rank; ++d) map.push_back({DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
      map[axis].before = at;
      map[axis].after = -at;
      at += shape[axis];
      attrs.maps.push_back(map);
    }
    shape[axis] = at;
    for (int d = 0; d < rank; ++d) out.push_back(random_cuts(rng, shape[d]));
    c.op.space = Grid(out);
  } else {  // reblock, or unroll overlapping windows, of an array or of the tiles of one
    OperandMap map;
    std::vector<DimGrid> space;
    for (int d = 0; d < rank; ++d) {
      const std::int64_t before = rng.chance(0.5) ? 0 : rng.below(4),
                         after = rng.chance(0.5) ? 0 : rng.below(4);
      map.push_back({DimMap::Kind::kSpan, static_cast<std::int8_t>(d), 1, 1, before, after});
      space.push_back(random_cuts(rng, shape[d]));
      std::vector<std::int64_t> starts;
      std::int64_t at = 0;
      for (std::int64_t i = 0; i < space[d].count(); ++i) {
        starts.push_back(at);
        at += std::min(shape[d], space[d].end(i) + after) -
              std::max<std::int64_t>(0, space[d].begin(i) - before);
      }
      out.push_back(*DimGrid::cuts(at, starts));
    }
    const auto axis = static_cast<int>(rng.below(static_cast<std::uint64_t>(std::max(1, rank))));
    const std::int64_t tiles = rank > 0 ? rng.between(1, 3) : 1, whole = rank > 0 ? shape[axis] : 0;
    for (std::int64_t t = 0, at = 0; t < tiles; ++t) {
      if (rank > 0) shape[axis] = t + 1 < tiles ? rng.between(0, whole - at) : whole - at;
      add(c, random_operand(rng, shape));
      attrs.maps.push_back(map);
      if (rank > 0) {
        attrs.maps.back()[axis].before += at;
        attrs.maps.back()[axis].after -= at;
        at += shape[axis];
      }
    }
    c.op.space = Grid(space);
  }
  c.op.outputs = {{1, DType::kFloat64, Grid(out)}};
  c.op.attrs = attrs;
  const Op op = c.op;
  c.wanted = [=](const Index& p) {
    std::vector<Box> boxes;
    Box filled = op.outputs[0].grid.box(p);
    std::int64_t volume = 0;
    for (std::size_t o = 0; o < op.operands.size(); ++o) {
      Box b = op.space.box(p);
      for (int d = 0; d < b.rank(); ++d)
        b.lo[d] -= attrs.maps[o][d].before, b.hi[d] += attrs.maps[o][d].after;
      b = intersect(b, box_of(op.operands[o].view.shape));
      boxes.push_back(b);
      if (b.volume() == 0) continue;
      // The parts' destinations fill the output block.
      const Box to = copy_destination(op, op.space.box(p), static_cast<int>(o), b);
      REQUIRE(intersect(to, box_of(filled.shape())) == to);
      volume += to.volume();
    }
    REQUIRE(volume == filled.volume());
    return boxes;
  };
  return c;
}

Case random_reshape(Prng& rng) {
  Case c;
  c.op.kind = OpKind::kReshape;
  c.op.attrs = ReshapeAttrs{};
  const auto factors = [&](std::int64_t n) {
    Shape s;
    while (s.size() < 3 && rng.chance(0.7)) {
      std::vector<std::int64_t> divisors;
      for (std::int64_t f = 1; f <= n; ++f)
        if (n % f == 0) divisors.push_back(f);
      s.push_back(divisors[rng.below(divisors.size())]);
      n /= s.back();
    }
    s.push_back(n);
    return s;
  };
  const std::int64_t n = rng.between(1, 60);
  const Shape from = factors(n), to = factors(n);
  std::vector<DimGrid> source = random_runs(rng, from);
  Operand operand{0, View::identity(from)};
  if (rng.chance(0.3)) {  // a dimension that repeats where nothing behind it is cut
    const auto cut = static_cast<std::size_t>(
        std::find_if(source.begin(), source.end(), [](const DimGrid& d) { return d.count() != d.extent(); }) -
        source.begin());
    const auto d = static_cast<int>(rng.between(static_cast<std::int64_t>(std::min(cut, from.size() - 1)),
                                                static_cast<std::int64_t>(from.size()) - 1));
    if (static_cast<std::size_t>(d) > cut || source[d].count() <= 1) {
      source.erase(source.begin() + d);
      View shown;
      shown.shape = from;
      for (int e = 0; e < static_cast<int>(from.size()); ++e)
        if (e != d) shown.source.push_back({static_cast<std::int8_t>(e), 0, 1});
      operand.view = shown;
    }
  }
  add(c, {operand, {DType::kFloat64, Grid(source)}});
  c.op.space = Grid(random_runs(rng, to));
  c.op.outputs = {{1, DType::kFloat64, c.op.space}};
  const Grid out = c.op.space;
  c.run = [=](const Index& p) {
    const Box box = out.box(p);
    const std::int64_t begin = ravel(box.lo, to);
    return std::pair(begin, begin + box.volume());
  };
  return c;
}

// A plug-in call with windows over single blocks, a scaled map, or a whole operand.
Case random_call(Prng& rng) {
  Case c;
  c.op.kind = OpKind::kCall;
  CallAttrs attrs;
  attrs.kernel = "k";
  const int rank = static_cast<int>(rng.between(1, 3));
  const Shape shape = random_shape(rng, rank, 9);
  std::vector<DimGrid> space;
  for (int d = 0; d < rank; ++d) space.push_back(random_cuts(rng, shape[d]));
  c.op.space = Grid(space);
  const std::int64_t swept = rng.chance(0.5) ? rng.between(0, 9) : -1;  // extent of stepped dimensions
  for (std::int64_t i = rng.between(1, 3); i > 0; --i) {
    bool steps = swept >= 0 && rng.chance(0.6);
    Shape logical;
    std::vector<DimGrid> dims;
    OperandMap map;
    for (int d = static_cast<int>(rng.between(1, 3)); d > 0; --d) {
      const auto j = static_cast<std::int8_t>(rng.below(static_cast<std::uint64_t>(rank)));
      DimMap m{DimMap::Kind::kSpan, j};
      const std::int64_t n = shape[j];
      if (std::exchange(steps, false)) {
        map.push_back({DimMap::Kind::kStep});
        logical.push_back(swept), dims.push_back(random_cuts(rng, swept));
        continue;
      }
      switch (rng.below(4)) {
        case 0:
          m.kind = DimMap::Kind::kWhole;
          logical.push_back(rng.between(0, 6));
          dims.push_back(DimGrid::whole(logical.back()));
          break;
        case 1:  // the same cuts
          logical.push_back(n), dims.push_back(space[j]);
          break;
        case 2: {  // scaled cuts
          m.mul = rng.between(2, 3);
          std::vector<std::int64_t> starts;
          for (std::int64_t b = 0; b < space[j].count(); ++b) starts.push_back(space[j].begin(b) * m.mul);
          logical.push_back(n * m.mul), dims.push_back(*DimGrid::cuts(n * m.mul, starts));
          break;
        }
        default:  // a window over one block, shifted anyhow
          m.before = rng.between(-4, 4), m.after = rng.between(-m.before, 6), m.div = rng.between(1, 3);
          logical.push_back(rng.between(0, 9)), dims.push_back(DimGrid::whole(logical.back()));
      }
      map.push_back(m);
    }
    attrs.maps.push_back(map);
    add(c, {{0, View::identity(logical)}, {DType::kFloat64, Grid(dims)}});
  }
  c.op.attrs = attrs;
  c.op.outputs = {{1, DType::kFloat64, c.op.space}};
  return c;
}

}  // namespace

TEST_CASE("property: users() is the exact inverse of reads(), and reads() says what the maps say") {
  const std::uint64_t seed = 0xC0FFEE;
  for (std::uint64_t round = 0; round < 4000; ++round) {
    INFO("seed ", seed + round);
    Prng rng(seed + round);
    check_case(random_map(rng, OpKind::kMap));
    check_case(random_map(rng, OpKind::kReduceBlocks));
    check_case(random_map(rng, OpKind::kWriteNpy));
    check_case(random_combine(rng));
    check_case(random_matmul(rng, false));
    check_case(random_matmul(rng, true));
    check_case(random_copy(rng));
    check_case(random_reshape(rng));
    check_case(random_call(rng));
  }
}
