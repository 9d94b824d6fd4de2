#include "interpreter.h"

#include <tilewise/ir/infer.h>
#include <tilewise/ir/verify.h>

using namespace tilewise;
using namespace tilewise::ir;
using namespace tilewise::ir::testing;

namespace {

// Small whole numbers: sums and products of them are exact in any order, so results compare equal.
Source stored(Prng& rng, Store& store, const Shape& logical, DType t = DType::kFloat64) {
  World w = random_operand(rng, logical);
  const std::uint64_t name = store.size() + 1;
  Stored s{{t, w.source.grid}, {}};
  for (std::int64_t i = volume(w.source.grid.shape()); i > 0; --i)
    s.data.push_back(static_cast<double>(t == DType::kBool ? rng.below(2) : rng.between(-3, 3)));
  store[name] = s;
  return {name, t, w.source.grid, w.operand.view};
}

double value(const Store& store, const Source& a, const Index& i) { return at(store.at(a.array), a.view, i); }

// Runs what was inferred; the answer as an array seen through its view.
Source run(Inferred r, Store& store) {
  REQUIRE(r.op.has_value());
  std::uint64_t name = 500;
  for (OutputSpec& out : r.op->outputs) {
    while (store.count(name) != 0) ++name;
    out.array = name++;
  }
  r.op->hint.devices = {DeviceId(7)};
  run_lowered(*r.op, store);
  return {r.op->outputs[0].array, r.dtype, r.op->outputs[0].grid, r.view};
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

TEST_CASE("property: lowered maps, with gathers, compute the map") {
  for (std::uint64_t seed = 1; seed < 300; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const Shape shape = random_shape(rng, static_cast<int>(rng.below(4)), 7);
    Shape thin = shape;
    if (!thin.empty() && rng.chance(0.5)) thin[rng.below(thin.size())] = 1;
    const Source a = stored(rng, store, shape), b = stored(rng, store, thin);
    const Source all[] = {a, b, a};
    Inferred map = *infer_map(all, [](TapeBuilder& t, std::span<const TapeValue> v) {
      return t.binary(TapeOp::kAdd, t.binary(TapeOp::kMul, v[0], v[1]), v[2]);
    });
    const bool several = rng.chance(0.5);  // the product beside the sum
    if (several) {
      tape_of(*map.op)->outputs = {3, 2};
      map.op->outputs.push_back(map.op->outputs[0]);
    }
    const Source r = run(map, store);
    Source product = r;
    ++product.array;
    REQUIRE(r.shape() == shape);
    for_each_index(shape, [&](const Index& i) {
      Index j = i;
      for (std::size_t d = 0; d < j.size(); ++d) j[d] = thin[d] == 1 ? 0 : j[d];
      const double x = value(store, a, i);
      REQUIRE(value(store, r, i) == x * value(store, b, j) + x);
      if (several) REQUIRE(value(store, product, i) == x * value(store, b, j));
    });
  }
}

TEST_CASE("property: lowered reductions, over any axes, of any kind") {
  for (std::uint64_t seed = 1; seed < 900; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const int rank = static_cast<int>(rng.below(4));
    const Shape shape = random_shape(rng, rank, rank == 1 ? 400 : 9);
    const DType t = static_cast<DType>(rng.below(kDTypeCount));
    Source a = stored(rng, store, shape, t);
    if (rank == 1 && rng.chance(0.5)) {  // more than one level of the tree
      a = {99, t, *Grid::uniform(shape, {1}), View::identity(shape)};
      store[99] = {{t, a.grid}, {}};
      for (std::int64_t i = 0; i < shape[0]; ++i) store[99].data.push_back(static_cast<double>(rng.below(2)));
    }
    if (is_floating(t) && rng.chance(0.3))
      for (double& x : store[a.array].data) x = rng.chance(0.2) ? NAN : x;
    const auto kind = static_cast<ReduceKind>(rng.below(8));
    if (kind == ReduceKind::kProd)  // of up to 729 values, in double
      for (double& x : store[a.array].data) x = std::isnan(x) ? x : std::clamp(x, -2.0, 2.0);
    std::optional<std::vector<int>> axes;
    std::uint32_t mask = (1u << rank) - 1;
    if (rank > 0 && rng.chance(0.7)) {
      mask = is_arg(kind) ? 1u << rng.below(static_cast<std::uint64_t>(rank))
                          : static_cast<std::uint32_t>(rng.below(1u << rank));
      axes.emplace();
      for (int d = 0; d < rank; ++d)
        if (mask >> d & 1) axes->push_back(rng.chance(0.5) ? d : d - rank);
    }
    const Result<Inferred> inferred = infer_reduce(a, kind, axes, true);
    bool empty = false;
    for (int d = 0; d < rank; ++d) empty |= (mask >> d & 1) && shape[d] == 0;
    const bool needs = kind == ReduceKind::kMin || kind == ReduceKind::kMax || is_arg(kind);
    if (needs && (empty || is_complex(t))) {  // nothing has no least; complex numbers have no order
      REQUIRE(inferred.error().code == Errc::kInvalidArgument);
      continue;
    }
    REQUIRE(inferred.has_value());
    const Source r = run(*inferred, store);
    std::map<Index, Fold> folds;
    for_each_index(shape, [&](const Index& i) {
      Index to = i;
      for (int d = 0; d < rank; ++d) to[d] = mask >> d & 1 ? 0 : to[d];
      folds.try_emplace(to, Fold{kind})
          .first->second.add(value(store, a, i), reduced_position(i, shape, mask));
    });
    for_each_index(r.shape(), [&](const Index& i) {
      double want = kind == ReduceKind::kProd || kind == ReduceKind::kAll;  // of nothing
      if (const auto f = folds.find(i); f != folds.end())
        want = is_arg(kind) ? static_cast<double>(f->second.position) : f->second.value;
      // Products past 2^53 round, and then their order shows.
      const double got = value(store, r, i);
      REQUIRE(
          (same(got, want) || (kind == ReduceKind::kProd && std::abs(got - want) <= 1e-9 * std::abs(want))));
    });
  }
}

TEST_CASE("property: lowered moments, over any axes, with and without the sum") {
  for (std::uint64_t seed = 1; seed < 400; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const int rank = static_cast<int>(rng.below(4));
    const Shape shape = random_shape(rng, rank, rank == 1 ? 400 : 9);
    const DType t = rng.chance(0.5) ? DType::kFloat64 : DType::kFloat32;
    const Source a = rank == 1 && rng.chance(0.5)
                         ? Source{99, t, *Grid::uniform(shape, {1}), View::identity(shape)}
                         // levels of the tree
                         : stored(rng, store, shape, t);
    if (a.array == 99) {
      store[99] = {{t, a.grid}, {}};
      for (std::int64_t i = 0; i < shape[0]; ++i) store[99].data.push_back(static_cast<double>(rng.below(9)));
    }
    const auto mask = static_cast<std::uint32_t>(rng.below(1u << rank));
    std::vector<int> axes;
    for (int d = 0; d < rank; ++d)
      if (mask >> d & 1) axes.push_back(d);
    Result<Inferred> inferred = infer_reduce(a, ReduceKind::kMoments, axes, true);
    REQUIRE(inferred.has_value());
    CHECK(inferred->dtype == DType::kFloat64);
    const bool with_sum = rng.chance(0.5);
    Op op = *inferred->op;
    op.outputs[0].array = 500;
    if (with_sum) op.outputs.push_back({501, t, op.outputs[0].grid});
    REQUIRE(verify(op, std::vector<SourceArray>{{a.dtype, a.grid}}).has_value());
    run_lowered(op, store);
    std::map<Index, std::vector<double>> groups;
    for_each_index(shape, [&](const Index& i) {
      Index to = i;
      for (int d = 0; d < rank; ++d) to[d] = mask >> d & 1 ? 0 : to[d];
      groups[to].push_back(value(store, a, i));
    });
    const Shape kept = op.outputs[0].grid.shape();
    for_each_index(kept, [&](const Index& i) {
      double mean = 0, squares = 0, total = 0;
      for (const double x : groups[i]) total += x;
      mean = total / static_cast<double>(groups[i].size());
      for (const double x : groups[i]) squares += (x - mean) * (x - mean);
      const auto at = static_cast<std::size_t>(ravel(i, kept));
      REQUIRE(std::abs(store[500].data[at] - squares) <= 1e-9 * (1 + squares));
      if (with_sum) REQUIRE(std::abs(store[501].data[at] - total) <= 1e-9 * (1 + std::abs(total)));
    });
  }
  const Source complex{1, DType::kComplex128, Grid({DimGrid::whole(4)}), View::identity({4})};
  CHECK(infer_reduce(complex, ReduceKind::kMoments, std::nullopt, false).error().code ==
        Errc::kInvalidArgument);
}

TEST_CASE("property: lowered products, split or not, of any views") {
  int split = 0;
  for (std::uint64_t seed = 1; seed < 700; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const bool thin = rng.chance(0.4);
    const std::int64_t m = thin ? rng.between(1, 3) : rng.between(0, 9),
                       k = thin ? rng.between(30, 90) : rng.between(0, 9),
                       n = thin ? rng.between(1, 3) : rng.between(0, 9);
    const int ra = static_cast<int>(rng.between(1, 2)), rb = static_cast<int>(rng.between(1, 2));
    const Source a = stored(rng, store, ra == 2 ? Shape{m, k} : Shape{k}),
                 b = stored(rng, store, rb == 2 ? Shape{k, n} : Shape{k});
    const Result<Inferred> inferred = infer_matmul(a, b, rng.chance(0.5) ? 0 : rng.between(1, 20));
    INFO("error: ", inferred ? "" : inferred.error().message);
    REQUIRE(inferred.has_value());
    const std::size_t before = store.size();
    const Source r = run(*inferred, store);
    split += store.size() > before + 4;
    Shape want;
    if (ra == 2) want.push_back(m);
    if (rb == 2) want.push_back(n);
    REQUIRE(r.shape() == want);
    for_each_index(want, [&](const Index& i) {
      double sum = 0;
      for (std::int64_t x = 0; x < k; ++x)
        sum += value(store, a, ra == 2 ? Index{i[0], x} : Index{x}) *
               value(store, b, rb == 2 ? Index{x, i.back()} : Index{x});
      REQUIRE(value(store, r, i) == sum);
    });
  }
  CHECK(split > 20);
}

TEST_CASE("k in parts: runs of panels, as even as can be, each summed in order, then in pairs") {
  constexpr std::int64_t kK = 70;
  Store store;
  const Source a{1, DType::kFloat64, *Grid::uniform({4, kK}, {1, 10}), View::identity({4, kK})},
      b{2, DType::kFloat64, *Grid::uniform({kK, 3}, {10, 2}), View::identity({kK, 3})};
  Prng rng(5);
  for (const Source& s : {a, b}) {
    Stored& to = store[s.array] = {{s.dtype, s.grid}, {}};
    for (std::int64_t i = volume(s.grid.shape()); i > 0; --i) to.data.push_back(rng.uniform() - 0.5);
  }
  const auto product = [&](std::int64_t parts) {
    Op op = *infer_matmul(a, b, parts)->op;
    op.outputs[0].array = 3;
    std::uint64_t name = 10;
    return *lower(op, std::vector<SourceArray>{{a.dtype, a.grid}, {b.dtype, b.grid}}, [&] { return name++; });
  };
  const std::vector<Op> whole = product(1), by_shapes = product(0);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].kind == OpKind::kMatmul);
  CHECK(whole[0].attrs == OpAttrs(MatmulAttrs{}));
  CHECK(by_shapes[0].kind == OpKind::kMatmulPanels);
  CHECK(by_shapes[0].space.dim(0).count() == 7);
  const std::vector<Op> ops = product(5);
  REQUIRE(ops.size() == 5);
  CHECK(ops[0].kind == OpKind::kMatmulPanels);
  CHECK(ops[0].space.dim(0) == *DimGrid::cuts(kK, {0, 20, 40, 50, 60}));
  for (const int level : {1, 2, 3}) {
    CHECK(ops[static_cast<std::size_t>(level)].kind == OpKind::kCombine);
    CHECK(ops[static_cast<std::size_t>(level)].space.dim(0).count() ==
          std::vector<int>{3, 2, 1}[static_cast<std::size_t>(level - 1)]);
  }
  CHECK(ops[4].kind == OpKind::kCopy);
  const Geometry g = *Geometry::make(ops[0], {{a.dtype, a.grid}, {b.dtype, b.grid}});
  CHECK(g.steps({0, 0, 0}) == 2);
  CHECK(g.steps({2, 0, 0}) == 1);
  CHECK(g.flops({0, 0, 0}) == 2 * 20 * 1 * 2);
  CHECK(product(7)[0].space.dim(0) == *DimGrid::uniform(kK, 10));
  CHECK(product(99) == product(7));  // no more parts than panels

