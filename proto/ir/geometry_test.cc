#include "random_world.h"

#include <doctest/doctest.h>
#include <tilewise/ir/verify.h>

using namespace tilewise;
using namespace tilewise::ir;
using namespace tilewise::ir::testing;

namespace {

Tape load_tape(DType t = DType::kFloat64) { return {{{TapeOp::kLoad, t}}}; }

}  // namespace

TEST_CASE("property: explicit maps, several reads a point, the same block twice") {
  const std::uint64_t seed = 5150;
  for (std::uint64_t round = 0; round < 300; ++round) {
    INFO("seed ", seed + round);
    Prng rng(seed + round);
    const Shape shape = random_shape(rng, static_cast<int>(rng.below(3)), 8);
    Op op;
    op.kind = OpKind::kCall;
    CallAttrs attrs;
    attrs.kernel = "k";
    const Grid space(std::vector<DimGrid>{DimGrid::whole(1), *DimGrid::uniform(rng.between(0, 6), 1)});
    std::vector<SourceArray> sources;
    for (int o = 0; o < 2; ++o) {
      const World w = random_operand(rng, shape, true);
      op.operands.push_back(w.operand);
      sources.push_back(w.source);
      ExplicitMap map{{0}, {}};
      for (std::int64_t p = 0; p < space.block_count(); ++p) {
        for (std::uint64_t k = rng.below(4); k > 0 && w.source.grid.block_count() > 0; --k)
          map.blocks.push_back(rng.between(0, w.source.grid.block_count() - 1));
        map.offsets.push_back(static_cast<std::uint32_t>(map.blocks.size()));
      }
      attrs.explicit_maps.push_back(map);
    }
    op.attrs = attrs;
    op.space = space;
    op.outputs = {{1, DType::kFloat64, space}};
    const Geometry g = *Geometry::make(op, sources);
    std::vector<Read> reads;
    std::vector<Geometry::Users> users;
    for (int o = 0; o < 2; ++o)
      for (std::int64_t b = 0; b < sources[o].grid.block_count(); ++b) {
        std::vector<std::pair<Index, std::int64_t>> expected, got;  // points and how often they read it
        for (std::int64_t p = 0; p < g.point_count(); ++p) {
          g.reads(g.point(p), 0, reads);
          const auto times = std::count_if(reads.begin(), reads.end(),
                                           [&](const Read& r) { return r.operand == o && r.block == b; });
          if (times > 0) expected.emplace_back(g.point(p), times);
        }
        g.users(o, b, users);
        for (const auto& u : users) {
          REQUIRE(u.points.volume() == 1);
          got.emplace_back(u.points.lo, u.steps_each);
        }
        REQUIRE(got == expected);
      }
    for (std::int64_t p = 0; p < g.point_count(); ++p) {
      g.reads(g.point(p), 0, reads);
      std::int64_t bytes = 0;
      for (const Read& r : reads) bytes += r.region.volume() * 8;
      REQUIRE(g.bytes_read(g.point(p)) == bytes);
      REQUIRE(g.steps(g.point(p)) == 1);
    }
  }
}

TEST_CASE("kinds without reads, fetch, and blocks matched by number") {
  Op op;
  op.kind = OpKind::kReadNpy;
  op.attrs = NpyAttrs{"a.npy", 128};
  op.space = *Grid::uniform({10}, {4});
  op.outputs = {{1, DType::kFloat32, op.space}};
  const Geometry npy = *Geometry::make(op, {});
  std::vector<Read> reads{{}};
  npy.reads({1}, 0, reads);
  CHECK(reads.empty());
  CHECK(npy.steps({1}) == 1);
  CHECK(npy.output_bytes_bound() == 16);

  op.kind = OpKind::kProvide;
  op.attrs = FetchAttrs{};
  CHECK(Geometry::make(op, {}).has_value());

  const Grid source = *Grid::uniform({10, 6}, {4, 6});
  op.kind = OpKind::kFetch;
  op.operands = {{1, View::identity({10, 6})}};
  op.outputs = {};
  op.space = source;
  const Geometry fetch = *Geometry::make(op, {{DType::kFloat64, source}});
  fetch.reads({2, 0}, 0, reads);
  REQUIRE(reads.size() == 1);
  CHECK(reads[0].block == 2);
  CHECK(reads[0].region == Box{{8, 0}, {10, 6}});
  std::vector<Geometry::Users> users;
  fetch.users(0, 2, users);
  REQUIRE(users.size() == 1);
  CHECK(users[0].points == Box{{2, 0}, {3, 1}});

  Op call;  // unrolled halos: cuts (0, 5, 11) stand beside (0, 4, 8)
  call.kind = OpKind::kCall;
  call.operands = {{1, View::identity({14})}};
  call.space = *Grid::uniform({10}, {4});
  CallAttrs attrs;
  attrs.kernel = "stencil";
  attrs.maps = {{{DimMap::Kind::kBlock, 0}}};
  call.attrs = attrs;
  call.outputs = {{1, DType::kFloat64, call.space}};
  const Grid unrolled(std::vector<DimGrid>{*DimGrid::cuts(14, {0, 5, 11})});
  const Geometry g = *Geometry::make(call, {{DType::kFloat64, unrolled}});
  g.reads({1}, 0, reads);
  CHECK(reads[0].region == Box{{5}, {11}});
  g.users(0, 2, users);
  CHECK(users[0].points == Box{{2}, {3}});
  CHECK(verify(call, std::vector<SourceArray>{{DType::kFloat64, unrolled}}).error().code ==
        Errc::kInvalidArgument);
  CHECK(Geometry::make(call, {{DType::kFloat64, *Grid::uniform({14}, {7})}}).error().code ==
        Errc::kShapeMismatch);
}

