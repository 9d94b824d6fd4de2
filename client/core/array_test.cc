// What expressions record, and how mistakes are told.
#include <tilewise/dtypes.h>

#include <concepts>
#include <thread>
#include <type_traits>

#include "fake_endpoint.h"
#include "session_state.h"

namespace tilewise::client {
namespace {

using ir::OpKind;
using ir::TapeOp;

std::vector<ir::Op> ops_of(World& world, const Array& a) {
  world.session.compute({a});
  std::vector<ir::Op> ops = world.fake.last().ops;
  ops.pop_back();  // the fetch
  return ops;
}

// Nothing is assigned to what a call gives: x[0] = y would do nothing.
static_assert(std::is_assignable_v<Array&, Array> && std::is_assignable_v<Array&, const Array&>);
static_assert(!std::is_assignable_v<Array, Array> && !std::is_assignable_v<Array, const Array&>);
static_assert(std::movable<Array> && std::copyable<Array> && std::swappable<Array>);
static_assert(std::is_nothrow_move_constructible_v<Array>);

TEST_CASE("arrays are values: in containers, exchanged, moved") {
  World world;
  Array x = world.session.zeros({2}), y = world.session.zeros({3});
  std::swap(x, y);
  CHECK(x.shape() == Shape{3});
  std::vector<Array> all = {x, y};
  all[0] = all[1];
  all.insert(all.begin(), x);
  all.erase(all.begin() + 1);
  CHECK(all[0].shape() == Shape{3});
  x = std::move(y);
  CHECK(x.shape() == Shape{2});
}

template <class T>
concept AddsTo = requires(T&& t, const Array& a) {
  std::forward<T>(t) += a;
};
static_assert(AddsTo<Array&> && !AddsTo<Array> && !AddsTo<const Array&>);

TEST_CASE("an array that something is added to is another one; other names keep the old one") {
  World world;
  Array x = world.session.ones({4}, {.dtype = DType::kInt64});
  const Array old = x;
  x += 1;
  x -= old;
  x *= world.session.ones({3, 1}, {.dtype = DType::kInt64});
  CHECK(x.shape() == Shape{3, 4});
  CHECK(x.dtype() == DType::kInt64);
  x /= 2;
  CHECK(x.dtype() == DType::kFloat64);
  CHECK(old.shape() == Shape{4});
}

TEST_CASE("functions of the members' names") {
  World world;
  const Array x = world.session.ones({2, 1, 3});
  CHECK(reshape(x, {3, -1}).shape() == Shape{3, 2});
  CHECK(transpose(x).shape() == Shape{3, 1, 2});
  CHECK(transpose(x, {1, 0, 2}).shape() == Shape{1, 2, 3});
  CHECK(squeeze(x).shape() == Shape{2, 3});
  CHECK(expand_dims(x, -1).shape() == Shape{2, 1, 3, 1});
  CHECK(broadcast_to(x, {2, 5, 3}).shape() == Shape{2, 5, 3});
}

TEST_CASE("views record nothing") {
  World world;
  const Array x = world.session.zeros({10, 4, 1}, {.block = {5, 2, 1}});
  const std::size_t before = world.session.state()->graph_size();
  CHECK(x.T().shape() == Shape{1, 4, 10});
  CHECK(x.permute({1, 2, 0}).shape() == Shape{4, 1, 10});
  CHECK(x.slice(0, -3, {}).shape() == Shape{3, 4, 1});
  CHECK(x.slice(0, 8, 1, -2).shape() == Shape{4, 4, 1});
  CHECK(x[3].shape() == Shape{4, 1});
  CHECK(x.at(-1, 0).shape() == Shape{10, 4});
  CHECK(x.expand_dims(0).shape() == Shape{1, 10, 4, 1});
  CHECK(x.squeeze(-1).shape() == Shape{10, 4});
  CHECK(x.broadcast_to({2, 10, 4, 3}).shape() == Shape{2, 10, 4, 3});
  CHECK(x.reshape({10, 1, 4}).shape() == Shape{10, 1, 4});
  CHECK(x.T().grid().counts() == Shape{1, 2, 2});
  CHECK(world.session.state()->graph_size() == before);
  CHECK(world.fake.sent.empty());
}

TEST_CASE("mistakes are thrown where they are made, with shapes") {
  World world;
  const Array x = world.session.zeros({3, 4}), y = world.session.zeros({5, 4});
  const std::size_t before = world.session.state()->graph_size();
  const auto check = [](const ArrayError& e, Errc code, std::initializer_list<const char*> texts) {
    CHECK_MESSAGE(e.code() == code, std::string(e.what()));
    for (const char* text : texts) CHECK_MESSAGE(says(e, text), std::string(e.what()));
  };
  check(thrown([&] { x + y; }), Errc::kShapeMismatch, {"(3, 4)", "(5, 4)"});
  check(thrown([&] { matmul(x, y); }), Errc::kShapeMismatch, {"(3, 4)", "(5, 4)"});
  check(thrown([&] {
          concat({x, world.session.zeros({3, 5})}, 0);
        }),
        Errc::kShapeMismatch, {"(3, 4)", "(3, 5)"});
  check(thrown([&] { matmul(x, y.T(), {.k_parts = -2}); }), Errc::kInvalidArgument, {"-2 parts"});
  check(thrown([&] { matmul(x.expand_dims(0), y.T(), {.k_parts = 2}); }), Errc::kUnsupported, {"(1, 3, 4)"});
  check(thrown([&] { x.reshape({5, 5}); }), Errc::kShapeMismatch, {"(3, 4)", "(5, 5)"});
  check(thrown([&] { x.squeeze(0); }), Errc::kInvalidArgument, {"(3, 4)"});
  check(thrown([&] { x.at(0, 3); }), Errc::kOutOfRange, {"3"});
  check(thrown([&] { sum(x, 2); }), Errc::kOutOfRange, {"axis 2", "(3, 4)"});
  check(thrown([&] { sum(x, {0, 0}); }), Errc::kInvalidArgument, {"twice"});
  check(thrown([&] { min(world.session.zeros({0, 3}), 0); }), Errc::kInvalidArgument, {"(0, 3)"});
  check(thrown([&] { x.item<double>(); }), Errc::kShapeMismatch, {"(3, 4)"});
  check(thrown([&] { x.broadcast_to({3, 5}); }), Errc::kShapeMismatch, {"(3, 4)", "(3, 5)"});
  check(thrown([&] { world.session.zeros({-1}); }), Errc::kInvalidArgument, {"-1"});
  check(thrown([&] {
          world.session.zeros({4}, {.block = {2, 2}});
        }),
        Errc::kShapeMismatch, {"(2, 2)", "(4,)"});
  check(thrown([&] { world.session.zeros({std::int64_t{1} << 40}, {.block = {1}}); }), Errc::kLimitExceeded,
        {});
  check(thrown([&] { (x == x) + (x == x); }), Errc::kInvalidArgument, {"bool"});
  check(thrown([&] { Array() + 1; }), Errc::kInvalidArgument, {"names nothing"});
  check(thrown([&] { x + World().session.zeros({3, 4}); }), Errc::kInvalidArgument, {"different sessions"});
  check(thrown([&] { world.session.arange(0, 5, 0); }), Errc::kInvalidArgument, {"step 0"});
  check(thrown([&] { world.session.random.integers(5, 5, {3}); }), Errc::kInvalidArgument, {"[5, 5)"});
  check(thrown([&] { x.named(std::string(300, 'x')); }), Errc::kLimitExceeded, {"300 bytes"});
  CHECK(world.session.state()->graph_size() == before);
}

TEST_CASE("integers have no negative powers") {
  World world;
  for (const DType t : {DType::kInt64, DType::kInt8, DType::kUInt8, DType::kBool}) {
    const ArrayError e = thrown([&] { power(world.session.ones({3}, {.dtype = t}), -1); });
    CHECK(e.code() == Errc::kInvalidArgument);
    CHECK_MESSAGE(says(e, "power -1"), std::string(e.what()));
  }
  const Array i = world.session.ones({3}, {.dtype = DType::kInt64});
  CHECK(power(i, 2).dtype() == DType::kInt64);
  CHECK(power(i, -1.0).dtype() == DType::kFloat64);
  CHECK(power(world.session.ones({3}), -1).dtype() == DType::kFloat64);
  CHECK(power(2, -i).dtype() == DType::kInt64);
}

TEST_CASE("dtypes promote as in NumPy") {
  World world;
  const auto of = [&](DType t) { return world.session.zeros({3}, {.dtype = t}); };
  const Array b = of(DType::kBool), i = of(DType::kInt32), l = of(DType::kInt64), f = of(DType::kFloat32),
              d = of(DType::kFloat64);
  CHECK((i + l).dtype() == DType::kInt64);
  CHECK((f + d).dtype() == DType::kFloat64);
  CHECK((f + 1.5).dtype() == DType::kFloat32);
  CHECK((i + 1).dtype() == DType::kInt32);
  CHECK((1.5 * i).dtype() == DType::kFloat64);
  CHECK((i / i).dtype() == DType::kFloat64);
  CHECK((i < 3).dtype() == DType::kBool);
  CHECK(exp(l).dtype() == DType::kFloat64);
  CHECK(sum(i).dtype() == DType::kInt64);
  CHECK(sum(f).dtype() == DType::kFloat32);
  CHECK(mean(i).dtype() == DType::kFloat64);
  CHECK(mean(f).dtype() == DType::kFloat32);
  CHECK(argmax(f).dtype() == DType::kInt64);
  CHECK(any(d).dtype() == DType::kBool);
  CHECK((!d).dtype() == DType::kBool);
  CHECK(logical_and(d, i).dtype() == DType::kBool);
  CHECK(logical_or(d, 1).dtype() == DType::kBool);
  CHECK(matmul(i, d).dtype() == DType::kFloat64);
  CHECK(concat({i, f}).dtype() == ir::common_dtype(DType::kInt32, DType::kFloat32));
  CHECK(where(b, f, 0.5).dtype() == DType::kFloat32);
  CHECK(where(b, 1, 0).dtype() == DType::kInt64);
  CHECK(isnan(f).dtype() == DType::kBool);
  CHECK(f.astype(DType::kInt32).dtype() == DType::kInt32);
}

TEST_CASE("shapes of reductions, products and joins") {
  World world;
  const Array x = world.session.ones({6, 4, 2});
  CHECK(sum(x).shape() == Shape{});
  CHECK(sum(x, 1).shape() == Shape{6, 2});
  CHECK(max(x, {0, -1}).shape() == Shape{4});
  CHECK(max(x, {0, -1}, true).shape() == Shape{1, 4, 1});
  CHECK(argmin(x, -1).shape() == Shape{6, 4});
  const Array m = x.at(2, 0);
  CHECK(matmul(m, m.T()).shape() == Shape{6, 6});
  CHECK(matmul(m, m[0]).shape() == Shape{6});
  CHECK(matmul(m.T()[0], m).shape() == Shape{4});
  CHECK(matmul(m[0], m[0]).shape() == Shape{});
  CHECK(concat({m, m, m}, 1).shape() == Shape{6, 12});
  CHECK(stack({m, m, m}, -1).shape() == Shape{6, 4, 3});
  CHECK(stack({m}, 0).shape() == Shape{1, 6, 4});
  CHECK((m + m[0]).shape() == Shape{6, 4});
  CHECK((m.T().expand_dims(0) + m.at(1, 0)).shape() == Shape{1, 4, 6});
  CHECK(m.reshape({-1, 3}).shape() == Shape{8, 3});
  CHECK(m.reblock({1, 4}).grid().counts() == Shape{6, 1});
}

TEST_CASE("a mean is a sum over its count") {
  World world;
  const auto ops = ops_of(world, mean(world.session.ones({6, 4}), 0));
  REQUIRE(ops.size() == 3);
  CHECK(ops[1].kind == OpKind::kReduce);
  const ir::Tape& tape = *ir::tape_of(ops[2]);
  CHECK(tape.code.back().op == TapeOp::kDiv);
  bool six = false;
  for (const ir::TapeInstr& i : tape.code) six |= i.op == TapeOp::kConst && i.imm_f == 6;
  CHECK(six);
}

TEST_CASE("16-bit floats are multiplied as they are, and their product is narrowed") {
  World world;
  const Array h = world.session.ones({6, 4}, {.dtype = DType::kFloat16});
  const auto ops = ops_of(world, matmul(h, h.T()));
  REQUIRE(ops.size() == 3);
  CHECK(ops[1].kind == OpKind::kMatmul);
  CHECK(ops[1].outputs[0].dtype == DType::kFloat32);
  CHECK(ops[2].outputs[0].dtype == DType::kFloat16);
  const Array f = world.session.ones({6, 4}, {.dtype = DType::kFloat32});
  CHECK(ops_of(world, matmul(f, f.T(), {.tf32 = true}))[1].get<ir::MatmulAttrs>().tf32);
  CHECK_THROWS_AS(matmul(h, h.T(), {.tf32 = true}), ArrayError);
}

TEST_CASE("a mean and a variance read one array, each once") {
  World world;
  const auto ops = ops_of(world, var(world.session.ones({6, 4}), 0));
  REQUIRE(ops.size() == 3);
  CHECK(ops[1].get<ir::ReduceAttrs>().kind == ir::ReduceKind::kMoments);
}

TEST_CASE("scalars are part of the op, whichever side they stand on") {
  World world;
  const Array x = world.session.ones({3});
  for (const Array& a : {x - 2, 2 - x, 2.0f / x, x % 3, std::size_t{2} * x, true * x}) {
    CHECK(ops_of(world, a).size() == 2);
  }
  CHECK(ops_of(world, x - 2).back().attrs != ops_of(world, 2 - x).back().attrs);
}

TEST_CASE("an array used twice is read once") {
  World world;
  const Array x = world.session.ones({3});
  CHECK(ops_of(world, x * x).back().operands.size() == 1);
  CHECK(ops_of(world, x * x.slice(0, {}, {}, -1)).back().operands.size() == 2);
}

// Runs the tape of a one-op array, element by element, in plain arithmetic. Enough for ranges.
std::vector<double> evaluate(const ir::Op& op) {
  const ir::Shape shape = op.space.shape();
  std::vector<double> out;
  for (std::int64_t e = 0; e < ir::volume(shape); ++e) {
    const ir::Index at = ir::unravel(e, shape);
    std::vector<double> v;
    for (const ir::TapeInstr& i : ir::tape_of(op)->code) {
      switch (i.op) {
        case TapeOp::kConst:
          v.push_back(is_floating(i.dtype) ? i.imm_f : static_cast<double>(i.imm_i));
          break;
        case TapeOp::kIota: v.push_back(static_cast<double>(at[static_cast<std::size_t>(i.imm_i)])); break;
        case TapeOp::kCast: v.push_back(v[i.a]); break;
        case TapeOp::kAdd: v.push_back(v[i.a] + v[i.b]); break;
        case TapeOp::kSub: v.push_back(v[i.a] - v[i.b]); break;
        case TapeOp::kMul: v.push_back(v[i.a] * v[i.b]); break;
        case TapeOp::kEq: v.push_back(v[i.a] == v[i.b]); break;
        case TapeOp::kWhere: v.push_back(v[i.a] != 0 ? v[i.b] : v[i.c]); break;
        default: FAIL("tape operation ", ir::name_of(i.op)); break;
      }
    }
    out.push_back(v.back());
  }
  return out;
}

TEST_CASE("ranges and fills") {
  World world;
  const Session& s = world.session;
  const auto values = [&](const Array& a) { return evaluate(ops_of(world, a).back()); };
  CHECK(values(s.arange(4)) == std::vector<double>{0, 1, 2, 3});
  CHECK(values(s.arange(2, 9, 3)) == std::vector<double>{2, 5, 8});
  CHECK(values(s.arange(5, 0, -2)) == std::vector<double>{5, 3, 1});
  CHECK(s.arange(5, 0).shape() == Shape{0});
  CHECK(s.arange(0.0, 1.0, 0.25).shape() == Shape{4});
  CHECK(s.arange(4).dtype() == DType::kInt64);
  CHECK(s.arange(0.5, 4).dtype() == DType::kFloat64);
  CHECK(s.arange(0, std::int64_t{9'007'199'254'740'993}, 1, {.block = {1 << 30}}).shape()[0] ==
        9'007'199'254'740'993);
  const auto line = values(s.linspace(0.1, 0.7, 7));
  CHECK(line.front() == 0.1);
  CHECK(line.back() == 0.7);
  CHECK(values(s.linspace(3, 4, 1)) == std::vector<double>{3});
  CHECK(values(s.eye(2, 3, 1)) == std::vector<double>{0, 1, 0, 0, 0, 1});
  CHECK(values(s.full({2}, 2.5)) == std::vector<double>{2.5, 2.5});
  CHECK(s.ones({2}, {.dtype = DType::kInt32}).dtype() == DType::kInt32);
}

std::int64_t key_of(World& world, const Array& a) {
  const ir::Op op = ops_of(world, a).front();
  for (const ir::TapeInstr& i : ir::tape_of(op)->code) {
    if (i.op == TapeOp::kUniform || i.op == TapeOp::kNormal || i.op == TapeOp::kRandomBelow) return i.imm_i;
  }
  FAIL("no random numbers");
  return 0;
}

TEST_CASE("random streams depend on seeds and order, never on the grid") {
  World a, b, other({.seed = 1});
  const auto first = [](World& w, const Shape& block) {
    return w.session.random.normal({64}, {.block = block});
  };
  const std::int64_t key = key_of(a, first(a, {8}));
  CHECK(key == key_of(b, first(b, {64})));
  CHECK(key != key_of(other, first(other, {8})));
  CHECK(key != key_of(a, first(a, {8})));  // the next stream
  CHECK(key_of(a, a.session.random.uniform({4}, {.seed = 7})) ==
        key_of(b, b.session.random.normal({9}, {.seed = 7})));
  CHECK(a.session.random.integers(-3, 3, {5}).dtype() == DType::kInt64);
  CHECK(thrown([&] { a.session.random.normal({3}, {.dtype = DType::kInt64}); }).code() ==
        Errc::kInvalidArgument);
}

TEST_CASE("deep expressions are sent, and let go, without recursion") {
  World world;
  {
    Array x = world.session.ones({4});
    for (int i = 0; i < 60'000; ++i) x = x + 1;
    world.session.compute({x});
    CHECK(world.fake.last().ops.size() == 60'002);
    for (int i = 0; i < 40'000; ++i) x = x + 1;
    const ArrayError e = thrown([&] { world.session.compute({x}); });
    CHECK(e.code() == Errc::kLimitExceeded);
    CHECK(says(e, "persist()"));
  }
  CHECK(world.session.state()->graph_size() == 0);
}

TEST_CASE("plug-in kernels") {
  World world;
  const Array x = world.session.ones({8, 4}, {.block = {2, 4}});
  const Kernel kernel{.name = "mine.blur", .params = "p", .scratch_bytes = 64};
  const auto out =
      map_blocks(kernel, std::vector{x}, {}, {{DType::kFloat32, x.grid()}, {DType::kInt64, x.grid()}});
  REQUIRE(out.size() == 2);
  CHECK(out[1].dtype() == DType::kInt64);
  const ir::Op call = ops_of(world, out[1]).back();
  CHECK(call.kind == OpKind::kCall);
  CHECK(call.get<ir::CallAttrs>().kernel == "mine.blur");
  CHECK(call.outputs.size() == 2);
  const ArrayError e = thrown([&] {
    map_blocks(kernel, std::vector{x[0]}, {}, {{DType::kFloat32, x.grid()}});
  });
  CHECK(says(e, "mine.blur"));
  CHECK(says(e, "(4,)"));

  const Array y = world.session.zeros({4}, {.block = {2}});
  const Array one = task(kernel, {{x, 3}, {y, 1}, {x, 0}}, DType::kFloat64, {5});
  const ir::Op point = ops_of(world, one).back();
  REQUIRE(point.operands.size() == 3);  // so that the kernel's inputs come in this order
  CHECK(point.operands[0].array == point.operands[2].array);
  CHECK(point.get<ir::CallAttrs>().explicit_maps[0].blocks == std::vector<std::int64_t>{3});
  CHECK(point.get<ir::CallAttrs>().explicit_maps[1].blocks == std::vector<std::int64_t>{1});
  CHECK(point.get<ir::CallAttrs>().explicit_maps[2].blocks == std::vector<std::int64_t>{0});
  CHECK(point.space.block_count() == 1);
  CHECK(thrown([&] { task(kernel, {{x, 4}}, DType::kFloat64, {5}); }).code() == Errc::kOutOfRange);

  // Listed blocks: a call for each block of the output, with any number of inputs.
  const Grid two = *Grid::uniform({4}, {2});
  const Array listed =
      map_blocks(kernel, {{x, {{0, 3}, {}}}, {y, {{1}, {0, 1}}}}, {{DType::kFloat64, two}})[0];
  const ir::Op calls = ops_of(world, listed).back();
  CHECK(calls.get<ir::CallAttrs>().explicit_maps[0].offsets == std::vector<std::uint32_t>{0, 2, 2});
  CHECK(calls.get<ir::CallAttrs>().explicit_maps[1].blocks == std::vector<std::int64_t>{1, 0, 1});
  CHECK(thrown([&] {
          map_blocks(kernel, {{x, {{0}}}}, {{DType::kFloat64, two}});
        }).code() == Errc::kInvalidArgument);
}

TEST_CASE("labels travel with their op") {
  World world;
  const Array x = world.session.ones({3}).named("weights");
  CHECK(ops_of(world, x).back().label == "weights");
}

TEST_CASE("concurrent recording and dropping") {
  World world;
  const Array x = world.session.ones({4});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        Array y = x;
        for (int k = 0; k < 5; ++k) y = y * 2 + x;
        if (i % 50 == 0) y.persist();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(world.session.state()->graph_size() == 1);
  world.fake.up.on_message(msg::Ping{1});
  CHECK(world.fake.held.empty());
}

TEST_CASE("questions about dtypes, as the standard asks them") {
  World world;
  const Array x = world.session.zeros({2}, {.dtype = DType::kFloat32});
  CHECK(isdtype(DType::kInt8, "signed integer"));
  CHECK(!isdtype(DType::kUInt8, "signed integer"));
  CHECK(isdtype(DType::kUInt64, "unsigned integer"));
  CHECK(isdtype(DType::kUInt64, "integral"));
  CHECK(!isdtype(DType::kBool, "integral"));
  CHECK(isdtype(DType::kBool, "bool"));
  CHECK(isdtype(DType::kBFloat16, "real floating"));
  CHECK(isdtype(DType::kComplex64, "complex floating"));
  CHECK(isdtype(DType::kComplex64, "numeric"));
  CHECK(!isdtype(DType::kBool, "numeric"));
  CHECK(isdtype(DType::kInt32, DType::kInt32));
  CHECK(!isdtype(DType::kInt32, DType::kInt64));
  CHECK(isdtype(DType::kInt32, {DType::kInt64, "bool", "integral"}));
  CHECK(!isdtype(DType::kFloat32, {"bool", "integral"}));
  CHECK(thrown([&] { isdtype(DType::kBool, "integer"); }).code() == Errc::kInvalidArgument);

  CHECK(can_cast(DType::kInt8, DType::kInt16));
  CHECK(can_cast(DType::kUInt8, DType::kInt16));
  CHECK(!can_cast(DType::kInt16, DType::kInt8));
  CHECK(!can_cast(DType::kUInt64, DType::kInt64));
  CHECK(!can_cast(DType::kInt64, DType::kFloat64));
  CHECK(!can_cast(DType::kBool, DType::kInt8));
  CHECK(can_cast(x, DType::kComplex64));
  CHECK(!can_cast(DType::kFloat64, DType::kComplex64));

  CHECK(result_type({x, DType::kFloat16}) == DType::kFloat32);
  CHECK(result_type({DType::kInt8, DType::kUInt8, 3}) == DType::kInt16);
  CHECK(result_type({1.5, DType::kInt64}) == DType::kFloat64);
  CHECK(result_type({x, 1.5, true}) == DType::kFloat32);
  CHECK(result_type({x, std::complex<double>(0, 1)}) == DType::kComplex64);
  CHECK(result_type({DType::kBool, 1}) == DType::kInt64);
  CHECK(thrown([&] { result_type({1, 2.5}); }).code() == Errc::kInvalidArgument);

  CHECK(finfo(x)->eps == finfo(DType::kFloat32)->eps);
  CHECK(finfo(DType::kComplex128)->bits == 64);
  CHECK(!finfo(DType::kInt8));
  CHECK(iinfo(DType::kInt8)->min == -128);
  CHECK(iinfo(world.session.arange(3))->max == static_cast<std::uint64_t>(INT64_MAX));
}

}  // namespace
}  // namespace tilewise::client