  const Source c = run(*infer_matmul(a, b, 5), store);
  int differs = 0;
  for_each_index({4, 3}, [&](const Index& i) {
    const auto part = [&](std::int64_t from, std::int64_t to) {
      double sum = 0;
      for (std::int64_t x = from; x < to; ++x) sum += value(store, a, {i[0], x}) * value(store, b, {x, i[1]});
      return sum;
    };
    REQUIRE(value(store, c, i) ==
            ((part(0, 20) + part(20, 40)) + (part(40, 50) + part(50, 60))) + part(60, 70));
    differs += value(store, c, i) != part(0, kK);
  });
  CHECK(differs > 0);  // so the order shows
}

TEST_CASE("property: stacks of products broadcast, whatever the views and cuts") {
  for (std::uint64_t seed = 1; seed < 400; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const Shape stack = random_shape(rng, static_cast<int>(rng.between(1, 2)), 4);
    const std::int64_t m = rng.between(0, 5), k = rng.between(0, 6), n = rng.between(0, 5);
    const auto thinned = [&](std::int64_t rows, std::int64_t columns) {
      Shape s = stack;
      for (std::int64_t& e : s) e = rng.chance(0.25) ? 1 : e;
      while (!s.empty() && rng.chance(0.3)) s.erase(s.begin());
      s.push_back(rows);
      s.push_back(columns);
      return s;
    };
    const Shape left = thinned(m, k), right = thinned(k, n);
    const Source a = stored(rng, store, left), b = stored(rng, store, right);
    const Result<Inferred> inferred = infer_matmul(a, b);
    INFO("error: ", inferred ? "" : inferred.error().message);
    REQUIRE(inferred.has_value());
    const Source r = run(*inferred, store);
    Shape want = *broadcast(Shape(left.begin(), left.end() - 2), Shape(right.begin(), right.end() - 2));
    want.push_back(m);
    want.push_back(n);
    REQUIRE(r.shape() == want);
    const auto from = [](const Index& i, const Shape& shape, std::int64_t row, std::int64_t column) {
      Index at(i.end() - static_cast<std::ptrdiff_t>(shape.size()), i.end());
      for (std::size_t d = 0; d + 2 < shape.size(); ++d) at[d] = shape[d] == 1 ? 0 : at[d];
      at[at.size() - 2] = row;
      at.back() = column;
      return at;
    };
    for_each_index(want, [&](const Index& i) {
      double sum = 0;
      for (std::int64_t x = 0; x < k; ++x)
        sum +=
            value(store, a, from(i, left, i[i.size() - 2], x)) * value(store, b, from(i, right, x, i.back()));
      REQUIRE(value(store, r, i) == sum);
    });
  }
}