namespace {
Op map_op(const View& view, const Grid& space) {
  Op op;
  op.operands = {{1, view}};
  op.space = space;
  op.attrs = MapAttrs{load_tape()};
  op.outputs = {{2, DType::kFloat64, space}};
  return op;
}
}  // namespace

TEST_CASE("regions that cross blocks are refused with the word gather") {
  const SourceArray source{DType::kFloat64, *Grid::uniform({12}, {4})};
  CHECK(Geometry::make(map_op(View::identity({12}), *Grid::uniform({12}, {2})), {source}).has_value());
  CHECK(Geometry::make(map_op(View::identity({12}), *Grid::uniform({12}, {4})), {source}).has_value());
  const auto wide = Geometry::make(map_op(View::identity({12}), *Grid::uniform({12}, {6})), {source});
  CHECK(wide.error().code == Errc::kShapeMismatch);
  CHECK(wide.error().message ==
        "map: a step reads several blocks of operand 0 along dimension 0; needs a gather");
  // A window is fine where it stays in a block, and not one element further.
  Op call = map_op(View::identity({12}), *Grid::uniform({12}, {12}));
  call.kind = OpKind::kCall;
  CallAttrs attrs;
  attrs.kernel = "k";
  attrs.maps = {{{DimMap::Kind::kSpan, 0, 1, 1, -4, -4 + 0}}};
  attrs.maps[0][0].after = 4;
  call.space = *Grid::uniform({4}, {4});
  call.outputs[0].grid = call.space;
  call.attrs = attrs;
  CHECK(Geometry::make(call, {source}).has_value());
  attrs.maps[0][0].after = 5;
  call.attrs = attrs;
  CHECK(Geometry::make(call, {source}).error().code == Errc::kShapeMismatch);
  attrs.maps[0][0].after = 3;
  call.attrs = attrs;
  CHECK(Geometry::make(call, {source}).error().code == Errc::kInvalidArgument);  // a negative window
}

TEST_CASE("billions of blocks are answered in closed form") {
  const std::int64_t n = 3'000'000'000;
  const Grid fine = *Grid::uniform({n}, {1});
  const View odd = *View::identity({2 * n}).slice(0, 2 * n - 1, std::nullopt, -2);
  const Geometry g = *Geometry::make(map_op(odd, fine), {{DType::kFloat64, *Grid::uniform({2 * n}, {3})}});
  std::vector<Read> reads;
  g.reads({n - 1}, 0, reads);
  CHECK(reads[0].block == 0);
  std::vector<Geometry::Users> users;
  g.users(0, 0, users);
  CHECK(users[0].points == Box{{n - 1}, {n}});  // elements 2, 1, 0: only 1 is shown
  const auto crossing = Geometry::make(map_op(View::identity({n}), *Grid::uniform({n}, {2})),
                                       {{DType::kFloat64, *Grid::uniform({n}, {3})}});
  CHECK(crossing.error().code == Errc::kShapeMismatch);
}

TEST_CASE("products over an empty inner extent still have one step, with nothing to read") {
  Op op;
  op.kind = OpKind::kMatmul;
  op.attrs = MatmulAttrs{};
  op.operands = {{1, View::identity({3, 0})}, {2, View::identity({0, 4})}};
  op.space = Grid({DimGrid::whole(3), DimGrid::whole(4)});
  op.outputs = {{3, DType::kFloat64, op.space}};
  const Geometry g = *Geometry::make(op, {{DType::kFloat64, *Grid::uniform({3, 0}, {3, 1})},
                                          {DType::kFloat64, *Grid::uniform({0, 4}, {1, 4})}});
  std::vector<Read> reads{{}};
  CHECK(g.steps({0, 0}) == 1);
  g.reads({0, 0}, 0, reads);
  CHECK(reads.empty());
  CHECK(g.flops({0, 0}) == 0);
  CHECK(g.bytes_read({0, 0}) == 0);
}

