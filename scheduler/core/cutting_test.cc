// Pieces in plans: which ops are added where, what explain foretells, replays, and the switch.
#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

const ir::Grid kRows = grid({2048, 2048}, {256, 2048}), kColumns = grid({2048, 2048}, {2048, 256});

// What `a` holds, in other blocks; on both devices.
ir::Op recut(std::uint64_t out, const ir::Grid& to, std::uint64_t a) {
  ir::Op op;
  op.kind = ir::OpKind::kCopy;
  op.operands = {{a, ir::View::identity(to.shape())}};
  op.space = to;
  op.outputs = {{out, ir::DType::kFloat64, to}};
  op.attrs = ir::CopyAttrs{{{{ir::DimMap::Kind::kSpan, 0}, {ir::DimMap::Kind::kSpan, 1}}}};
  return op;
}

struct Hosts : World {
  explicit Hosts(Options options = {}, bool far = true) : World(std::move(options)) {
    for (std::uint32_t i = 1; i <= 2; ++i) {
      msg::Join join = worker(1, "w" + std::to_string(i), std::int64_t{1} << 32);
      if (!far) join.host_id = "one";
      workers.emplace_back(i, this->join(i, std::move(join)));
      devices.push_back(workers.back().second.devices[0]);
    }
    join(10, client());
  }
  std::vector<ir::Op> program(std::uint64_t first) const {
    std::vector<ir::Op> ops{random(first, kRows), recut(first + 1, kColumns, first)};
    for (ir::Op& op : ops) op.hint.devices = devices;
    return ops;
  }
  msg::Explanation explained(std::vector<ir::Op> ops, std::vector<std::uint64_t> holds) {
    msg::Explain explain;
    explain.submit.request = 1000;
    explain.submit.ops = std::move(ops);
    explain.submit.holds = std::move(holds);
    receive(10, explain);
    const msg::Explanation told = *last<msg::Explanation>(10);
    REQUIRE_MESSAGE(told.outcome.ok(), told.outcome.message);
    return told;
  }
  std::vector<DeviceId> devices;
};

std::int64_t moved(const msg::Explanation& told) {
  std::int64_t bytes = 0;
  for (const msg::LinkAccount& link : told.links) bytes += link.mapped ? 0 : link.bytes;
  return bytes;
}

TEST_CASE(
    "rows to columns between two hosts: explain says what is cut, why, and that half of the array moves") {
  Hosts w;
  const msg::Explanation told = w.explained(w.program(1), {2});
  CHECK(told.passes.back().name == "pieces");
  CHECK(told.passes.back().ops == 4);
  REQUIRE(told.ops.size() == 4);
  CHECK(moved(told) == 2048 * 2048 * 8 / 2);
  for (const std::size_t maker : {1, 2}) {
    CHECK(told.ops[maker].op.find("copy") != std::string::npos);
    REQUIRE(told.ops[maker].choices.size() == 2);
    CHECK(told.ops[maker].choices[0].policy == "cut where its blocks are");
    CHECK(told.ops[maker].choices[0].seconds < told.ops[maker].choices[1].seconds);
    CHECK(told.ops[maker].bytes_moved == 0);
  }
  // And so it is submitted.
  CHECK(w.submit(10, 1, w.program(1), {2}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  REQUIRE(plan.ops.size() == 4);
  CHECK(plan.ops[3].op.operands.size() == 4);
  CHECK(plan.ops[1].placement.devices() != plan.ops[2].placement.devices());
  w.complete(plan);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE("no pieces: switched off, and where memory is shared") {
  Options off;
  off.passes_off = {"pieces"};
  Hosts without(off);
  const msg::Explanation told = without.explained(without.program(1), {2});
  CHECK(told.ops.size() == 2);
  CHECK(told.passes.back().name != "pieces");
  CHECK(moved(told) == 2048 * 2048 * 8);
  Hosts near({}, false);
  CHECK(near.explained(near.program(1), {2}).ops.size() == 2);
}

TEST_CASE("a program with pieces is replayed with them") {
  Hosts w;
  std::vector<msg::Plan> plans;
  for (std::uint64_t i = 0; i < 6; ++i) {
    CHECK(w.submit(10, i + 1, w.program(10 * i + 1), {10 * i + 2}).outcome.ok());
    plans.push_back(w.log<msg::Plan>(1).back());
    w.complete(plans.back());
    w.apply_logs();
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
    w.receive(10, msg::ReleaseArrays{{10 * i + 2}});
    CHECK(plans.back().ops.size() == 4);
  }
  CHECK(w.core.replays() > 0);
  CHECK(w.replays_told > 0);
  for (const msg::Plan& plan : plans) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i)
      CHECK(plan.ops[i].placement == plans[0].ops[i].placement);
  }
}

TEST_CASE("an elementwise op elsewhere gets the rows of a large block that it reads") {
  Hosts w;
  const ir::Grid one = grid({4096, 1024}, {4096, 1024});
  ir::Op big = random(1, one), own = random(2, grid({40, 1024}, {40, 1024}), 8);
  big.hint.devices = {w.devices[0]};
  own.hint.devices = {w.devices[1]};
  REQUIRE(w.submit(10, 1, {big, own}, {1, 2}).outcome.ok());
  w.complete(w.log<msg::Plan>(1).back());
  ir::Op sum = map(3, grid({40, 1024}, {40, 1024}), {1, 2});
  sum.operands[0].view = *ir::View::identity({4096, 1024}).slice(0, 10, 50, 1);
  sum.hint.devices = {w.devices[1]};
  REQUIRE(w.submit(10, 2, {sum}, {3}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  REQUIRE(plan.ops.size() == 2);
  CHECK(plan.ops[0].placement.owner({0, 0}) == w.devices[0]);
  CHECK(plan.ops[0].op.outputs[0].grid.shape() == ir::Shape{40, 1024});
}

}  // namespace
}  // namespace tilewise::scheduler::test