TEST_CASE("property: lowered scans, over any axis, cuts and views") {
  int carried = 0, levels = 0;
  for (std::uint64_t seed = 1; seed < 500; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const int rank = static_cast<int>(rng.between(1, 3));
    const Shape shape = random_shape(rng, rank, rank == 1 ? 300 : 8);
    const int axis = static_cast<int>(rng.below(static_cast<std::uint64_t>(rank)));
    const auto kind = rng.chance(0.5) ? ReduceKind::kSum : ReduceKind::kProd;
    const Source a = stored(rng, store, shape);
    if (kind == ReduceKind::kProd)
      for (double& x : store[a.array].data) x = std::clamp(x, -1.0, 2.0);
    const std::size_t before = store.size();
    const Source r = run(*infer_scan(a, kind, rng.chance(0.5) ? axis : axis - rank), store);
    carried += store.size() > before + 4;
    REQUIRE(r.shape() == shape);
    for_each_index(shape, [&](const Index& i) {
      double want = kind == ReduceKind::kProd;
      for (Index j = i; j[axis] >= 0; --j[axis])
        want = kind == ReduceKind::kSum ? want + value(store, a, j) : want * value(store, a, j);
      REQUIRE(value(store, r, i) == want);
    });
  }
  CHECK(carried > 50);
  // More blocks than one block of totals holds: the carries of carries. A block of 2^20 columns leaves room for 16 totals.
  const std::int64_t rows = 50, columns = 1 << 20;
  const Grid grid = *Grid::uniform({rows, columns}, {1, columns});
  const SourceArray source{DType::kFloat64, grid};
  Inferred scan = *infer_scan({1, DType::kFloat64, grid, View::identity(grid.shape())}, ReduceKind::kSum, 0);
  scan.op->outputs[0].array = 2;
  std::uint64_t next = 3;
  const auto ops = lower(*scan.op, std::span(&source, 1), [&] { return next++; });
  REQUIRE(ops.has_value());
  for (const Op& op : *ops) {
    levels += op.kind == OpKind::kScan && op.get<ScanAttrs>().mode == ScanMode::kExclusive;
    CHECK(volume(op.outputs[0].grid.max_block_shape()) <= 16 * columns);
  }
  CHECK(levels == 2);
}