TEST_CASE("costs: a block product and a tape") {
  Op op;
  op.kind = OpKind::kMatmul;
  op.attrs = MatmulAttrs{};
  op.operands = {{1, View::identity({6, 10})}, {2, View::identity({10, 4})}};
  op.space = *Grid::uniform({6, 4}, {3, 4});
  op.outputs = {{3, DType::kFloat64, op.space}};
  const Geometry g = *Geometry::make(op, {{DType::kFloat64, *Grid::uniform({6, 10}, {3, 5})},
                                          {DType::kFloat64, *Grid::uniform({10, 4}, {5, 4})}});
  CHECK(g.steps({0, 0}) == 2);
  CHECK(g.step_grid() == *DimGrid::uniform(10, 5));
  CHECK(g.flops({1, 0}) == 2 * 3 * 4 * 10);
  CHECK(g.bytes_read({1, 0}) == (3 * 10 + 10 * 4) * 8);
  CHECK(g.output_bytes_bound() == 3 * 4 * 8);
}

// Not a check but a figure, printed: the worker asks these once or more per task.
TEST_CASE("how long a query takes") {
  const Grid grid = *Grid::uniform({65536, 65536}, {1024, 1024});
  Op mm;
  mm.kind = OpKind::kMatmul;
  mm.attrs = MatmulAttrs{};
  mm.operands = {{1, View::identity({65536, 65536})}, {2, *View::identity({65536, 65536}).transpose()}};
  mm.space = grid;
  mm.outputs = {{3, DType::kFloat64, grid}};
  Op copy;
  copy.kind = OpKind::kCopy;
  copy.operands = {{1, View::identity({65536, 65536})}};
  copy.space = *Grid::uniform({65536, 65536}, {128, 65536});
  copy.attrs = CopyAttrs{{{{DimMap::Kind::kSpan, 0}, {DimMap::Kind::kSpan, 1}}}};
  copy.outputs = {{3, DType::kFloat64, copy.space}};
  Op add = map_op(View::identity({65536, 65536}), grid);
  add.operands.push_back({2, *View::identity({65536}).broadcast_to({65536, 65536})});
  add.attrs = MapAttrs{sum_of_loads(2)};
  const SourceArray a{DType::kFloat64, grid}, row{DType::kFloat64, *Grid::uniform({65536}, {1024})};
  struct Named {
    std::string name;
    Geometry g;
  };
  const Named all[] = {{"map", *Geometry::make(add, {a, row})},
                       {"matmul", *Geometry::make(mm, {a, a})},
                       {"copy", *Geometry::make(copy, {a})}};
  for (const Named& n : all) {
    std::vector<Read> reads;
    std::vector<Geometry::Users> users;
    std::int64_t sink = 0;
    const double r = nanoseconds([&](std::int64_t i) {
      n.g.reads({i & 63, n.g.counts()[1] == 1 ? 0 : (i >> 6) & 63}, i & 63, reads);
      sink += static_cast<std::int64_t>(reads.size());
    });
    const double s = nanoseconds([&](std::int64_t i) {
      sink += n.g.steps({i & 63, n.g.counts()[1] == 1 ? 0 : (i >> 6) & 63});
    });
    const double u = nanoseconds([&](std::int64_t i) {
      n.g.users(0, i & 4095, users);
      sink += static_cast<std::int64_t>(users.size());
    });
    MESSAGE(n.name << ": reads " << r << " ns, steps " << s << " ns, users " << u << " ns"
                   << std::string(sink == 0 ? " (nothing)" : ""));
    CHECK(sink > 0);
  }
}

TEST_CASE("property: a range of C order as few boxes") {
  for (std::uint64_t seed = 1; seed < 2000; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    const Shape counts = random_shape(rng, static_cast<int>(rng.below(4)), 5);
    const std::int64_t n = volume(counts);
    const std::int64_t first = rng.between(0, n), end = rng.between(first, n);
    std::int64_t at = first, boxes = 0;
    boxes_of_range(first, end, counts, [&](const Box& box) {
      ++boxes;
      REQUIRE(box.volume() > 0);
      for_each_index(box.shape(), [&](Index i) {
        for (std::size_t d = 0; d < i.size(); ++d) i[d] += box.lo[d];
        REQUIRE(ravel(i, counts) == at++);
      });
    });
    REQUIRE(at == end);
    REQUIRE(boxes <= std::max<std::int64_t>(1, 2 * static_cast<std::int64_t>(counts.size())));
  }
}

TEST_CASE("what makes runs, and what does not") {
  const auto runs = [](const Shape& shape, const Shape& counts) { return RunOrder::of(shape, counts); };
  CHECK(runs({}, {}));
  CHECK(runs({6}, {4})->dim == 0);
  CHECK(runs({6, 4}, {2, 1})->dim == 0);
  CHECK(runs({2, 6, 4}, {2, 3, 1})->dim == 1);
  CHECK(runs({2, 6, 4}, {2, 3, 1})->inner == 4);
  CHECK(runs({2, 6, 4}, {2, 3, 1})->row == 24);
  CHECK(runs({1, 6, 1}, {1, 3, 1}));
  CHECK(runs({2, 2}, {2, 2}));
  CHECK_FALSE(runs({4, 4}, {2, 2}));
  CHECK_FALSE(runs({4, 4}, {1, 2}));
}
