// Ops from the wire: whatever they say, verify() answers; what it lets pass, lowering and Geometry can live with.
#include "random_world.h"

#include <doctest/doctest.h>
#include <tilewise/ir/infer.h>
#include <tilewise/ir/lower.h>
#include <tilewise/ir/verify.h>

#include <map>

using namespace tilewise;
using namespace tilewise::ir;
using namespace tilewise::ir::testing;

namespace {

struct Submitted {
  Op op;
  std::vector<SourceArray> sources;
};

Submitted random_good(Prng& rng) {
  const Shape shape = random_shape(rng, static_cast<int>(rng.between(1, 3)), 8);
  std::vector<Source> all;
  for (int i = 0; i < 2; ++i) {
    const World w = random_operand(rng, shape);
    all.push_back({static_cast<std::uint64_t>(i + 1), DType::kFloat64, w.source.grid, w.operand.view});
  }
  std::span<const Source> used = all;
  Result<Inferred> r = error(Errc::kInternal, "");
  switch (rng.below(9)) {
    case 0:
      r = infer_map(used, [](TapeBuilder& t, std::span<const TapeValue> v) {
        return t.binary(TapeOp::kMul, v[0], v[1]);
      });
      break;
    case 1:
      r = infer_reduce(all[0], static_cast<ReduceKind>(rng.below(2)), std::nullopt, false),
      used = used.first(1);
      break;
    case 2: r = infer_matmul(all[0], all[1]); break;
    case 3: r = infer_concat(used, 0); break;
    case 4: r = infer_reshape(all[0], std::vector<std::int64_t>{-1}), used = used.first(1); break;
    case 5:
      all[1] = Source::of(all[1].array, DType::kInt64, *Grid::uniform({1}, {1}));
      r = infer_write_npy(all[0], all[1], "p", 1);
      break;
    case 6: {
      CallAttrs attrs;
      attrs.kernel = "k";
      OperandMap map;
      for (std::size_t d = 0; d < shape.size(); ++d)
        map.push_back(
            {DimMap::Kind::kSpan, static_cast<std::int8_t>(d), 1, 1, rng.between(0, 2), rng.between(0, 2)});
      attrs.maps = {map, map};
      r = infer_call(used, attrs,
                     all[0].view.is_identity(all[0].grid.shape()) ? all[0].grid : *Grid::by_default(shape, 8),
                     {});
      break;
    }
    case 7:
      r = infer_reduce(all[0], ReduceKind::kArgMin, std::vector<int>{0}, false), used = used.first(1);
      break;
    default: r = infer_materialise(all[0]), used = used.first(1); break;
  }
  if (!r || !r->op) return random_good(rng);
  Submitted s{*r->op, {}};
  for (const Operand& o : s.op.operands) s.sources.push_back({all[o.array - 1].dtype, all[o.array - 1].grid});
  return s;
}

std::int64_t wild(Prng& rng) {
  switch (rng.below(8)) {
    case 0: return INT64_MIN;
    case 1: return INT64_MAX;
    case 2: return std::int64_t{1} << 61;
    case 3: return -(std::int64_t{1} << 61);
    case 4: return 4'000'000'000;
    default: return rng.between(-3, 9);
  }
}

DimGrid wild_dim(Prng& rng) {
  while (true) {
    const std::int64_t extent = wild(rng), block = wild(rng);
    if (const auto g = DimGrid::uniform(extent, block, rng.chance(0.5) ? 0 : wild(rng))) return *g;
  }
}

Grid wild_grid(Prng& rng, const Grid& g) {
  std::vector<DimGrid> dims = g.dims();
  if (dims.empty() || rng.chance(0.1))
    dims.push_back(wild_dim(rng));
  else if (rng.chance(0.1))
    dims.resize(rng.below(11), DimGrid::whole(2));
  else
    dims[rng.below(dims.size())] = rng.chance(0.5) ? wild_dim(rng) : random_cuts(rng, rng.between(0, 9));
  return Grid(std::move(dims));
}

void spoil_map(Prng& rng, OperandMap& map) {
  if (map.empty() || rng.chance(0.05)) {
    map.resize(rng.below(5));
    return;
  }
  DimMap& m = map[rng.below(map.size())];
  switch (rng.below(6)) {
    case 0: m.kind = static_cast<DimMap::Kind>(rng.below(6)); break;
    case 1: m.dim = static_cast<std::int8_t>(wild(rng)); break;
    case 2: m.mul = wild(rng); break;
    case 3: m.div = wild(rng); break;
    case 4: m.before = wild(rng); break;
    default: m.after = wild(rng); break;
  }
}

void spoil(Prng& rng, Submitted& s) {
  switch (rng.below(12)) {
    case 0: s.op.kind = static_cast<OpKind>(rng.below(15)); break;
    case 1: s.op.space = wild_grid(rng, s.op.space); break;
    case 2:
      if (!s.op.outputs.empty()) s.op.outputs[0].grid = wild_grid(rng, s.op.outputs[0].grid);
      break;
    case 3:
      if (!s.op.outputs.empty()) s.op.outputs[0].dtype = static_cast<DType>(rng.below(7));
      break;
    case 4: s.op.outputs.resize(rng.below(6)); break;
    case 5:
      if (!s.sources.empty()) s.sources[0].grid = wild_grid(rng, s.sources[0].grid);
      break;
    case 6:
      if (!s.sources.empty()) s.sources.back().dtype = static_cast<DType>(rng.below(7));
      break;
    case 7:
    case 8:
      if (!s.op.operands.empty()) {
        View& v = s.op.operands[rng.below(s.op.operands.size())].view;
        if (!v.shape.empty() && rng.chance(0.4)) v.shape[rng.below(v.shape.size())] = wild(rng);
        if (!v.source.empty() && rng.chance(0.8)) {
          SourceDim& d = v.source[rng.below(v.source.size())];
          if (rng.chance(0.3)) d.dim = static_cast<std::int8_t>(rng.between(-3, 9));
          if (rng.chance(0.3)) d.start = wild(rng);
          if (rng.chance(0.3)) d.step = wild(rng);
        }
      }
      break;
    case 9:
      if (auto* c = std::get_if<CopyAttrs>(&s.op.attrs); c && !c->maps.empty())
        spoil_map(rng, c->maps[rng.below(c->maps.size())]);
      break;
    case 10:
      if (auto* c = std::get_if<CallAttrs>(&s.op.attrs); c && !c->maps.empty())
        spoil_map(rng, c->maps[rng.below(c->maps.size())]);
      break;
    default:
      if (Tape* t = tape_of(s.op); t != nullptr && rng.chance(0.4)) {
        for (std::uint64_t n = rng.below(4); n > 0 && t->outputs.size() < limits::kMaxOutputs; --n)
          t->outputs.push_back(static_cast<std::uint16_t>(rng.below(t->code.size() + 1)));
        if (rng.chance(0.7) && !s.op.outputs.empty()) s.op.outputs.resize(t->output_count(), s.op.outputs[0]);
      } else if (auto* r = std::get_if<ReduceAttrs>(&s.op.attrs)) {
        if (rng.chance(0.5))
          r->axes = static_cast<std::uint32_t>(rng.next());
        else
          r->kind = static_cast<ReduceKind>(rng.below(12));
      } else if (!s.op.operands.empty()) {
        s.op.operands.resize(rng.below(70), s.op.operands[0]);
        s.sources.resize(rng.chance(0.8) ? s.op.operands.size() : rng.below(5), SourceArray{});
      }
  }
}

void ask(const Geometry& g, std::span<const SourceArray> sources, Prng& rng) {
  if (g.point_count() == 0) return;
  std::vector<Read> reads;
  std::vector<Geometry::Users> users;
  for (int k = 0; k < 4; ++k) {
    const Index p =
        g.point(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(g.point_count()))));
    const std::int64_t steps = g.steps(p);
    g.reads(p, static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(steps))), reads);
    for (const Read& r : reads) {
      REQUIRE(r.block >= 0);
      REQUIRE(r.block < sources[r.operand].grid.block_count());
      g.users(r.operand, r.block, users);
      bool among = false;
      for (const auto& u : users) among |= u.points.contains(p);
      REQUIRE(among);
    }
    REQUIRE(g.bytes_read(p) >= 0);
    REQUIRE(g.flops(p) >= 0);
    REQUIRE(g.output_bytes_bound() >= 0);
  }
}

}  // namespace

