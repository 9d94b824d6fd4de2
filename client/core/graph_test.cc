#include "graph.h"

#include <doctest/doctest.h>
#include <tilewise/ir/infer.h>

#include <limits>

namespace tilewise::client {
namespace {

ir::Op fill(std::int64_t extent = 10, double value = 1) {
  auto r = ir::infer_generate({extent}, std::nullopt, [value](ir::TapeBuilder& t, auto) {
    return t.constant(ir::Scalar(value), ir::DType::kFloat64);
  });
  return std::move(*r.value().op);
}

ir::Op negative(const Graph& graph, Key key) {
  const ir::SourceArray a = graph.source(key);
  const auto source = ir::Source::of(key, a.dtype, a.grid);
  return std::move(
      *ir::infer_map({&source, 1}, [](ir::TapeBuilder& t, auto v) { return t.unary(ir::TapeOp::kNeg, v[0]); })
           .value()
           .op);
}

// `length` ops, each reading the one before; only the last keeps its handle.
Key chain(Graph& graph, int length) {
  Key key = graph.add(fill());
  for (int i = 1; i < length; ++i) {
    const Key next = graph.add(negative(graph, key));
    graph.unpin(key);
    key = next;
  }
  return key;
}

TEST_CASE("a deep graph is submitted in order and freed without recursion") {
  Graph graph;
  const Key end = chain(graph, 60'000);
  CHECK(graph.size() == 60'000);
  const Submission s = graph.submit({.fetch = {end}}).value();
  REQUIRE(s.ops.size() == 60'001);
  for (std::size_t i = 1; i < s.ops.size(); ++i) {
    REQUIRE(s.ops[i].operands[0].array == s.ops[i - 1].outputs[0].array);
  }
  CHECK(s.ops.back().kind == ir::OpKind::kFetch);
  graph.unpin(end);
  CHECK(graph.size() == 0);
  CHECK(graph.take_released().empty());
}

TEST_CASE("an expression past the limit is refused whole, and freed") {
  Graph graph;
  const Key end = chain(graph, 100'000);
  const auto s = graph.submit({.hold = {end}});
  REQUIRE(!s.has_value());
  CHECK(s.error().code == Errc::kLimitExceeded);
  CHECK(s.error().message.find("100000 ops") != std::string::npos);
  CHECK(!graph.remote(end));
  graph.unpin(end);
  CHECK(graph.size() == 0);
}

TEST_CASE("an op used twice is submitted once") {
  Graph graph;
  const Key x = graph.add(fill());
  const Key a = graph.add(negative(graph, x)), b = graph.add(negative(graph, x));
  const Submission s = graph.submit({.fetch = {a, b, a}}).value();
  CHECK(s.ops.size() == 5);  // fill, two negatives, two fetches
  REQUIRE(s.fetches.size() == 3);
  CHECK(s.fetches[0].number == s.fetches[2].number);
  CHECK(s.fetches[0].number != s.fetches[1].number);
}

TEST_CASE("what is neither held nor fetched is sent again, under another number") {
  Graph graph;
  const Key x = graph.add(fill());
  const Submission first = graph.submit({.fetch = {x}}).value(),
                   second = graph.submit({.fetch = {x}}).value();
  CHECK(second.ops.size() == 2);
  CHECK(first.fetches[0].number != second.fetches[0].number);
}

TEST_CASE("what is held is named, not sent again") {
  Graph graph;
  const Key x = graph.add(fill());
  const Submission first = graph.submit({.hold = {x}}).value();
  REQUIRE(first.holds.size() == 1);
  CHECK(graph.submit({.hold = {x}}).value().holds.empty());
  const Key y = graph.add(negative(graph, x));
  const Submission second = graph.submit({.fetch = {y}}).value();
  REQUIRE(second.ops.size() == 2);
  CHECK(second.ops[0].operands[0].array == first.holds[0].number);
}

TEST_CASE("a held array is released with its last reader, once") {
  Graph graph;
  const Key x = graph.add(fill());
  const Submission s = graph.submit({.hold = {x}}).value();
  graph.held(s, true);
  const Key y = graph.add(negative(graph, x));
  graph.unpin(x);
  CHECK(graph.released() == 0);  // y may still be computed from it
  graph.unpin(y);
  CHECK(graph.take_released() == std::vector{s.holds[0].number});
  CHECK(graph.size() == 0);
}

TEST_CASE("a failed hold is released and can be computed again") {
  Graph graph;
  const Key x = graph.add(fill());
  const Submission s = graph.submit({.hold = {x}}).value();
  graph.held(s, false);
  CHECK(!graph.remote(x));
  CHECK(graph.take_released() == std::vector{s.holds[0].number});
  const Submission again = graph.submit({.hold = {x}}).value();
  REQUIRE(again.holds.size() == 1);
  CHECK(again.ops.size() == 1);
}

TEST_CASE("a loop that persists each turn stays small") {
  Graph graph;
  Key x = graph.add(fill());
  std::size_t released = 0;
  for (int turn = 0; turn < 100; ++turn) {
    const Key a = graph.add(negative(graph, x)), b = graph.add(negative(graph, a));
    graph.unpin(a);
    graph.unpin(x);
    const Submission s = graph.submit({.hold = {b}}).value();
    CHECK(s.ops.size() <= 3);
    graph.held(s, true);
    x = b;
    released += graph.take_released().size();
    CHECK(graph.size() == 1);
  }
  CHECK(released == 99);
}

TEST_CASE("a program is named when it comes again, whatever its constants are by then") {
  Graph graph;
  std::uint64_t request = 0;
  const auto submit = [&](double value) {
    const Key x = graph.add(fill(10, value));
    Submission s = graph.submit({.hold = {x}}, ++request).value();
    graph.held(s, true);
    graph.unpin(x);
    return s;
  };
  CHECK(submit(0.0).keep_as == 0);
  CHECK(submit(0.0).keep_as == 1);
  for (const double value : {0.0, -0.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    const Submission s = submit(value);
    CHECK(s.program == 2);
    CHECK(s.constants == ir::Constants{{value}});
  }
}

TEST_CASE("an end that comes after the handle went changes nothing") {
  Graph graph;
  const Key x = graph.add(fill());
  const Submission s = graph.submit({.hold = {x}}).value();
  graph.unpin(x);
  CHECK(graph.take_released().size() == 1);
  graph.held(s, true);
  graph.held(s, false);
  CHECK(graph.released() == 0);
  CHECK(graph.size() == 0);
}

TEST_CASE("outputs of one op are kept and let go one by one") {
  Graph graph;
  ir::Op op = fill();
  op.outputs.push_back(op.outputs[0]);
  const Key first = graph.add(op), second = first + 1;
  const Submission s = graph.submit({.hold = {first, second}}).value();
  REQUIRE(s.holds.size() == 2);
  graph.held(s, true);
  graph.unpin(first);
  CHECK(graph.take_released() == std::vector{s.holds[0].number});
  CHECK(graph.size() == 1);
  graph.unpin(second);
  CHECK(graph.take_released() == std::vector{s.holds[1].number});
  CHECK(graph.size() == 0);
}

TEST_CASE("two explicit placements conflict, and both are named") {
  Graph graph;
  const auto name = [](DeviceId d) { return "w1/host:" + std::to_string(d.value); };
  const Key x = graph.add(fill(12));
  CHECK(graph.place(x, {{DeviceId(4)}}, name).value());
  CHECK(graph.place(x, {{DeviceId(4)}}, name).value());
  const auto conflict = graph.place(x, {{DeviceId(5), DeviceId(6)}}, name);
  REQUIRE(!conflict.has_value());
  CHECK(conflict.error().code == Errc::kPlacementConflict);
  CHECK(conflict.error().message.find("(12,)") != std::string::npos);
  CHECK(conflict.error().message.find("[w1/host:4]") != std::string::npos);
  CHECK(conflict.error().message.find("[w1/host:5, w1/host:6]") != std::string::npos);
  ir::DeviceHint tiled{{DeviceId(4)}};
  tiled.parts.push_back(1);
  CHECK(graph.place(x, tiled, name).error().message.find("[w1/host:4] in (1,) parts") != std::string::npos);
  const Key y = graph.add(fill());
  REQUIRE(graph.submit({.fetch = {y}}).has_value());
  CHECK(graph.place(y, {{DeviceId(4)}}, name).value() == false);  // too late
}

}  // namespace
}  // namespace tilewise::client