TEST_CASE("property: concat, stack, reshape, reblock and materialise move elements where they belong") {
  for (std::uint64_t seed = 1; seed < 500; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const int rank = static_cast<int>(rng.between(1, 3));
    const Shape shape = random_shape(rng, rank, 6);
    const int axis = static_cast<int>(rng.below(static_cast<std::uint64_t>(rank)));
    std::vector<Source> parts;
    for (std::uint64_t n = rng.chance(0.2) ? rng.between(17, 40) : rng.between(2, 4); n > 0; --n) {
      Shape s = shape;
      s[axis] = rng.between(0, 4);
      parts.push_back(stored(rng, store, s));
    }
    const Source joined = run(*infer_concat(parts, axis), store);
    std::int64_t at = 0;
    for (const Source& p : parts) {
      for_each_index(p.shape(), [&](Index i) {
        const double x = value(store, p, i);
        i[axis] += at;
        REQUIRE(value(store, joined, i) == x);
      });
      at += p.shape()[axis];
    }
    REQUIRE(joined.shape()[axis] == at);

    const Source a = stored(rng, store, shape), b = stored(rng, store, shape);
    const Source both[] = {a, b};
    const Source stacked = run(*infer_stack(both, axis - rank - 1), store);
    for_each_index(shape, [&](Index i) {
      const double x = value(store, b, i);
      i.insert(i.begin() + axis, 1);
      REQUIRE(value(store, stacked, i) == x);
    });

    std::vector<DimGrid> dims;
    for (const std::int64_t e : shape) dims.push_back(random_cuts(rng, e));
    if (const Result<Inferred> r = infer_reblock(a, Grid(dims)); r->op) {
      const Source blocks = run(*r, store);
      REQUIRE(blocks.grid == Grid(dims));
      for_each_index(shape, [&](const Index& i) { REQUIRE(value(store, blocks, i) == value(store, a, i)); });
    }
    if (const Result<Inferred> r = infer_materialise(a); r->op) {
      const Source plain = run(*r, store);
      for_each_index(shape, [&](const Index& i) { REQUIRE(value(store, plain, i) == value(store, a, i)); });
    }
    const std::int64_t n = volume(shape);
    std::vector<std::int64_t> to{n};
    for (std::int64_t f = 2; f <= n && to.size() < 3; ++f)
      if (to[0] % f == 0 && rng.chance(0.5)) to[0] /= f, to.push_back(f);
    if (rng.chance(0.3)) to.insert(to.begin() + static_cast<std::ptrdiff_t>(rng.below(to.size())), 1);
    const Result<Inferred> reshaped = infer_reshape(a, to);
    REQUIRE(reshaped.has_value());
    const Source r = reshaped->op ? run(*reshaped, store) : Source{a.array, a.dtype, a.grid, reshaped->view};
    REQUIRE(r.shape() == Shape(to.begin(), to.end()));
    for (std::int64_t i = 0; i < n; ++i)
      REQUIRE(value(store, r, unravel(i, r.shape())) == value(store, a, unravel(i, shape)));
  }
}