TEST_CASE("property: spoiled ops never abort, and what passes can be lowered and asked") {
  const std::uint64_t seed = 1'000'000;
  int good = 0, bad = 0;
  for (std::uint64_t round = 0; round < 40'000; ++round) {
    INFO("seed ", seed + round);
    Prng rng(seed + round);
    Submitted s = random_good(rng);
    for (std::uint64_t n = rng.below(4); n > 0; --n) spoil(rng, s);
    if (const Result<Geometry> g = Geometry::make(s.op, s.sources)) ask(*g, s.sources, rng);
    const Status status = verify(s.op, s.sources);
    if (!status) {
      REQUIRE_FALSE(status.error().message.empty());
      ++bad;
      continue;
    }
    ++good;
    std::uint64_t next = 1000;
    std::map<std::uint64_t, SourceArray> known;
    for (std::size_t i = 0; i < s.sources.size(); ++i) known[s.op.operands[i].array] = s.sources[i];
    const Result<std::vector<Op>> ops = lower(s.op, s.sources, [&] { return next++; });
    if (!ops) {
      INFO(std::string(name_of(s.op.kind)), ": ", ops.error().message);
      REQUIRE((ops.error().code == Errc::kUnsupported || ops.error().code == Errc::kLimitExceeded));
      continue;
    }
    for (const Op& op : *ops) {
      std::vector<SourceArray> sources;
      for (const Operand& o : op.operands) {
        // Operands may share an array whose two descriptions were spoiled apart.
        sources.push_back(known.at(o.array));
        for (std::size_t i = 0; i < s.sources.size() && &op == &ops->front(); ++i)
          if (s.op.operands[i] == o) sources.back() = s.sources[i];
      }
      const Result<Geometry> g = Geometry::make(op, sources);
      INFO(std::string(name_of(op.kind)), ": ", g ? "" : g.error().message);
      REQUIRE(g.has_value());
      ask(*g, sources, rng);
      for (const OutputSpec& out : op.outputs) known[out.array] = {out.dtype, out.grid};
    }
  }
  MESSAGE(good << " passed, " << bad << " were refused");
  CHECK(good > 5000);
  CHECK(bad > 5000);
}

