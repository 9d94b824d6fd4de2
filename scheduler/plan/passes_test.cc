#include "passes.h"

#include "oracle.h"

#include <tilewise/base/prng.h>
#include <tilewise/ir/infer.h>
#include <tilewise/ir/verify.h>

#include <doctest/doctest.h>

#include <algorithm>

namespace tilewise::plan::test {
namespace {

using ir::DType;
using ir::Inferred;
using ir::Source;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;
using Values = std::span<const TapeValue>;

// A client in miniature: infers ops and names their results.
class Program {
 public:
  Source input(const ir::Shape& shape, const ir::Shape& block, DType dtype = DType::kFloat64) {
    const ir::Grid grid = *ir::Grid::uniform(shape, block);
    const std::uint64_t id = next++;
    graph.externals.push_back({id, {dtype, grid}});
    return Source::of(id, dtype, grid);
  }
  Source add(Result<Inferred> inferred) {
    REQUIRE_MESSAGE(inferred.has_value(), inferred.error().message);
    REQUIRE(inferred->op.has_value());
    ir::Op op = *inferred->op;
    op.outputs[0].array = next++;
    graph.ops.push_back(op);
    return {op.outputs[0].array, op.outputs[0].dtype, op.outputs[0].grid, inferred->view};
  }
  Source map(std::vector<Source> in, const ir::BuildTape& build) { return add(ir::infer_map(in, build)); }
  Source neg(const Source& a) {
    return map({a}, [](TapeBuilder& t, Values v) { return t.unary(TapeOp::kNeg, v[0]); });
  }
  Source plus(const Source& a, const Source& b) {
    return map({a, b}, [](TapeBuilder& t, Values v) { return t.binary(TapeOp::kAdd, v[0], v[1]); });
  }
  Source fill(const ir::Shape& shape, const ir::Shape& block, double value = 2) {
    return add(ir::infer_generate(shape, *ir::Grid::uniform(shape, block), [&](TapeBuilder& t, Values) {
      return t.constant(value, DType::kFloat64);
    }));
  }
  Source random(const ir::Shape& shape, const ir::Shape& block, std::uint64_t key) {
    return add(ir::infer_generate(shape, *ir::Grid::uniform(shape, block),
                                  [&](TapeBuilder& t, Values) { return t.uniform(DType::kFloat64, key); }));
  }
  Source sum(const Source& a, std::vector<int> axes) {
    return add(ir::infer_reduce(a, ir::ReduceKind::kSum, axes, true));
  }
  void hold(const Source& a) {
    graph.holds.push_back(a.array);
    std::sort(graph.holds.begin(), graph.holds.end());
    graph.holds.erase(std::unique(graph.holds.begin(), graph.holds.end()), graph.holds.end());
  }