TEST_CASE("property: windows of calls are unrolled to what the maps say") {
  int unrolled = 0;
  for (std::uint64_t seed = 1; seed < 600; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const int rank = static_cast<int>(rng.between(1, 2));
    const Shape shape = random_shape(rng, rank, 12);
    const Source a = stored(rng, store, shape);
    CallAttrs attrs;
    attrs.kernel = "k";
    OperandMap map;
    std::vector<DimGrid> space;
    for (int d = 0; d < rank; ++d) {
      DimMap m{DimMap::Kind::kSpan, static_cast<std::int8_t>(d)};
      m.before = rng.between(-2, 2);
      m.after = rng.between(-m.before, 3);
      if (rng.chance(0.2)) m.kind = DimMap::Kind::kWhole;
      map.push_back(m);
      space.push_back(random_cuts(rng, shape[d]));
    }
    attrs.maps = {map};
    const Grid grid(space);
    const Inferred call = *infer_call({&a, 1}, attrs, grid, {{0, DType::kFloat64, grid}});
    std::uint64_t next = 1000;
    const Result<std::vector<Op>> ops =
        lower(*call.op, std::vector<SourceArray>{{a.dtype, a.grid}}, [&] { return next++; });
    if (!ops) {
      REQUIRE(ops.error().code == Errc::kUnsupported);
      continue;
    }
    for (std::size_t i = 0; i + 1 < ops->size(); ++i) run_op((*ops)[i], store);
    unrolled += ops->size() > 1;
    const Op& last = ops->back();
    const Geometry g = *Geometry::make(last, {store.at(last.operands[0].array).source});
    std::vector<Read> reads;
    for_each_index(grid.counts(), [&](const Index& p) {
      Box want = grid.box(p);
      for (int d = 0; d < rank; ++d) {
        if (map[d].kind == DimMap::Kind::kWhole)
          want.lo[d] = 0, want.hi[d] = shape[d];
        else
          want.lo[d] -= map[d].before, want.hi[d] += map[d].after;
      }
      want = intersect(want, box_of(shape));
      g.reads(p, 0, reads);
      REQUIRE(reads.size() == (want.volume() > 0 ? 1u : 0u));
      if (reads.empty()) return;
      REQUIRE(reads[0].region.shape() == want.shape());
      for_each_index(want.shape(), [&](const Index& i) {
        Index x = i, y = i;
        for (int d = 0; d < rank; ++d) x[d] += reads[0].region.lo[d], y[d] += want.lo[d];
        REQUIRE(at(store.at(last.operands[0].array), last.operands[0].view, x) == value(store, a, y));
      });
    });
  }
  CHECK(unrolled > 100);
}