TEST_CASE("each counted limit, both sides") {
  const Source a = Source::of(1, DType::kFloat64, *Grid::uniform({4}, {2}));
  const auto code = [](const Op& op, std::size_t sources, Stage stage = Stage::kSubmitted) {
    const Status s =
        verify(op, std::vector<SourceArray>(sources, {DType::kFloat64, *Grid::uniform({4}, {2})}), stage);
    return s ? Errc::kOk : s.error().code;
  };
  Op op = *infer_map({&a, 1}, [](TapeBuilder&, std::span<const TapeValue> v) { return v[0]; })->op;
  CHECK(code(op, 1) == Errc::kOk);
  CHECK(code(op, 2) == Errc::kInvalidArgument);
  op.label = std::string(limits::kMaxNameBytes, 'x');
  CHECK(code(op, 1) == Errc::kOk);
  op.label += 'x';
  CHECK(code(op, 1) == Errc::kLimitExceeded);
  op.label.clear();
  op.hint.devices = {DeviceId(0)};
  CHECK(code(op, 1) == Errc::kInvalidArgument);
  op.hint.devices.clear();
  op.operands.resize(kMaxStepOperands, op.operands[0]);
  CHECK(code(op, kMaxStepOperands) == Errc::kOk);
  op.operands.push_back(op.operands[0]);
  CHECK(code(op, kMaxStepOperands + 1) == Errc::kLimitExceeded);

  const std::vector<Source> many(limits::kMaxOperands, a);
  const Op join = *infer_concat(many, 0)->op;
  CHECK(code(join, limits::kMaxOperands) == Errc::kOk);
  CHECK(code(join, limits::kMaxOperands, Stage::kLowered) == Errc::kLimitExceeded);

  CallAttrs attrs;
  attrs.kernel = std::string(limits::kMaxNameBytes, 'k');
  attrs.params = std::string(limits::kMaxParamBytes, 'p');
  CHECK(infer_call({}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).has_value());
  attrs.params += 'p';
  CHECK(infer_call({}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).error().code == Errc::kLimitExceeded);
  attrs.params.clear();
  attrs.flops_per_point = -1;
  CHECK(infer_call({}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).error().code == Errc::kInvalidArgument);
  attrs.flops_per_point = 0;
  attrs.explicit_maps = {{{0, 64, 64}, std::vector<std::int64_t>(64, 1)}};
  CHECK(infer_call({&a, 1}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).has_value());
  attrs.explicit_maps = {{{0, 65, 65}, std::vector<std::int64_t>(65, 1)}};
  CHECK(infer_call({&a, 1}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).error().code ==
        Errc::kLimitExceeded);
  attrs.explicit_maps = {{{0, 1, 1}, {2}}};
  CHECK(infer_call({&a, 1}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).error().code == Errc::kOutOfRange);
  attrs.explicit_maps = {{{0, 2, 1}, {1}}};
  CHECK(infer_call({&a, 1}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).error().code ==
        Errc::kInvalidArgument);
  attrs.explicit_maps = {{{}, {}}};
  CHECK(infer_call({&a, 1}, attrs, a.grid, {{0, DType::kFloat64, a.grid}}).error().code ==
        Errc::kInvalidArgument);
}