  Graph graph;
  std::uint64_t next = 1;
};

std::size_t count(const Graph& graph, ir::OpKind kind) {
  return static_cast<std::size_t>(
      std::count_if(graph.ops.begin(), graph.ops.end(), [&](const ir::Op& op) { return op.kind == kind; }));
}

Arrays evaluate(const Graph& graph) {
  Arrays arrays;
  Prng prng(11);
  for (const External& external : graph.externals) {
    Array array{external.source.grid.shape(), {}};
    for (std::int64_t i = ir::volume(array.shape); i > 0; --i) {
      array.values.push_back(ir::is_floating(external.source.dtype)
                                 ? Value::of(rounded(external.source.dtype, prng.uniform() - 0.5))
                                 : Value{prng.between(-9, 9)});
    }
    arrays[external.array] = std::move(array);
  }
  for (const ir::Op& op : graph.ops) eval(op, arrays);
  return arrays;
}

void same_results(const Graph& before, const Graph& after) {
  const Arrays a = evaluate(before), b = evaluate(after);
  for (const std::uint64_t held : before.holds) {
    REQUIRE(b.contains(held));
    CHECK(a.at(held).values == b.at(held).values);
  }
}

// Bytes of results that live at once while ops run in their order, counted op by op.
double most_bytes(const Graph& graph) {
  const auto bytes = [](const ir::OutputSpec& o) {
    return static_cast<double>(ir::volume(o.grid.shape())) * static_cast<double>(ir::size_of(o.dtype));
  };
  double most = 0;
  for (std::size_t now = 0; now < graph.ops.size(); ++now) {
    double lives = 0;
    for (std::size_t i = 0; i <= now; ++i) {
      for (const ir::OutputSpec& output : graph.ops[i].outputs) {
        const auto reads = [&](const ir::Op& op) {
          return std::any_of(op.operands.begin(), op.operands.end(),
                             [&](const ir::Operand& operand) { return operand.array == output.array; });
        };
        const bool held = std::binary_search(graph.holds.begin(), graph.holds.end(), output.array);
        if (held || i == now ||
            std::any_of(graph.ops.begin() + static_cast<std::ptrdiff_t>(now), graph.ops.end(), reads))
          lives += bytes(output);
      }
    }
    most = std::max(most, lives);
  }
  return most;
}

// The same of what lives between ops: a step's results take the place of what it reads, block by block.
double most_between(const Graph& graph) {
  double most = 0;
  for (std::size_t next = 0; next <= graph.ops.size(); ++next) {
    double lives = 0;
    for (std::size_t i = 0; i < next; ++i) {
      for (const ir::OutputSpec& output : graph.ops[i].outputs) {
        const auto reads = [&](const ir::Op& op) {
          return std::any_of(op.operands.begin(), op.operands.end(),
                             [&](const ir::Operand& operand) { return operand.array == output.array; });
        };
        if (std::binary_search(graph.holds.begin(), graph.holds.end(), output.array) ||
            std::any_of(graph.ops.begin() + static_cast<std::ptrdiff_t>(next), graph.ops.end(), reads))
          lives += static_cast<double>(ir::volume(output.grid.shape())) *
                   static_cast<double>(ir::size_of(output.dtype));
      }
    }
    most = std::max(most, lives);
  }
  return most;
}

TEST_CASE("dead code goes, effects stay") {
  Program p;
  const Source a = p.input({8}, {2});
  const Source b = p.neg(a), c = p.neg(b);
  p.neg(c);
  const ir::Grid one = *ir::Grid::uniform({1}, {1});
  const Source begun =
      p.add(ir::infer_call({}, {.kernel = "k", .version = "1"}, one, {{0, ir::DType::kInt64, one}}));
  p.add(ir::infer_write_npy(b, begun, "x.npy", 1));
  p.hold(b);
  remove_dead_code(p.graph);
  CHECK(p.graph.ops.size() == 3);
  CHECK(p.graph.ops[0].outputs[0].array == b.array);
}

TEST_CASE("equal expressions are computed once") {
  Program p;
  const Source a = p.input({8, 8}, {2, 2});
  const Source x = p.neg(a), y = p.neg(a);
  const Source r1 = p.random({8, 8}, {2, 2}, 5), r2 = p.random({8, 8}, {2, 2}, 5),
               r3 = p.random({8, 8}, {2, 2}, 6);
  const Source s = p.plus(p.plus(x, y), p.plus(p.plus(r1, r2), r3));
  p.hold(s);
  Graph merged = p.graph;
  merge_common_subexpressions(merged);
  CHECK(merged.ops.size() == p.graph.ops.size() - 2);
  same_results(p.graph, merged);
  SUBCASE("not where both are held, on other devices, or by a plug-in") {
    p.hold(y);
    p.graph.ops[3].hint.devices = {DeviceId{1}};
    Graph kept = p.graph;
    merge_common_subexpressions(kept);
    CHECK(kept.ops.size() == p.graph.ops.size());
    same_results(p.graph, kept);
  }
  SUBCASE("0.0 is not -0.0") {
    Program q;
    const Source zero = q.fill({4}, {2}, 0.0), minus = q.fill({4}, {2}, -0.0);
    q.hold(q.plus(zero, zero)), q.hold(q.plus(minus, minus));
    Graph g = q.graph;
    merge_common_subexpressions(g);
    fuse_elementwise(g);
    remove_dead_code(g);
    same_results(q.graph, g);
  }
}

TEST_CASE("a chain becomes one op") {
  Program p;
  const Source a = p.input({8, 8}, {4, 4}), b = p.input({8, 8}, {4, 4});
  Source x = a;
  for (int i = 0; i < 5; ++i) x = p.plus(p.neg(x), b);
  p.hold(x);
  Graph g = p.graph;
  fuse_elementwise(g);
  REQUIRE(g.ops.size() == 1);
  CHECK(g.ops[0].operands.size() == 2);
  same_results(p.graph, g);
  SUBCASE("into a reduction") {
    p.graph.holds.clear();
    p.hold(p.sum(x, {0, 1}));
    Graph r = p.graph;
    fuse_elementwise(r);
    REQUIRE(r.ops.size() == 1);
    CHECK(r.ops[0].kind == ir::OpKind::kReduce);
    same_results(p.graph, r);
  }
  SUBCASE("held results in between are kept") {
    p.hold({p.graph.ops[3].outputs[0].array});
    Graph h = p.graph;
    fuse_elementwise(h);
    CHECK(h.ops.size() == 2);
    same_results(p.graph, h);
  }
}

TEST_CASE("a sum and moments of one operand become one op, where the earlier of them was") {
  Program p;
  const Source a = p.input({8, 8}, {4, 4});
  const auto moments = [&](const Source& of, std::vector<int> axes) {
    return p.add(ir::infer_reduce(of, ir::ReduceKind::kMoments, axes, true));
  };
  const Source x = p.neg(a), total = p.sum(x, {0}), mean = p.neg(total), squares = moments(x, {0});
  const Source other = p.sum(x, {1});
  for (const Source& s : {total, mean, squares, other}) p.hold(s);
  Graph g = p.graph;
  share_moments(g);
  REQUIRE(g.ops.size() == 4);
  CHECK(g.ops[0].outputs[0].array == x.array);
  REQUIRE(g.ops[1].outputs.size() == 2);
  CHECK(g.ops[1].get<ir::ReduceAttrs>().kind == ir::ReduceKind::kMoments);
  CHECK(g.ops[1].outputs[0].array == squares.array);
  CHECK(g.ops[1].outputs[1].array == total.array);
  CHECK(g.ops[2].outputs[0].array == mean.array);
  CHECK(g.ops[3].outputs[0].array == other.array);  // over another axis
  // All of it in the plan: two readers of x are one, which takes it in.
  Graph whole = p.graph;
  whole.holds = {total.array, squares.array};
  std::uint64_t next = 1000;
  const auto planned = run_passes(whole, [&] { return next++; }, {.verify_each = true});
  REQUIRE_MESSAGE(planned.has_value(), planned.error().message);
  CHECK(std::none_of(planned->ops.begin(), planned->ops.end(),
                     [](const ir::Op& op) { return op.kind == ir::OpKind::kMap; }));
  CHECK(std::count_if(planned->ops.begin(), planned->ops.end(),
                      [](const ir::Op& op) { return op.kind == ir::OpKind::kReduceBlocks; }) == 1);
  SUBCASE("not of another operand") {
    Program q;
    const Source b = q.input({8}, {4}), c = q.input({8}, {4});
    q.hold(q.sum(b, {0}));
    q.hold(q.add(ir::infer_reduce(c, ir::ReduceKind::kMoments, std::vector<int>{0}, true)));
    share_moments(q.graph);
    CHECK(q.graph.ops.size() == 2);
  }
}

TEST_CASE("views compose, positions are rewritten") {
  Program p;
  const Source i =
      p.add(ir::infer_generate({6, 8}, *ir::Grid::uniform({6, 8}, {6, 8}), [](TapeBuilder& t, Values) {
        return t.binary(TapeOp::kAdd, t.binary(TapeOp::kMul, t.iota(0), ir::Scalar(100)), t.iota(1));
      }));
  Source slice = i;
  slice.view = *(*slice.view.slice(1, 7, 0, -2)).transpose();
  const Source x = p.map({slice}, [](TapeBuilder& t, Values v) { return t.unary(TapeOp::kNeg, v[0]); });
  Source row = i;
  row.view = *row.view.at(0, 3);
  const Source y = p.plus(
      x, *[&] {
        Source s = row;
        s.view = *s.view.slice(0, 0, 6, 1);
        return std::optional(s);
      }());
  p.hold(y);
  Graph g = p.graph;
  fuse_elementwise(g);
  CHECK(g.ops.size() == 1);  // a source of two readers is made twice
  CHECK(g.ops[0].operands.empty());
  same_results(p.graph, g);
}

TEST_CASE("random numbers move only where their counters agree, and are drawn once") {
  Program p;
  const Source r = p.random({8, 8}, {4, 4}, 3);
  Source t = r;
  t.view = *t.view.transpose();
  SUBCASE("read as they are: inlined") {
    p.hold(p.neg(r));
    Graph g = p.graph;
    fuse_elementwise(g);
    CHECK(g.ops.size() == 1);
    same_results(p.graph, g);
  }
  SUBCASE("transposed: not") {
    p.hold(p.neg(t));
    Graph g = p.graph;
    fuse_elementwise(g);
    CHECK(g.ops.size() == 2);
  }
  SUBCASE("two readers: not") {
    p.hold(p.neg(r)), p.hold(p.plus(r, r));
    Graph g = p.graph;
    fuse_elementwise(g);
    CHECK(g.ops.size() == 3);
  }
}

TEST_CASE("fusion keeps cuts, devices and limits") {
  SUBCASE("misaligned cuts are left to a gather") {
    Program p;
    const Source a = p.input({12}, {4});
    const Source b = p.neg(a);
    const Source c = p.add(ir::infer_reblock(b, *ir::Grid::uniform({12}, {3})));
    p.hold(p.neg(c));
    Graph g = p.graph;
    fuse_elementwise(g);
    CHECK(count(g, ir::OpKind::kCopy) == 1);
    CHECK(g.ops.size() == p.graph.ops.size());
  }
  SUBCASE("two explicit placements stay two ops") {
    Program p;
    const Source a = p.input({8}, {4});
    p.hold(p.neg(p.neg(a)));
    p.graph.ops[0].hint.devices = {DeviceId{1}};
    Graph g = p.graph;
    fuse_elementwise(g);
    CHECK(g.ops.size() == 1);
    CHECK(g.ops[0].hint.devices == std::vector<DeviceId>{DeviceId{1}});
    p.graph.ops[1].hint.devices = {DeviceId{2}};
    g = p.graph;
    fuse_elementwise(g);
    CHECK(g.ops.size() == 2);
  }
  SUBCASE("tapes stay within their limits") {
    Program p;
    std::vector<Source> in;
    for (int i = 0; i < 40; ++i) in.push_back(p.input({4}, {2}));
    Source x = in[0];
    for (int i = 0; i < 400; ++i) x = p.plus(p.neg(x), in[static_cast<std::size_t>(i % 40)]);
    p.hold(x);
    Graph g = p.graph;
    fuse_elementwise(g);
    CHECK(g.ops.size() < 100);
    for (const ir::Op& op : g.ops) {
      CHECK(op.operands.size() <= static_cast<std::size_t>(limits::kMaxTapeLoads));
      CHECK(op.get<ir::MapAttrs>().tape.code.size() <=
            static_cast<std::size_t>(limits::kMaxTapeInstructions));
    }
    same_results(p.graph, g);
  }
}

std::vector<std::uint64_t> outputs_of(const ir::Op& op) {
  std::vector<std::uint64_t> arrays;
  for (const ir::OutputSpec& output : op.outputs) arrays.push_back(output.array);
  return arrays;
}

bool is_wanted(const Graph& graph, std::uint64_t array) {
  const auto reads = [&](const ir::Op& op) {
    return std::any_of(op.operands.begin(), op.operands.end(),
                       [&](const ir::Operand& operand) { return operand.array == array; });
  };
  return std::binary_search(graph.holds.begin(), graph.holds.end(), array) ||
         std::any_of(graph.ops.begin(), graph.ops.end(), reads);
}

// What is left when maps have been joined. Bits stay, no more lives at once, and nothing is made for nobody.
Graph joined(const Program& p) {
  Graph fused = p.graph;
  fuse_elementwise(fused);
  Graph g = fused;
  share_tapes(g);
  same_results(p.graph, g);
  CHECK(most_between(g) <= most_between(fused));
  for (const ir::Op& op : g.ops)
    for (const std::uint64_t array : outputs_of(op)) CHECK(is_wanted(g, array));
  std::uint64_t name = 1000;
  const auto planned = run_passes(p.graph, [&] { return name++; }, {.verify_each = true});
  REQUIRE_MESSAGE(planned.has_value(), planned.error().message);
  return g;
}

TEST_CASE("a producer that has to exist and a map of what it makes become one op with both results") {
  Program p;
  const Source x = p.input({8, 6}, {4, 3}), z = p.input({8, 6}, {4, 3});
  const Source t = p.neg(x), y = p.plus(t, z);
  p.graph.ops[0].label = "negated";
  p.graph.ops[1].label = "moved";
  p.hold(y);
  SUBCASE("held") { p.hold(t); }
  SUBCASE("with a reader that stays apart") { p.hold(p.sum(t, {0})); }
  const Graph g = joined(p);
  const ir::Op& both = g.ops.at(0);
  CHECK(g.ops.size() == p.graph.ops.size() - 1);
  CHECK(outputs_of(both) == std::vector<std::uint64_t>{t.array, y.array});
  CHECK(both.operands.size() == 2);  // t is not read
  CHECK(both.label == "negated, moved");
}

TEST_CASE("a result that only the joined maps read is made no more") {
  Program p;
  const Source x = p.random({8, 6}, {4, 3}, 1), z = p.input({8, 6}, {4, 3});
  const Source y = p.plus(x, z), last = p.plus(x, y);
  p.hold(last);
  SUBCASE("one output is left") {}
  SUBCASE("two are") { p.hold(y); }
  const Graph g = joined(p);
  REQUIRE(g.ops.size() == 1);
  CHECK(g.ops[0].outputs.size() == p.graph.holds.size());
  CHECK(outputs_of(g.ops[0]).back() == last.array);
}

TEST_CASE("Adam's update reads each of four arrays once and writes three") {
  Program p;
  const auto input = [&] { return p.input({8, 6}, {4, 3}); };
  const Source g = p.sum(p.input({8, 6, 4}, {4, 3, 2}), {2});  // a gradient, made here
  Source gradient = g;
  gradient.view = *gradient.view.at(2, 0);
  const Source m0 = input(), v0 = input(), p0 = input();
  const auto mixed = [&](const Source& old, bool squared) {
    return p.map({old, gradient}, [&](TapeBuilder& t, Values v) {
      const TapeValue grown = squared ? t.binary(TapeOp::kMul, v[1], v[1]) : v[1];
      return t.binary(TapeOp::kAdd, t.binary(TapeOp::kMul, v[0], ir::Scalar(0.9)),
                      t.binary(TapeOp::kMul, grown, ir::Scalar(0.1)));
    });
  };
  const Source m = mixed(m0, false), v = mixed(v0, true);
  const Source next = p.map({p0, m, v}, [](TapeBuilder& t, Values v) {
    return t.binary(TapeOp::kSub, v[0], t.binary(TapeOp::kMul, v[1], v[2]));
  });
  for (const Source& s : {m, v, next}) p.hold(s);
  const Graph after = joined(p);
  REQUIRE(count(after, ir::OpKind::kMap) == 1);
  CHECK(outputs_of(after.ops.back()) == std::vector<std::uint64_t>{m.array, v.array, next.array});
  CHECK(after.ops.back().operands.size() == 4);
}

TEST_CASE("maps of one operand are joined, four outputs at most") {
  Program p;
  const Source x = p.input({8, 6}, {4, 3}), other = p.input({8, 6}, {4, 3});
  std::vector<Source> made;
  for (int i = 0; i < 6; ++i) {
    made.push_back(p.map({x}, [&](TapeBuilder& t, Values v) {
      return t.cast(t.binary(TapeOp::kMul, v[0], ir::Scalar(i + 2)),
                    i % 2 == 0 ? DType::kFloat64 : DType::kFloat32);
    }));
    p.hold(made.back());
  }
  p.hold(p.neg(other));
  const Graph g = joined(p);
  REQUIRE(g.ops.size() == 3);
  CHECK(g.ops[0].outputs.size() == 4);
  CHECK(g.ops[0].outputs[1].dtype == DType::kFloat32);
  CHECK(g.ops[1].outputs.size() == 2);
  CHECK(g.ops[2].outputs.size() == 1);  // what it reads nobody else does
}

TEST_CASE("maps stay apart where joining them could be worse") {
  Program p;
  const ir::Shape shape{8, 8}, block{4, 4};
  const Source x = p.input(shape, block), z = p.input(shape, block);
  const auto maps = [&] { return count(joined(p), ir::OpKind::kMap); };
  SUBCASE("a path leads from one to the other through a third op") {
    const Source e = p.neg(x);
    Source total = p.sum(e, {1});
    total.view = *total.view.broadcast_to(shape);
    p.hold(p.plus(e, total));
    CHECK(maps() == 2);
  }
  SUBCASE("an op between them waits for the first") {
    const Source t = p.neg(x);
    p.hold(p.sum(t, {0}));
    p.hold(t), p.hold(p.plus(t, z));
    CHECK(maps() == 2);
  }
  SUBCASE("the second waits for what the first does not") {
    const Source t = p.neg(x);
    Source total = p.sum(z, {0});
    total.view = *total.view.broadcast_to(shape);
    p.hold(t), p.hold(p.plus(t, total));
    CHECK(maps() == 2);
    p.hold(p.plus(t, p.neg(total)));  // this one waits for the same as the second
    CHECK(count(joined(p), ir::OpKind::kMap) == 2);
  }
  SUBCASE("it reads more than the element") {
    const Source t = p.neg(x);
    Source across = t;
    across.view = *across.view.transpose();
    p.hold(t), p.hold(p.plus(t, across));
    CHECK(maps() == 2);
  }
  SUBCASE("other cuts or other devices") {
    const Source t = p.neg(x);
    p.hold(t), p.hold(p.plus(t, z));
    SUBCASE("devices") { p.graph.ops[1].hint.devices = {DeviceId{2}}; }
    SUBCASE("cuts") {
      p.graph.ops[1].space = p.graph.ops[1].outputs[0].grid = *ir::Grid::uniform(shape, {8, 2});
    }
    CHECK(maps() == 2);
  }
  SUBCASE("what the first alone keeps is larger than what it makes") {
    const auto wide = [&](std::uint64_t key) { return p.sum(p.random({8, 8, 2}, {4, 4, 2}, key), {2}); };
    Source a = wide(1), b = wide(2);
    for (Source* s : {&a, &b}) s->view = *s->view.at(2, 0);
    const Source t = p.plus(a, b);
    SUBCASE("neighbours all the same") {
      p.hold(t), p.hold(p.plus(t, z));
      CHECK(maps() == 1);
    }
    SUBCASE("not with an op between") {
      p.hold(p.sum(z, {0}));
      p.hold(t), p.hold(p.plus(t, z));
      CHECK(maps() == 2);
    }
  }
  SUBCASE("steps of a gigabyte") {
    for (const std::int64_t extent : {std::int64_t{1} << 25, (std::int64_t{1} << 25) + 1}) {
      Program q;
      const Source large = q.input({2 * extent}, {extent}), zero = q.input({2 * extent}, {extent});
      const Source t = q.neg(large);
      q.hold(t), q.hold(q.plus(t, zero));
      share_tapes(q.graph);
      CHECK(q.graph.ops.size() == (extent == std::int64_t{1} << 25 ? 1 : 2));
    }
  }
}

Source any_view(Prng& prng, Source s) {
  if (s.shape().size() == 2 && prng.chance(0.3)) s.view = *s.view.transpose();
  if (s.shape().size() == 2 && prng.chance(0.15)) s.view = *s.view.slice(0, std::nullopt, std::nullopt, -1);
  return s;
}

TEST_CASE("random programs give the same bits with and without passes") {
  std::size_t joins = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    Prng prng(seed);
    Program p;
    std::vector<Source> all;
    const std::int64_t n = prng.between(2, 6), block = prng.between(1, 3);
    for (int i = 0; i < 2; ++i) all.push_back(p.input({n, n}, {block, block}));
    const auto pick = [&] { return any_view(prng, all[prng.below(all.size())]); };
    for (std::int64_t i = prng.between(3, 14); i > 0; --i) {
      switch (prng.below(7)) {
        case 0: all.push_back(p.random({n, n}, {block, block}, prng.below(2))); break;
        case 1:
          all.push_back(p.add(ir::infer_generate(
              {n, n}, *ir::Grid::uniform({n, n}, {block, block}), [](TapeBuilder& t, Values) {
                return t.cast(t.binary(TapeOp::kSub, t.iota(0), t.iota(1)), DType::kFloat64);
              })));
          break;
        case 2: all.push_back(p.fill({n, n}, {block, block}, prng.uniform())); break;
        case 3: {
          Source reduced = p.sum(pick(), {static_cast<int>(prng.below(2))});
          reduced.view = *reduced.view.broadcast_to({n, n});
          all.push_back(reduced);
          break;
        }
        case 4:
          all.push_back(p.map({pick(), pick(), pick()}, [](TapeBuilder& t, Values v) {
            return t.where(t.binary(TapeOp::kLt, v[0], v[1]), t.binary(TapeOp::kMul, v[1], v[2]), v[0]);
          }));
          break;
        default: all.push_back(p.plus(pick(), pick()));
      }
    }
    for (int i = 0; i < 3; ++i) {
      const Source& s = all[prng.below(all.size())];
      if (s.array > 2) p.hold(s);
    }
    Graph g = p.graph;
    if (prng.chance(0.8)) remove_dead_code(g);
    if (prng.chance(0.8)) merge_common_subexpressions(g);
    fuse_elementwise(g);
    const double unjoined = most_between(g);
    const std::size_t apart = g.ops.size();
    share_tapes(g);
    joins += apart - g.ops.size();
    CHECK(most_between(g) <= unjoined);
    const double before = most_bytes(g);
    order_for_memory(g);
    CHECK(most_bytes(g) <= before);
    CHECK(g.ops.size() <= p.graph.ops.size());
    same_results(p.graph, g);
    std::uint64_t name = p.next;
    for (const bool optimised : {true, false}) {
      Options options;
      options.verify_each = true;
      if (!optimised)
        options.off = {"dead-code",    "common-subexpressions", "shared-moments", "fusion",
                       "shared-tapes", "shared-gathers",        "memory-order"};
      const auto planned = run_passes(
          p.graph, [&] { return name++; }, options);
      REQUIRE_MESSAGE(planned.has_value(), planned.error().message);
    }
  }
  CHECK(joins > 50);
}

TEST_CASE("what is recorded long before it is read is made late") {
  Program p;
  std::vector<Source> sources;
  for (std::uint64_t i = 0; i < 40; ++i) sources.push_back(p.random({64, 64}, {16, 16}, i));
  Source total = p.fill({1, 64}, {1, 16});
  for (const Source& source : sources) total = p.plus(total, p.sum(source, {0}));
  p.hold(total);
  const double array = 64 * 64 * 8;
  CHECK(most_bytes(p.graph) > 40 * array);
  Graph g = p.graph;
  order_for_memory(g);
  CHECK(most_bytes(g) < 1.2 * array);
  same_results(p.graph, g);
  Graph again = g;
  order_for_memory(again);
  CHECK(again.ops == g.ops);
  // Nothing to be won where all must live: recorded order stays.
  for (const Source& source : sources) p.hold(source);
  g = p.graph;
  order_for_memory(g);
  CHECK(g.ops == p.graph.ops);
}

TEST_CASE("the operand that needs most on its way is made first") {
  Program p;
  const Source small = p.random({64, 64}, {16, 16}, 1);
  // Four arrays of its size at once, for a result of its size.
  std::vector<Source> parts;
  for (std::uint64_t i = 0; i < 3; ++i) parts.push_back(p.random({64, 64}, {16, 16}, 2 + i));
  const Source large = p.plus(p.plus(parts[0], parts[1]), parts[2]);
  p.hold(p.plus(small, large));
  Graph g = p.graph;
  order_for_memory(g);
  const double array = 64 * 64 * 8;
  CHECK(most_bytes(p.graph) == 5 * array);
  CHECK(most_bytes(g) == 3 * array);
  same_results(p.graph, g);
}

TEST_CASE("passes have names, texts and say whose fault it is") {
  Program p;
  const Source a = p.input({64, 64}, {8, 8});
  const Source total = p.sum(p.neg(p.neg(a)), {0, 1});
  p.hold(total);
  std::uint64_t name = 100;
  const auto new_array = [&] { return name++; };
  Options options;
  options.dump = true;
  options.verify_each = true;
  const auto planned = run_passes(p.graph, new_array, options);
  REQUIRE_MESSAGE(planned.has_value(), planned.error().message);
  REQUIRE(planned->passes.size() == pass_names().size());
  CHECK(planned->passes[3].name == "fusion");
  CHECK(planned->passes[3].ops == 1);
  CHECK(planned->passes[3].dump.find("reduce sum(%1)") != std::string::npos);
  CHECK(planned->passes[5].dump.find("combine") != std::string::npos);
  CHECK(planned->ops.back().outputs[0].array == total.array);

  ir::Op fast = planned->ops.back();
  fast.kind = ir::OpKind::kMatmul;
  fast.attrs = ir::MatmulAttrs{0, true};
  CHECK(describe(fast, 3) == "op 3 (matmul tf32)");
  CHECK(dump({&fast, 1}).find("matmul tf32(") != std::string::npos);

  options.off = {"speed"};
  CHECK(run_passes(p.graph, new_array, options).error().message.find("'speed'") != std::string::npos);
  options.off = {"lowering"};
  CHECK_FALSE(run_passes(p.graph, new_array, options).has_value());

  Graph wrong = p.graph;
  wrong.ops[1].label = "residual";
  wrong.ops[1].operands[0].array = 77;
  auto refused = run_passes(wrong, new_array, {});
  CHECK(refused.error().code == Errc::kNotFound);
  CHECK(refused.error().message.find("op 1 (map 'residual')") != std::string::npos);
  wrong = p.graph;
  std::swap(wrong.ops[0], wrong.ops[1]);
  CHECK(run_passes(wrong, new_array, {}).error().code == Errc::kInvalidArgument);
}

}  // namespace
}  // namespace tilewise::plan::test