TEST_CASE("a sweep shows every block of the swept dimension in order, beside the same block of the others") {
  for (std::uint64_t seed = 1; seed < 300; ++seed) {
    INFO("seed ", seed);
    Prng rng(seed);
    Store store;
    const Shape shape = random_shape(rng, 2, 9);
    const Source held = stored(rng, store, {shape[0]}), swept = stored(rng, store, shape);
    CallAttrs attrs;
    attrs.kernel = "k";
    attrs.maps = {{{DimMap::Kind::kSpan, 0}}, {{DimMap::Kind::kSpan, 0}, {DimMap::Kind::kStep}}};
    const Grid space({random_cuts(rng, shape[0])});
    const Source both[] = {held, swept};
    const Inferred call = *infer_call(both, attrs, space, {{0, DType::kFloat64, space}});
    std::uint64_t next = 1000;
    const std::vector<SourceArray> sources = {{held.dtype, held.grid}, {swept.dtype, swept.grid}};
    const std::vector<Op> ops = *lower(*call.op, sources, [&] { return next++; });
    for (std::size_t i = 0; i + 1 < ops.size(); ++i) run_op(ops[i], store);
    const Op& last = ops.back();
    const Stored& x = store.at(last.operands[1].array);
    const Geometry g = *Geometry::make(last, {store.at(last.operands[0].array).source, x.source});
    std::vector<Read> reads;
    for_each_index(space.counts(), [&](const Index& p) {
      std::int64_t column = 0;
      for (std::int64_t step = 0; step < g.steps(p); ++step) {
        g.reads(p, step, reads);
        if (shape[1] == 0) {  // nothing to sweep over: the others are seen once
          REQUIRE(reads.size() == 1);
          REQUIRE(g.steps(p) == 1);
          return;
        }
        REQUIRE(reads.size() == 2);
        REQUIRE(reads[0].region == space.box(p));
        REQUIRE(reads[1].region.lo[1] == column);
        column = reads[1].region.hi[1];
        for_each_index(reads[1].region.shape(), [&](const Index& i) {
          Index y = i;
          for (int d = 0; d < 2; ++d) y[d] += reads[1].region.lo[d];
          REQUIRE(y[0] < space.box(p).hi[0]);
          REQUIRE(at(x, last.operands[1].view, y) == value(store, swept, y));
        });
      }
      REQUIRE(column == shape[1]);
    });
  }
  // One dimension of an operand, and one extent for all.
  const Source a = Source::of(1, DType::kFloat64, *Grid::uniform({4, 4}, {2, 2}));
  CallAttrs attrs;
  attrs.kernel = "k";
  attrs.maps = {{{DimMap::Kind::kStep}, {DimMap::Kind::kStep}}};
  const Grid one({DimGrid::whole(1)});
  CHECK(infer_call({&a, 1}, attrs, one, {{0, DType::kFloat64, one}}).error().code == Errc::kInvalidArgument);
  const Source other = Source::of(2, DType::kFloat64, *Grid::uniform({5}, {2}));
  attrs.maps = {{{DimMap::Kind::kStep}, {DimMap::Kind::kWhole}}, {{DimMap::Kind::kStep}}};
  const Source both[] = {a, other};
  CHECK(infer_call(both, attrs, one, {{0, DType::kFloat64, one}}).error().code == Errc::kShapeMismatch);
}