TEST_CASE("a map of several outputs: as many as its tape names, of their dtypes, cut as its space") {
  const Source a = Source::of(1, DType::kFloat64, *Grid::uniform({5, 4}, {2, 3}));
  const std::vector<SourceArray> sources{{a.dtype, a.grid}};
  Op op = *infer_map({&a, 1}, [](TapeBuilder& t, std::span<const TapeValue> v) {
             return t.binary(TapeOp::kLt, v[0], t.unary(TapeOp::kNeg, v[0]));
           })->op;
  Tape& tape = *tape_of(op);
  REQUIRE(tape.code.size() == 3);
  tape.outputs = {1, 2};
  const auto refused = [&](Errc code, const std::string& what) {
    const Status s = verify(op, sources);
    REQUIRE(s.has_error());
    CHECK(s.error().code == code);
    CHECK(s.error().message.find(what) != std::string::npos);
  };
  refused(Errc::kShapeMismatch, "1 outputs, not 2");
  op.outputs.insert(op.outputs.begin(), OutputSpec{0, DType::kFloat64, op.space});
  CHECK(verify(op, sources).has_value());
  CHECK(verify(op, sources, Stage::kLowered).has_value());
  const Geometry g = *Geometry::make(op, sources);
  CHECK(g.output_bytes_bound() == 2 * 3 * (8 + 1));
  tape.outputs = {2, 1};
  refused(Errc::kShapeMismatch, "output 0 is float64, not bool");
  tape.outputs = {1, 3};
  refused(Errc::kOutOfRange, "instruction 3 of 3");
  tape.outputs = {1, 2, 2};
  refused(Errc::kShapeMismatch, "2 outputs, not 3");
  tape.outputs = {1, 2};
  op.outputs[1].grid = *Grid::uniform({5, 4}, {3, 3});
  refused(Errc::kShapeMismatch, "output 1 is cut as");

  Op sum = *infer_reduce(a, ReduceKind::kSum, std::nullopt, false)->op;
  tape_of(sum)->outputs = {0, 0};
  const Status s = verify(sum, sources);
  REQUIRE(s.has_error());
  CHECK(s.error().code == Errc::kShapeMismatch);
  CHECK(s.error().message.find("2 outputs; one is reduced") != std::string::npos);
}

TEST_CASE("kinds belong to their stage") {
  const Source a = Source::of(1, DType::kFloat64, *Grid::uniform({4}, {2}));
  const std::vector<SourceArray> sources{{a.dtype, a.grid}};
  const Op sum = *infer_reduce(a, ReduceKind::kSum, std::nullopt, false)->op;
  CHECK(verify(sum, sources).has_value());
  CHECK(verify(sum, sources, Stage::kLowered).error().code == Errc::kUnsupported);
  std::uint64_t next = 9;
  const std::vector<Op> ops = *lower(sum, sources, [&] { return next++; });
  CHECK(verify(ops[0], sources, Stage::kLowered).has_value());
  CHECK(verify(ops[0], sources).error().code == Errc::kUnsupported);
}