TEST_CASE("k is split on one side of each threshold and not on the other") {
  CHECK(splits_k(10, 10, 1000, 16, 8));
  CHECK_FALSE(splits_k(10, 10, 1000, 17, 8));
  CHECK_FALSE(splits_k(10, 10, 1000, 4, 3));
  CHECK(splits_k(10, 10, 1000, 1, 50));  // 5000 <= 20000 / 4
  CHECK_FALSE(splits_k(10, 10, 1000, 1, 51));
  CHECK_FALSE(splits_k(10, 0, 1000, 0, 8));
  CHECK_FALSE(splits_k(10, 10, 0, 1, 0));
  CHECK_FALSE(
      splits_k(std::int64_t{1} << 31, std::int64_t{1} << 31, 1, 1, std::int64_t{1} << 31));  // past 2^63
}

TEST_CASE("trees: levels, names, and equal bits of gathered operands shared") {
  std::uint64_t next = 100;
  const NewArray fresh = [&] { return next++; };
  const auto levels = [&](std::int64_t blocks) {
    const Source a = Source::of(1, DType::kFloat64, *Grid::uniform({blocks}, {1}));
    Op op = *infer_reduce(a, ReduceKind::kSum, std::nullopt, false)->op;
    op.outputs[0].array = 5;
    const std::vector<Op> ops = *lower(op, std::vector<SourceArray>{{a.dtype, a.grid}}, fresh);
    CHECK(ops.back().outputs[0].array == 5);
    return ops.size();
  };
  CHECK(levels(1) == 1);
  CHECK(levels(2) == 2);
  CHECK(levels(16) == 2);
  CHECK(levels(17) == 3);
  CHECK(levels(256) == 3);
  CHECK(levels(257) == 4);

  // Partials of more than 64 KiB are combined in pairs: what decides is one partial's largest block, and the value, not what
  // moments carry beside it.
  const auto tree = [&](std::int64_t blocks, std::int64_t width, std::int64_t wide, ReduceKind kind) {
    const Source a = Source::of(1, DType::kFloat64, *Grid::uniform({blocks, width}, {1, wide}));
    const Op op = *infer_reduce(a, kind, std::vector<int>{0}, false)->op;
    std::vector<std::int64_t> fans;
    for (const Op& each : *lower(op, std::vector<SourceArray>{{a.dtype, a.grid}}, fresh))
      if (each.kind == OpKind::kCombine) fans.push_back(each.get<CombineAttrs>().fan_in);
    return fans;
  };
  using Fans = std::vector<std::int64_t>;
  for (const ReduceKind kind :
       {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kArgMax, ReduceKind::kMoments}) {
    CHECK(tree(20, 8192, 8192, kind) == Fans{16, 16});
    CHECK(tree(20, 8193, 8193, kind) == Fans{2, 2, 2, 2, 2});
    CHECK(tree(20, 16'384, 8192, kind) == Fans{16, 16});
    CHECK(tree(2, 16'384, 16'384, kind) == Fans{2});
    CHECK(tree(1, 16'384, 16'384, kind).empty());
  }

  // x + x.T of an unaligned pair gathers once what it needs once.
  const Source x = Source::of(1, DType::kFloat64, *Grid::uniform({6, 6}, {4, 3}));
  Source t = x;
  t.view = *x.view.transpose();
  const Source both[] = {x, t};
  const Inferred sum = *infer_map(
      both, [](TapeBuilder& b, std::span<const TapeValue> v) { return b.binary(TapeOp::kAdd, v[0], v[1]); });
  const std::vector<SourceArray> sources(2, {x.dtype, x.grid});
  CHECK(lower(*sum.op, sources, fresh)->size() == 2);  // x is read in place
}
